"""Run benchmarks and renew their rows in the table of all claims, in docs/theory/benchmarks.md and README.md:
README.md gets the first row with a peer of each benchmark in SHOWN.

    python benchmarks/table.py [NAME...]      (default: all of SCRIPTS)

Each benchmark runs its own side and its peer's in one go, on this machine, one after the other. Run it on a
machine with nothing else to do; exits with status 1 when a claim does not hold. Rows are kept in
benchmarks/measured.json with the day and the version that they are of: with names, only those are renewed.
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
)
# The benchmarks that README.md shows, each by its first row with a peer, whether its claim holds or not.
SHOWN = ("audit", "llama", "accuracy", "fit", "limit", "learn", "dynamics", "study", "paths")
# One BLAS thread, so that CPU seconds are those of work; here each side takes its own.
ONE_THREAD, OWN_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}, ("audit",)
HEAD = "| task | attnlaw | against | measured | claimed |\n|---|---|---|---|---|\n"
ALONE = "no peer"
MEASURED = ROOT / "benchmarks" / "measured.json"
# Where the table stands in README.md and docs/theory/benchmarks.md.
START, END = "<!-- measured -->\n", "<!-- end of measured -->"


def machine() -> str:
    model = "unknown processor"
    if Path("/proc/cpuinfo").exists():
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
        model = names[0].split(":", 1)[1].strip() if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "torch", "attnlaw"))
    return f"Machine: {model}, {cores} cores, Python {platform.python_version()}, {versions}."


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


def write() -> None:
    """Write both tables from the rows that are kept."""
    measured = kept()
    rows = [row for record in measured.values() for row in record["rows"]]
    runs: dict[str, list[str]] = {}
    for name, record in measured.items():
        runs.setdefault(f"{record['day']}. {record['machine']}", []).append(name)
    notes = [f"- {', '.join(names)}: {run}" for run, names in runs.items()]
    if never := [name for name in SCRIPTS if name not in measured]:
        notes.append(f"- not run for this table: {', '.join(never)}")
    text = "\n".join(notes) + f"\n\n{HEAD}" + "\n".join(map(line, rows)) + "\n"
    write_between(ROOT / "docs" / "theory" / "benchmarks.md", text)
    write_between(ROOT / "README.md", brief(measured))


def brief(measured: dict[str, dict[str, Any]]) -> str:
    """The table of README.md: few rows, and how many claims of all hold."""
    rows = [row for record in measured.values() for row in record["rows"]]
    compared = [
        [row for row in measured[name]["rows"] if row["peer"] != ALONE] for name in SHOWN if name in measured
    ]
    lines = [line(rows_of_script[0]) for rows_of_script in compared if rows_of_script]
    held = sum(row["holds"] for row in rows)
    return f"{HEAD}" + "\n".join(lines) + f"\n\n{held} of all {len(rows)} claims hold.\n"


def main() -> int:
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or SCRIPTS:
            print(f"== {name}", flush=True)
            claims = Path(folder) / f"{name}.jsonl"
            script = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py")]
            threads = {} if name in OWN_THREADS else ONE_THREAD
            environment = {**os.environ, **threads, "ATTNLAW_CLAIMS": str(claims)}
            status |= subprocess.run(script, env=environment).returncode
            if claims.exists():
                keep(name, [json.loads(row) for row in claims.read_text().splitlines()])
    write()
    print((ROOT / "docs" / "theory" / "benchmarks.md").read_text(encoding="utf-8"))
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
