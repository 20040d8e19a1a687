"""What the terminal is told to be changes how results look, never what they say."""

import io
import json
import os
import subprocess
import sys

import pytest
from command.in_process import terminal
from rich.console import Console

from attnlaw.render.terminal.console import Column, print_json, print_table

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


def printed(width: int, *columns: Column, droppable: tuple[str, ...] = (), tight: bool = False) -> list[str]:
    screen = io.StringIO()
    print_table(terminal(width, file=screen), columns, droppable, tight)
    return [line.rstrip() for line in screen.getvalue().splitlines()]


NAMES = Column("name", ["[bold]a", "b"], is_text=True)
SIZES = Column("\nsize", ["10.5%", "7%"])
RANKS = Column("rank", ["1", "20"], name="ranks of all")


def test_a_table_is_printed_by_columns_and_its_cells_hold_no_markup() -> None:
    assert printed(40, NAMES, RANKS) == ["name     rank", "[bold]a     1", "b          20"]
    assert printed(40, NAMES, RANKS, tight=True)[0] == "name    rank"


def test_a_narrow_screen_leaves_out_columns_by_name_in_their_order() -> None:
    note = ["A wider screen", "also shows:", "ranks of all."]
    columns = (NAMES, SIZES, RANKS)
    shown = printed(15, *columns, droppable=("absent", "ranks of all", "size"))
    assert shown == ["", "name      size", "[bold]a  10.5%", "b           7%", *note]
    assert printed(9, *columns, droppable=("ranks of all", "size"))[:2] == ["name", "[bold]a"]


def test_a_log_has_all_columns() -> None:
    """A log of CI is 80 columns wide for rich, and what it does not show is lost."""
    screen = io.StringIO()
    print_table(Console(file=screen, width=15), (NAMES, SIZES, RANKS), ("ranks of all", "size"))
    lines = [line.rstrip() for line in screen.getvalue().splitlines()]
    assert lines == ["", "name      size  rank", "[bold]a  10.5%     1", "b           7%    20"]


def test_a_column_wraps_only_if_it_may() -> None:
    words = ["two words"]
    assert printed(12, Column("x", words, wraps=True, is_text=True), Column("y", ["12345"])) == [
        "x          y",
        "two    12345",
        "words",
    ]
    assert printed(6, Column("x", words, is_text=True)) == ["x", "two words"]
