"""What the terminal is told to be changes how results look, never what they say."""

import json
import os
import subprocess
import sys

import pytest

from attnlaw.render.terminal.console import print_json

WIDTH = """
from attnlaw import command
command.prepare_streams()
from attnlaw.render.terminal.console import output
print(output.width)
"""


def test_json_is_ascii_and_keeps_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    """In Latin-1 its bytes would be no UTF-8, and in ASCII a name would be another one."""
    print_json({"model": "modèle λ 模型"})
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert json.loads(shown) == {"model": "modèle λ 模型"}


@pytest.mark.parametrize(("columns", "taken"), [("0", 80), ("43", 43)])
def test_a_screen_of_no_width_counts_as_not_told(columns: str, taken: int) -> None:
    environment = os.environ | {"COLUMNS": columns}
    shown = subprocess.run([sys.executable, "-c", WIDTH], capture_output=True, check=True, env=environment)
    assert int(shown.stdout) == taken
