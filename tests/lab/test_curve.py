"""The curve of the error on the page of learn: its points are those of the theory, and are computed once."""

import json

import pytest

import attnlaw
from attnlaw.lab import curve
from attnlaw.lab.curve import CURVES, curve_chart, curve_points, slider_ends
from attnlaw.lab.page_model import PageModel

SPEC = CURVES["learn"]


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    monkeypatch.setattr(curve, "_points", {})


def state_of(**values):
    return PageModel.of("learn").state(values)


def test_the_points_are_those_of_the_theory_over_the_whole_slider():
    state = state_of(noise=0.5, student="direct", alpha=0.3)
    points = curve_points(SPEC, state)
    low, high = slider_ends(SPEC, state)
    assert (min(points), max(points)) == (low, high)
    assert len(points) >= 2**5 + 1
    errors = attnlaw.learn(noise=0.5, student="direct", alpha=[low, high])
    assert points[low] == pytest.approx(errors[0].estimation_error.value, rel=1e-9)
    assert points[high] == pytest.approx(errors[1].estimation_error.value, rel=1e-9)
    falls = [points[x] for x in sorted(points)]
    assert falls == sorted(falls, reverse=True)


def test_moving_the_samples_computes_nothing(monkeypatch):
    curve_points(SPEC, state_of(student="direct", alpha=0.3))
    monkeypatch.setattr(curve, "_value_at", lambda *_: pytest.fail("computed again"))
    assert curve_points(SPEC, state_of(student="direct", alpha=0.7, thresholds=True))


def test_a_slow_theory_gets_its_points_little_by_little(monkeypatch):
    monkeypatch.setattr(curve, "BUDGET", 0.0)
    state = state_of(student="direct")
    assert len(curve_points(SPEC, state)) == 3
    monkeypatch.setattr(curve, "BUDGET", 60.0)
    assert len(curve_points(SPEC, state)) == 2**6 + 1


def test_the_current_value_is_marked():
    chart = curve_chart(SPEC, state_of(student="direct", alpha=0.3), 0.25)
    spec = chart.to_dict()
    assert spec["title"] == "now: α = 0.3, E = 0.25"
    marks = {layer["mark"]["type"]: layer for layer in spec["layer"]}
    assert set(marks) == {"line", "rule", "point"}
    assert json.loads(marks["point"]["data"]["values"]) == [{"x": 0.3, "y": 0.25}]
    assert {"line"} == {
        layer["mark"]["type"] for layer in curve_chart(SPEC, state_of(), None).to_dict()["layer"]
    }
