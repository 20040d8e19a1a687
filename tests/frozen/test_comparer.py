"""The comparer finds what changed: a digit, a lost value, an added value, a digit on a page."""

from __future__ import annotations

import pytest
from frozen.commands import COMMANDS
from frozen.compare import compare, flatten
from frozen.record import read_record
from frozen.running import Run


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {name: Run(**run) for name, run in read_record()["runs"].items()}


@pytest.mark.parametrize("exact", [True, False])
def test_every_command_is_recorded_and_equals_itself(runs, exact):
    assert list(runs) == list(COMMANDS)
    for name, run in runs.items():
        values = flatten(run)
        result = compare(name, values, values, exact)
        assert result.passed
        assert result.equal == len(values)


def test_a_digit_a_lost_value_and_an_added_value_are_found(runs):
    before = flatten(runs["audit-out"])
    path = "tables/matrices.parquet/share/17"
    changed = compare("audit-out", before, before | {path: before[path] * (1 + 1e-9)})
    assert [line.split(":")[0] for line in changed.different] == [path]
    lost = {name: value for name, value in before.items() if name != path}
    assert [line.split(" = ")[0] for line in compare("audit-out", before, lost).missing] == [path]
    assert [line.split(" = ")[0] for line in compare("audit-out", lost, before).added] == [path]


def test_another_machine_may_differ_in_the_last_digits_only(runs):
    before = flatten(runs["audit-out"])
    path = "tables/matrices.parquet/share/17"
    for factor, passed in ((1 + 1e-9, True), (1 + 1e-3, False)):
        after = before | {path: before[path] * factor}
        assert compare("audit-out", before, after, exact=False).passed is passed
        assert not compare("audit-out", before, after).passed


def test_pages_and_figures_are_compared_by_their_contents(runs):
    before = flatten(runs["diff"])
    for path in ("texts/report.html", next(path for path in before if path.endswith(".svg"))):
        after = before | {path: before[path].replace("</", "<!-- --></", 1)}
        for exact in (True, False):
            assert not compare("diff", before, after, exact).passed
