"""What a command leaves unimported: it answers sooner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import scipy
from packaging.version import Version

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"
# Prints those of the modules named first that the command has imported.
CODE = """
import sys
from attnlaw.command.app import run
names, words = sys.argv[1].split(), sys.argv[2:]
try:
    run(words)
except SystemExit:
    pass
print("imported:", *[name for name in names if name in sys.modules])
"""
# SciPy 1.15 imports it with scipy.linalg, 1.17 does not.
SPARSE = "scipy.sparse" if Version(scipy.__version__) >= Version("1.17") else ""
ALWAYS_IDLE = "altair vl_convert torch transformers dask distributed pandas pyarrow matplotlib"


@pytest.mark.parametrize(
    ("words", "idle"),
    [
        (["--help"], "scipy.special scipy.linalg polars sqlite3 attnlaw.study attnlaw.report"),
        (["learn", "--alpha", "0.2"], "attnlaw.study attnlaw.report"),
        (["check", str(TINY)], "attnlaw.study"),
        (["audit", "--help"], "scipy.special scipy.linalg polars attnlaw.study"),
        (["audit", str(TINY)], f"scipy.optimize {SPARSE} scipy.stats scipy.fft attnlaw.report attnlaw.study"),
    ],
)
def test_what_is_not_used_is_not_imported(words: list[str], idle: str) -> None:
    command = [sys.executable, "-c", CODE, f"{ALWAYS_IDLE} {idle}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported:", done.stdout
