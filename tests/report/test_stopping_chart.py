"""The map of early stopping: three times of a study and one soft threshold, with their numbers."""

from __future__ import annotations

from typing import Any

import pytest
from report.charts_of import layers, named

from attnlaw.core.progress import no_progress
from attnlaw.core.result import Result
from attnlaw.core.verb import grid
from attnlaw.theory.implicit_bias.early_stopping import flow_at_time
from attnlaw.verbs import find_verb

VERB = find_verb("early_stopping")


def figure(**axes: list[Any]) -> Any:
    """The map of a study over some axes, and its predictions."""
    cases = [VERB.settings(**values) for values in grid(axes)]
    result = Result.collect(VERB, zip(cases, VERB.run(cases, no_progress), strict=True))
    return named(result).get("map"), result.records


def test_three_times_and_a_soft_threshold_are_drawn() -> None:
    drawn, predictions = figure(rule=["flow", "soft"], threshold=[0.4, 0.5, 1.0, 1.5, 2.0])
    flows = {
        prediction.problem.threshold: prediction for prediction in predictions if prediction.time is not None
    }
    (_, identity), (_, lines) = layers(drawn)
    assert [(row["coefficient"], row["learned"]) for row in identity] == [(0, 0), (3, 3)]
    names = [f"stopped at time {flows[c].time:.3g} (c = {c:g})" for c in (0.5, 1.0, 2.0)]
    assert list(dict.fromkeys(row["series"] for row in lines)) == [*names, "soft threshold, c = 1"]
    for c, name in zip((0.5, 1.0, 2.0), names, strict=True):
        curve = {row["coefficient"]: row["learned"] for row in lines if row["series"] == name}
        assert curve[c] == pytest.approx(c / 2, rel=1e-9)  # half-way, by definition of the time
        unit = flows[c].tau / c
        assert curve[1.5] * unit == pytest.approx(
            float(flow_at_time(1.5 * unit, 1e-6, flows[c].time)), rel=1e-12
        )
    soft = {row["coefficient"]: row["learned"] for row in lines if row["series"].startswith("soft")}
    assert (soft[0.5], soft[2.5]) == (0.0, pytest.approx(1.5, rel=1e-12))


def test_other_settings_that_vary_leave_it_out() -> None:
    assert figure(threshold=[0.5, 1.0], samples=[500, 1000])[0] is None
