"""Laws at the end of what exists, through the command: no warning, no traceback."""

from __future__ import annotations

import json

import pytest
from command.in_process import runner

from attnlaw.base.errors import InputError
from attnlaw.command import limit

run = runner(limit.command)


@pytest.mark.filterwarnings("error")
def test_a_law_of_atoms_is_shown_without_a_warning():
    """One ReLU token of width 1 is zero in half of the draws, and in all draws of some batch."""
    arguments = ("--tokens", "1", "--activation", "relu", "--width", "1", "--draws", "40")
    (row,) = json.loads(run(*arguments, "--json").stdout)["rows"]
    assert row["kl_to_limit"] is None
    assert row["w1_to_limit"]["value"] > 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("width", f"1{'0' * 400}"),
        ("depth", f"1{'0' * 400}"),
        ("draws", f"1{'0' * 400}"),
        ("mask", f"band:{'9' * 5000}"),
    ],
)
def test_a_number_of_hundreds_of_digits_is_refused_in_a_line(option, value):
    result = run(f"--{option}", value, status=1)
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(option)
    assert "\n" not in str(result.exception)
