"""Run benchmarks and keep their rows, from which docs/hooks/measured.py makes the table of all claims.

The table is on the page docs/theory/benchmarks.md of the site. README.md gets the three rows of SHOWN.

    python benchmarks/table.py [NAME...] [--before SRC]      (default: all of SCRIPTS)

Each benchmark runs its own side and its peer's in one go, on this machine, one after the other. Run it on a
machine with nothing else to do; exits with status 1 when a claim does not hold. Rows are kept in
benchmarks/measured.json with the day and the version that they are of: with names, only those are renewed.
SRC is the folder `src` of another version, such as 0.2.0, which the benchmarks in COMPARED then compare with
ours.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

ROOT = Path(__file__).parent.parent
SCRIPTS = (
    "audit",
    "llama",
    "accuracy",
    "growth",
    "diff",
    "fit",
    "limit",
    "init",
    "learn",
    "dynamics",
    "margins",
    "study",
    "report",
    "codes",
    "paths",
    "logits",
    "lab",
    "versions",
)
# The rows that README.md shows, whether their claims hold or not: the benchmark, how its row begins, and the
# words for the task and for the other tool.
SHOWN = (
    ("audit", "audit of 12 x 768 in float32", "CPU time to audit a 12 x 768 encoder", "WeightWatcher"),
    ("audit", "peak memory of the audit in float32", "memory that this audit needs", "WeightWatcher"),
    ("fit", "power-law fits of 312", "time to fit power laws to the encoder's matrices", "powerlaw"),
)
# One BLAS thread, so that CPU seconds are those of work; here each side takes its own.
ONE_THREAD, OWN_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}, ("audit",)
# Benchmarks that compare another version, and their arguments before its folder. `versions` needs one.
COMPARED = {"audit": (), "llama": ("4",), "versions": ()}
HEAD = "| task | attnlaw | against | measured | claimed |\n|---|---|---|---|---|\n"
ALONE = "no peer"
MEASURED = ROOT / "benchmarks" / "measured.json"
# The marks around the table in README.md.
START, END = "<!-- measured -->\n", "<!-- end of measured -->"


def machine() -> str:
    model = "unknown processor"
    if Path("/proc/cpuinfo").exists():
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
        model = names[0].split(":", 1)[1].strip() if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "torch", "attnlaw"))
    import scipy.linalg  # noqa: F401  (loads OpenBLAS)

    kernels = {pool["architecture"] for pool in threadpool_info() if "architecture" in pool}
    machine = f"{model}, {cores} cores, OpenBLAS kernels {', '.join(kernels)}"
    return f"Machine: {machine}, Python {platform.python_version()}, {versions}."


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write_between(file: Path, table: str, marks: tuple[str, str] = (START, END)) -> None:
    before, rest = file.read_text(encoding="utf-8").split(marks[0])
    after = rest.split(marks[1])[1]
    file.write_text(f"{before}{marks[0]}{table}{marks[1]}{after}", encoding="utf-8")


def line(row: dict[str, Any]) -> str:
    bound = "at least" if row["least"] else "at most"
    missed = "" if row["holds"] else ", MISSED"
    return (
        f"| {row['task']} | {row['ours']} | {row['peer']} | **{number(row['measured'])}** | "
        f"{bound} {number(row['goal'])}{missed} |"
    )


def kept() -> dict[str, dict[str, Any]]:
    """Of each benchmark that was run its rows, with the day, the version and the machine."""
    return json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}


def keep(name: str, rows: list[dict[str, Any]]) -> None:
    """Put the rows of a benchmark in the place of those that it had."""
    runs = kept() | {name: {"day": datetime.date.today().isoformat(), "machine": machine(), "rows": rows}}
    ordered = {script: runs[script] for script in SCRIPTS if script in runs}
    MEASURED.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def claims_table(measured: dict[str, dict[str, Any]]) -> str:
    """Return when and where the benchmarks were run, and the table of all claims."""
    rows = [row for record in measured.values() for row in record["rows"]]
    runs: dict[str, list[str]] = {}
    for name, record in measured.items():
        runs.setdefault(f"{record['day']}. {record['machine']}", []).append(name)
    notes = [f"- {', '.join(names)}: {run}" for run, names in runs.items()]
    if never := [name for name in SCRIPTS if name not in measured]:
        notes.append(f"- not run for this table: {', '.join(never)}")
    return "\n".join(notes) + f"\n\n{HEAD}" + "\n".join(map(line, rows)) + "\n"


def brief(measured: dict[str, dict[str, Any]]) -> str:
    """The table of README.md: what a user waits for, with units."""
    lines = ["| | attnlaw | other tool |", "|---|---|---|"]
    for name, start, task, tool in SHOWN:
        row = next(row for row in measured[name]["rows"] if row["task"].startswith(start))
        lines.append(f"| {task} | {row['ours']} | {tool}: {row['peer'].rsplit(': ', 1)[1]} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    os.environ.pop("OPENBLAS_CORETYPE", None)  # all benchmarks use the kernels that OpenBLAS chooses
    status, names, source = 0, sys.argv[1:], []
    if "--before" in names:
        at = names.index("--before")
        names, source = names[:at], names[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [name for name in SCRIPTS if source or name != "versions"]:
            print(f"== {name}", flush=True)
            claims = Path(folder) / f"{name}.jsonl"
            script = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py")]
            script += [*COMPARED[name], *source] if source and name in COMPARED else []
            threads = {} if name in OWN_THREADS else ONE_THREAD
            environment = {**os.environ, **threads, "ATTNLAW_CLAIMS": str(claims)}
            status |= subprocess.run(script, env=environment).returncode
            if claims.exists():
                keep(name, [json.loads(row) for row in claims.read_text().splitlines()])
    write_between(ROOT / "README.md", brief(kept()))
    print(claims_table(kept()))
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
