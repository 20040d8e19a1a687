"""Every number that 0.1.0 gave is given still, in every bit, unless names.py says why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from frozen.commands import COMMANDS
from frozen.compare import OTHER_MACHINE

COMPARE = Path(__file__).with_name("compare.py")


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_numbers_are_those_of_the_first_version(name):
    done = subprocess.run([sys.executable, COMPARE, name], capture_output=True, text=True, check=False)
    if "left out:" in done.stdout or OTHER_MACHINE in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
