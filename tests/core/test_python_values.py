"""What Python users type: arrays, ranges and spans for sweeps, several models, and layers in every form."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from house.coin import VERB as COIN

import attnlaw
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import BadSetting
from attnlaw.core.verb import Verb
from attnlaw.verbs import find_verb

TINY = str(Path(__file__).parents[2] / "examples" / "tiny-decoder")
LAYERS = 4


def values(verb: Verb[Any, Any], name: str, value: Any) -> list[Any]:
    return [getattr(case, name) for case in verb.cases({name: value})]


@pytest.mark.parametrize(
    "span",
    [
        np.linspace(0.1, 0.5, 3),
        np.linspace(0.1, 0.5, 3, dtype=np.float64).reshape(3),
        pl.Series([0.1, 0.3, 0.5]),
        (value for value in (0.1, 0.3, 0.5)),
        "0.1:0.5:3",
        ["0.1:0.5:3"],
        "0.1, 0.3, 0.5",
        [np.float64(0.1), "0.3", 0.5],
    ],
)
def test_every_form_of_a_sweep(span: Any) -> None:
    found = values(COIN, "bias", span)
    assert found == pytest.approx([0.1, 0.3, 0.5], rel=1e-15)
    assert {type(value) for value in found} == {float}


def test_whole_numbers_and_names() -> None:
    assert values(find_verb("limit"), "width", range(4, 13, 4)) == [4, 8, 12]
    assert values(find_verb("limit"), "width", np.arange(4, 13, 4)) == [4, 8, 12]
    assert values(find_verb("limit"), "width", "16,inf") == [16, float("inf")]
    assert values(COIN, "metal", np.array(["gold", "paper"])) == ["gold", "paper"]
    assert values(COIN, "bias", np.array(0.25)) == [0.25]  # without an axis: one value


def test_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    assert values(COIN, "bias", torch.tensor([0.25, 0.5])) == [0.25, 0.5]
    assert values(COIN, "bias", torch.tensor(0.25)) == [0.25]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.full((2, 2), 0.5), r"bias: found array\(\[0.5, 0.5\]\), expected a number"),
        (np.array([]), "bias found an empty list"),
        ("1:0:3", "bias: found '1:0:3', FROM must be smaller than TO"),
        ("many", "bias: found 'many', expected a number"),
        ({"low": 0.1}, "bias: found {'low': 0.1}, expected a number"),
        (itertools.count(), "bias expected at most 100000 values"),
    ],
)
def test_a_bad_sweep_is_one_line(value: Any, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        COIN.cases({"bias": value})


def test_a_setting_with_one_value_stays_one_value() -> None:
    with pytest.raises(BadSetting, match="tosses: found range"):
        COIN.cases({"tosses": range(1, 3)})
    (case,) = find_verb("init").cases({"model": TINY, "ids": np.arange(3)})
    assert case.ids == (0, 1, 2)


def test_a_sweep_over_an_array_gives_rows() -> None:
    swept = attnlaw.learn(alpha=np.array([0.1, 0.2]))
    assert swept.rows["alpha"].to_list() == [0.1, 0.2]
    assert swept.rows.equals(attnlaw.learn(alpha="0.1:0.2:2").rows)


def test_several_models() -> None:
    audits = attnlaw.audit(TINY, f"{TINY}/model.safetensors", only="ffn", layers=0)
    assert audits.rows["model"].to_list() == [TINY, f"{TINY}/model.safetensors"]
    assert len(attnlaw.diff(TINY, TINY, [TINY], only="vo", layers=0)) == 2
    with pytest.raises(TypeError, match="audit got two values for model"):
        attnlaw.audit(TINY, model=TINY)
    with pytest.raises(TypeError, match="learn takes 0 positional arguments, found 1"):
        attnlaw.learn(0.1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (slice(0, 2), (0, 1)),
        (slice(None, None, 2), (0, 2)),
        (slice(-1, None), (3,)),
        (range(1, 3), (1, 2)),
        ([0, 1], (0, 1)),
        (np.array([0, 3]), (0, 3)),
        ([2, -1, 3], (2, 3)),
        ("0,2", (0, 2)),
        ("1:3", (1, 2)),
        (np.int64(3), (3,)),
        (-1, (3,)),
        ([2], (2,)),
    ],
)
def test_every_form_of_layers(layers: Any, expected: Iterable[int]) -> None:
    settings = ModelSettings(model="m", layers=layers)
    assert tuple(settings.chosen_layers(LAYERS) or ()) == expected
    assert hash(settings) == hash(ModelSettings(model="m", layers=layers))  # workers keep models by settings


@pytest.mark.parametrize(
    "layers", ["0:4:0", "a:b", "1,", slice("a"), [0.5], [True], "0:1:2:3", np.zeros((2, 2))]
)
def test_bad_layers_are_one_line(layers: Any) -> None:
    with pytest.raises(BadSetting, match="layers"):
        ModelSettings(model="m", layers=layers)


def test_a_layer_that_does_not_exist() -> None:
    with pytest.raises(BadSetting, match="there is no layer 4 among 4 layers"):
        ModelSettings(model="m", layers=[0, 4]).chosen_layers(LAYERS)


def test_layers_of_an_audit() -> None:
    listed, sliced = (attnlaw.audit(TINY, layers=layers, only="ffn") for layers in ([0, 1], slice(2)))
    assert listed.matrices["layer"].unique().to_list() == [0, 1]
    assert listed.matrices.equals(sliced.matrices)
    assert listed.rows["layers"].to_list() == ["0,1"]
