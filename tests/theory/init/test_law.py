"""The record of a law: measures, remarks, exponents, what is missing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from theory.init.shapes import SMALL

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.chain import LayerState
from attnlaw.theory.init.law import initial_law, measure_layer, remarks
from attnlaw.theory.init.tokens import Tokens, random_tokens

GPT2 = Architecture.from_config(SMALL["gpt2"])


def test_measures_by_hand() -> None:
    """Two heads of three causal tokens; padding is left out."""
    rng = np.random.default_rng(0)
    tokens = Tokens((1, 2, 3, 0), 1)
    x = rng.standard_normal((1, 4, 6))
    scores = rng.standard_normal((1, 2, 4, 4))
    allowed = tokens.allowed(causal=True)
    weights = np.exp(np.where(allowed, scores, -np.inf))
    weights /= weights.sum(axis=-1, keepdims=True)
    quantities = measure_layer(LayerState(x @ x.swapaxes(1, 2) / 6, scores, weights), tokens, allowed)
    shown = x[0, :3]
    assert quantities["rms"][0] == pytest.approx(math.sqrt((shown**2).mean()))
    unit = shown / np.linalg.norm(shown, axis=1, keepdims=True)
    pairs = [unit[i] @ unit[j] for i in range(3) for j in range(3) if i != j]
    assert quantities["cosine"][0] == pytest.approx(np.mean(pairs))
    shares = np.linalg.svd(unit, compute_uv=False) ** 2 / 3
    assert quantities["effective_rank"][0] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    rows = [w[: i + 1] for head in weights[0] for i, w in ((1, head[1]), (2, head[2]))]
    entropies = [-(row * np.log(row)).sum() for row in rows]
    assert quantities["entropy"][0] == pytest.approx(np.mean(entropies) / np.mean([math.log(2), math.log(3)]))
    spread = [np.var([head[i, j] for i in range(3) for j in range(i + 1)]) for head in scores[0]]
    assert quantities["score_sd"][0] == pytest.approx(math.sqrt(np.mean(spread)))


def test_equal_seeds_repeat_a_law_and_others_do_not() -> None:
    law, same, other = (initial_law(GPT2, Tokens((1, 2, 3)), 20, seed) for seed in (0, 0, 1))
    assert law.layers == same.layers
    assert law.layers != other.layers


def test_one_token_has_no_cosine_and_no_entropy() -> None:
    law = initial_law(GPT2, Tokens((1,)), 20)
    assert law.cosine is None
    assert law.entropy is None
    assert law.loss is None
    assert law.angle_exponent is None
    assert law.rms is not None


def test_logits_of_own_ids_have_no_limit_with_a_tied_head() -> None:
    tied = initial_law(GPT2, Tokens((1, 2, 3)), 20, width=math.inf)
    assert tied.loss is None
    assert tied.own_probability is None
    assert tied.own_cosine is not None
    untied = initial_law(replace(GPT2, tied=False), Tokens((1, 2, 3)), 20, width=math.inf)
    assert untied.loss is not None
    assert untied.own_cosine is None


def test_a_tied_head_favours_its_own_token() -> None:
    """Without layers that move it, a token's own id has the largest logit."""
    quiet = replace(GPT2.deviations, residual=1e-6, position=1e-6)
    law = initial_law(replace(GPT2, deviations=quiet), Tokens((1, 2, 3)), 50)
    assert law.own_cosine is not None
    # LayerNorm takes the mean off: the cosine is the share of an embedding that is left.
    assert law.own_cosine.value == pytest.approx(math.sqrt(1 - 1 / 24), abs=0.01)


def test_exponents_are_slopes() -> None:
    model = Architecture.from_config({**SMALL["bert"], "num_hidden_layers": 3})
    law = initial_law(model, Tokens((1, 2, 3)), 200)
    means = [math.log(1 - layer.cosine.value) for layer in law.layers[1:] if layer.cosine]
    slope = (means[2] - means[0]) / 2
    assert law.angle_exponent is not None
    assert law.angle_exponent.value == pytest.approx(slope, abs=0.1)


def test_limits_that_are_not_random_say_so() -> None:
    for regime in ({"keep": "head-width"}, {"scaling": "1/d"}):
        law = initial_law(GPT2, Tokens((1, 2, 3)), 20, width=math.inf, **regime)
        assert not law.random
        assert law.layers[-1].rms is not None
        assert law.layers[-1].rms.spread == 0
    assert initial_law(GPT2, Tokens((1, 2, 3)), 20, width=math.inf).random


def test_remarks() -> None:
    llama = Architecture.from_config({**SMALL["llama"], "initializer_range": 0.4})
    remark = initial_law(llama, Tokens((1, 2, 3, 4)), 100).remark
    assert remark is not None
    assert "of a uniform guess over V = 40 ids (ln V): output weights smaller by a factor of " in remark
    assert "Attention does not start uniform: scores have a standard deviation of " in remark
    law = initial_law(GPT2, Tokens((1, 2, 3)), 20)
    assert law.loss is not None
    quiet = replace(law, loss=Estimate(law.uniform_loss), layers=law.layers[:2])
    layer = replace(law.layers[1], cosine=replace(law.layers[1].cosine, value=0.995), score_sd=None)
    assert (
        remarks(replace(quiet, layers=(law.layers[0], layer)))
        == "Tokens become alike (rank collapse): their mean cosine is above 0.99 from layer 1 on"
    )


def test_matched_units_are_labelled() -> None:
    law = initial_law(GPT2, Tokens((1, 2, 3)), 20, units=8)
    assert law.outcome == Outcome.INEXACT
    assert law.remark is not None
    assert "Only the means and covariances of hidden units are exact (--units)" in law.remark
    assert initial_law(GPT2, Tokens((1, 2, 3)), 20).outcome == Outcome.DONE


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"tokens": Tokens(tuple(range(17)))},
            "tokens: found 17, expected at most 16, the number of positions of gpt2",
        ),
        ({"tokens": Tokens((40,))}, "ids: found 40, expected ids below the size of the vocabulary, 40"),
        ({"draws": 1}, "draws: found 1"),
        ({"keep": "both"}, "keep: found 'both', expected one of heads, head-width"),
    ],
)
def test_what_cannot_be_asked(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        initial_law(GPT2, **({"tokens": Tokens((1, 2))} | given))


def test_a_window_shorter_than_the_tokens_is_refused() -> None:
    model = Architecture.from_config({**SMALL["mistral"], "sliding_window": 4})
    assert initial_law(model, Tokens((1, 2, 3, 4)), 5).layers
    with pytest.raises(InputError, match="sliding window"):
        initial_law(model, Tokens((1, 2, 3, 4, 5)), 5)


def test_drawn_tokens_are_different_and_none_is_padding() -> None:
    model = Architecture.from_config(SMALL["bert"])
    tokens = random_tokens(model, 30, 3, seed=0)
    assert len(tokens.distinct) == 28
    assert tokens.ids[-3:] == (0, 0, 0)
    assert 0 not in tokens.ids[:27]
