"""Find the interpreters of the Python versions that pyproject.toml names: on PATH, and those of pyenv."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def supported_versions(project: dict[str, Any]) -> list[str]:
    """Return the versions such as 3.11 of the classifiers in pyproject.toml."""
    return [match[1] for line in project["classifiers"] if (match := CLASSIFIER.match(line))]


def find_interpreters(versions: list[str]) -> dict[str, str]:
    """Return an interpreter of each version that is installed."""
    found = {}
    for version in versions:
        working = (path for path in candidates(version) if version_of(path) == version)
        if (path := next(working, None)) is not None:
            found[version] = path
    return found


def candidates(version: str) -> Iterator[str]:
    if (path := shutil.which(f"python{version}")) is not None:
        yield path
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    numbered = [folder for folder in root.glob(f"versions/{version}.*") if (folder / "bin/python").exists()]
    for folder in sorted(numbered, key=numbers_of, reverse=True):
        yield str(folder / "bin" / "python")


def numbers_of(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


def version_of(python: str) -> str:
    """Return the version of an interpreter, or "" if it does not start, such as a shim of pyenv."""
    done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
