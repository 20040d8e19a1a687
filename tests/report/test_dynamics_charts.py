"""Learning curves of `dynamics`: how lines are named, and what is done where they are many."""

from __future__ import annotations

from typing import Any

from report.charts_of import named, result_of, values_of

from attnlaw.render.charts.figure import Figure
from attnlaw.verbs.dynamics import VERB

PLAIN = {
    "student": "factorized",
    "attention": "tied",
    "tokens": 1,
    "output": "linear",
    "width": 1.0,
    "decay": 0.0,
}


def curves(*cases: dict[str, Any]) -> dict[str, Figure]:
    rows = [PLAIN | case for case in cases]
    times = [
        {"case": i, "time": time, "alignment": time, "prediction_error": 1 - time}
        for i in range(len(rows))
        for time in (0.1, 0.5)
    ]
    return named(result_of(VERB, rows, {"trajectory": times}))


def lines(figure: Figure) -> set[str]:
    spec = figure.draw().to_dict()
    return {row["series"] for rows in values_of(spec) for row in rows}


def test_students_are_named_though_one_has_no_width() -> None:
    charts = curves({}, {"student": "direct", "width": None}, {"attention": "untied"})
    assert lines(charts["learning"]) == {"tied, factorized", "tied, direct (ridge)", "untied, factorized"}


def test_more_lines_than_a_figure_takes_are_parted() -> None:
    polynomials = [{"output": "hermite2"}, {"output": "hermite3"}]
    pairs = [
        {"tokens": 2},
        {"tokens": 2, "width": 0.5, "decay": 2.0},
        {"tokens": 2, "output": "softmax"},
        {"tokens": 2, "output": "softmax", "width": 0.5, "decay": 0.05},
    ]
    assert list(curves({}, *polynomials, *pairs[:-1])) == ["learning"]  # six
    charts = curves({}, *polynomials, *pairs)
    assert [figure.title for figure in charts.values()] == [
        f"How attention learns: tokens {n}" for n in (1, 2)
    ]
    assert len(lines(charts["learning_1"])) == 3
    assert lines(charts["learning_2"]) == {
        "plain scores, width 1",
        "plain scores, width 0.5, decay 2",
        "a softmax of each row, width 1",
        "a softmax of each row, width 0.5, decay 0.05",
    }


def test_many_values_of_one_setting_are_left_to_the_table() -> None:
    assert "learning" not in curves(*({"width": 0.1 * i} for i in range(1, 8)))
