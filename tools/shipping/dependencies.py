"""What the core installs: the size of every dependency, and how long its installation takes."""

from __future__ import annotations

import subprocess
import tempfile
from importlib.metadata import Distribution, distributions
from pathlib import Path

from environment import PIP, ROOT, Environment, children_seconds, size

HEAD = ("| package | version | MB | MB compiled | CPU s | needed by |", "|---|---|---|---|---|---|")
LEAST = 1.0  # megabytes of a package that has a line of its own


def dependency_table(environment: Environment, file: str) -> list[str]:
    """Return a table of the packages that `file` needs, the largest first.

    "MB" are the files of a wheel. "MB compiled" includes the bytecode that pip writes by default. The seconds
    are those of `pip install` from a local wheel, without the start of pip and without the download.
    """
    installed = list(distributions(path=[str(environment.packages)]))
    needing = needing_packages(installed)
    lines, small, total = [], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
    with tempfile.TemporaryDirectory(prefix="wheels-") as folder:
        python = str(environment.bin / "python")
        options = ["--quiet", "--dest", folder, "--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*PIP, "--python", python, "download", *options, file], check=True)
        start = cpu_seconds([*PIP, "--python", python, "--version"])
        for wheel in sorted(Path(folder).glob("*.whl")):
            target = Path(folder) / "installed" / wheel.name
            command = [*PIP, "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
            used = cpu_seconds([*command, "--target", str(target), str(wheel)]) - start
            compiled = sum(path.stat().st_size for path in target.rglob("*.pyc")) / 1e6
            name, version, *_ = wheel.name.split("-")
            numbers = [size(target) - compiled, size(target), max(0.0, used)]
            total = [old + new for old, new in zip(total, numbers, strict=True)]
            if numbers[0] < LEAST:
                small = [old + new for old, new in zip(small, numbers, strict=True)]
            else:
                by = ", ".join(sorted(needing.get(normal(name), ())))
                lines.append((numbers, f"{name} | {version}", by))
    lines.sort(key=lambda line: -line[0][0])
    more = len(installed) - len(lines)
    rows = [*lines, (small, f"{more} smaller ones | ", ""), (total, "together | ", "")]
    return [
        *HEAD,
        *(f"| {name} | {mb:.1f} | {full:.1f} | {used:.1f} | {by} |" for (mb, full, used), name, by in rows),
    ]


def needing_packages(installed: list[Distribution]) -> dict[str, set[str]]:
    """Return the names of the packages that need a package directly, by its name."""
    needing: dict[str, set[str]] = {}
    for package in installed:
        for line in package.requires or ():
            if "extra ==" not in line:
                name = line.split(";")[0].split("[")[0]
                for sign in " <>=!~(":
                    name = name.split(sign)[0]
                needing.setdefault(normal(name), set()).add(package.name)
    return needing


def normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def cpu_seconds(command: list[str]) -> float:
    before = children_seconds()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return children_seconds() - before
