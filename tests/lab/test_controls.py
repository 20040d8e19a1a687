"""Controls are read off declarations: a slider's ends, its steps, its start; a later verb has them, too."""

import math
from itertools import pairwise

import pytest
from house.coin import Coin

from attnlaw.core.settings import setting_fields
from attnlaw.lab.controls import build_controls, slider_steps
from attnlaw.lab.page_model import PageModel, idle_settings, page_names, settings_from_controls
from attnlaw.verbs import VERBS, find_verb
from attnlaw.verbs.learn import LearnSettings
from attnlaw.verbs.limit import LimitSettings


@pytest.mark.parametrize("name", VERBS)
def test_every_step_of_every_slider_is_a_value_that_the_setting_takes(name):
    known = setting_fields(find_verb(name).settings)
    made = build_controls(find_verb(name).settings)
    assert {control.name for control in made} == {
        key for key, of in known.items() if not of.rule.machine_only
    }
    for control in made:
        if control.kind == "slider":
            assert list(control.steps) == sorted(set(control.steps))
            assert len(control.steps) > 1
            assert control.value in control.steps
            for step in control.steps:
                assert known[control.name].validate(step) == step


def test_the_toy_verb_has_its_controls():
    by_name = {control.name: control for control in build_controls(Coin)}
    assert {name: control.kind for name, control in by_name.items()} == {
        "bias": "slider",
        "tosses": "slider",
        "metal": "choice",
        "wear": "slider",
    }
    assert (by_name["bias"].steps[0], by_name["bias"].steps[-1], by_name["bias"].value) == (0.01, 1.0, 0.5)
    assert by_name["bias"].label == "bias (p)"
    assert by_name["metal"].options == ("gold", "paper")
    assert set(by_name["tosses"].steps) >= {10, 100, 1000}
    assert idle_settings(Coin, {"metal": "paper", "wear": 0.2}) == {"wear"}
    assert settings_from_controls(Coin, {"metal": "paper", "wear": 0.2, "bias": 0.5}) == {"metal": "paper"}


def test_a_wide_span_is_even_in_the_logarithm():
    steps = slider_steps(setting_fields(LearnSettings)["alpha"])
    ratios = [high / low for low, high in pairwise(steps)]
    assert max(ratios) / min(ratios) < 1.05  # steps have three digits
    even = slider_steps(setting_fields(LearnSettings)["noise"])
    assert {round(high - low, 9) for low, high in pairwise(even)} == {0.02}


def test_what_takes_anothers_place_makes_it_idle():
    values = {control.name: control.value for control in build_controls(LearnSettings)} | {
        "target_exponent": None,
        "target_spike": None,
    }
    assert {"beta", "pairs", "target_dimension"} <= idle_settings(LearnSettings, values)
    assert "target_rank" not in idle_settings(LearnSettings, values)
    power = values | {"target_exponent": 1.2}
    assert "target_rank" in idle_settings(LearnSettings, power)
    assert "target_dimension" not in idle_settings(LearnSettings, power)
    assert settings_from_controls(LearnSettings, power | {"target_rank": 0.3})["target_exponent"] == 1.2
    assert "target_rank" not in settings_from_controls(LearnSettings, power | {"target_rank": 0.3})


def test_a_width_stands_beside_its_limit():
    assert settings_from_controls(LimitSettings, {"width": 64, "heads": 2}) == {"width": [64, math.inf]}


def test_pages_without_a_path_are_those_of_theory():
    assert {"learn", "limit", "dynamics"} <= set(page_names())
    assert not {"audit", "init", "lens"} & set(page_names())
    assert PageModel.of("init", "config.json").fixed == {"model": "config.json"}
