"""Controls are read off declarations: a slider's ends, its steps, its start; a later verb has them, too."""

import math
from itertools import pairwise

import pytest
from house.coin import Coin

from attnlaw.base.settings import declared
from attnlaw.lab.controls import controls, slider_steps
from attnlaw.lab.desk import Desk, pages
from attnlaw.lab.states import idle, read
from attnlaw.verbs import VERBS, verb
from attnlaw.verbs.learn import Learn
from attnlaw.verbs.limit import Limit


@pytest.mark.parametrize("name", VERBS)
def test_every_step_of_every_slider_is_a_value_that_the_setting_takes(name):
    known = declared(verb(name).settings)
    made = controls(verb(name).settings)
    assert {one.name for one in made} == {one for one, of in known.items() if not of.rule.local}
    for one in made:
        if one.kind == "slider":
            assert list(one.steps) == sorted(set(one.steps))
            assert len(one.steps) > 1
            assert one.value in one.steps
            for step in one.steps:
                assert known[one.name].checked(step) == step


def test_the_toy_verb_has_its_controls():
    found = {one.name: one for one in controls(Coin)}
    assert {name: one.kind for name, one in found.items()} == {
        "bias": "slider",
        "tosses": "slider",
        "metal": "choice",
        "wear": "slider",
    }
    assert (found["bias"].steps[0], found["bias"].steps[-1], found["bias"].value) == (0.01, 1.0, 0.5)
    assert found["bias"].label == "bias p"
    assert found["metal"].options == ("gold", "paper")
    assert set(found["tosses"].steps) >= {10, 100, 1000}
    assert idle(Coin, {"metal": "paper", "wear": 0.2}) == {"wear"}
    assert read(Coin, {"metal": "paper", "wear": 0.2, "bias": 0.5}) == {"metal": "paper"}


def test_a_wide_span_is_even_in_the_logarithm():
    steps = slider_steps(declared(Learn)["alpha"])
    ratios = [high / low for low, high in pairwise(steps)]
    assert max(ratios) / min(ratios) < 1.05  # steps have three digits
    even = slider_steps(declared(Learn)["noise"])
    assert {round(high - low, 9) for low, high in pairwise(even)} == {0.02}


def test_what_takes_anothers_place_makes_it_idle():
    values = {one.name: one.value for one in controls(Learn)} | {
        "target_exponent": None,
        "target_spike": None,
    }
    assert {"beta", "pairs", "target_dimension"} <= idle(Learn, values)
    assert "target_rank" not in idle(Learn, values)
    power = values | {"target_exponent": 1.2}
    assert "target_rank" in idle(Learn, power)
    assert "target_dimension" not in idle(Learn, power)
    assert read(Learn, power | {"target_rank": 0.3})["target_exponent"] == 1.2
    assert "target_rank" not in read(Learn, power | {"target_rank": 0.3})


def test_a_width_stands_beside_its_limit():
    assert read(Limit, {"width": 64, "heads": 2}) == {"width": [64, math.inf]}


def test_pages_without_a_path_are_those_of_theory():
    assert {"learn", "limit", "dynamics"} <= set(pages())
    assert not {"audit", "init", "lens"} & set(pages())
    assert Desk.of("init", "config.json").fixed == {"model": "config.json"}
