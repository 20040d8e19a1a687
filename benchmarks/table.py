"""Run every benchmark, print the table of all claims, and write it to docs/benchmarks.md; to README.md the
rows that have a peer.

    python benchmarks/table.py [NAME...]      (default: all of SCRIPTS)

Each benchmark runs its own side and its peer's in one go, on this machine, one after the other. Run it on a
machine with nothing else to do; exits with status 1 when a claim does not hold. With names, only those run
and only the table on the screen is made.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

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
)
HEAD = "| task | attnlaw | against | measured | claimed |\n|---|---|---|---|---|\n"
ALONE = "no peer"
# Where the table stands in README.md and docs/benchmarks.md.
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


def main() -> int:
    chosen = sys.argv[1:] or list(SCRIPTS)
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        claims = Path(folder) / "claims.jsonl"
        claims.touch()
        for name in chosen:
            print(f"== {name}", flush=True)
            script = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py")]
            status |= subprocess.run(script, env={**os.environ, "ATTNLAW_CLAIMS": str(claims)}).returncode
        rows = [json.loads(line) for line in claims.read_text().splitlines()]
    lines = [
        f"| {row['task']} | {row['ours']} | {row['peer']} | **{number(row['measured'])}** | "
        f"{'at least' if row['least'] else 'at most'} {number(row['goal'])}"
        f"{'' if row['holds'] else ', MISSED'} |"
        for row in rows
    ]
    text = f"{machine()}\n\n{HEAD}" + "\n".join(lines) + "\n"
    print(text)
    if set(chosen) == set(SCRIPTS):
        write_between(ROOT / "docs" / "benchmarks.md", text)
        compared = [line for row, line in zip(rows, lines, strict=True) if row["peer"] != ALONE]
        write_between(ROOT / "README.md", HEAD + "\n".join(compared) + "\n")
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
