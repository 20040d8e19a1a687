"""Numbers that are known: closed forms, and values measured on networks and by another program."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from theory.init.two_samples import p_values

from attnlaw.theory.init import logits as head_module
from attnlaw.theory.init.architecture import KEPT, Architecture, at_width
from attnlaw.theory.init.chain import Chain, hidden_gram, run_layers, unit_kernel
from attnlaw.theory.init.law import initial_law
from attnlaw.theory.init.limit_chain import LimitChain
from attnlaw.theory.init.logits import logits_of
from attnlaw.theory.init.tokens import Tokens, random_tokens

GPT2 = {"model_type": "gpt2"}
SIGMAS = 4.5  # a test of one value fails by chance once in 150,000 times
SMALL_GPT2 = {**GPT2, "n_embd": 32, "n_layer": 4, "n_head": 4, "initializer_range": 0.2, "vocab_size": 40}
SMALL_LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "initializer_range": 0.2,
    "vocab_size": 40,
}


def close(value: float, error: float, expected: float, its_error: float = 0.0) -> None:
    assert abs(value - expected) < SIGMAS * math.hypot(error, its_error), (value, expected)


@pytest.mark.parametrize(("values", "expected"), [(SMALL_GPT2, 2.339603), (SMALL_LLAMA, 14.378663)])
def test_the_first_token_of_a_causal_model_in_the_mean(values: dict[str, Any], expected: float) -> None:
    """q_0 + L (g_V^2 H d std_O^2 + F std_down^2 K(g_up^2)) without epsilon."""
    model = replace(Architecture.from_config(values), epsilon=0.0)
    std, unit_gram = model.deviations, np.ones((1, 1))
    start = std.embedding**2 * (2 if model.positions else 1)
    attention = model.width * std.value**2 * model.heads * model.head_width * std.residual**2
    mlp = model.hidden * std.residual**2 * float(unit_kernel(model, unit_gram)[0, 0])
    assert start + model.depth * (attention + mlp) == pytest.approx(expected, abs=1e-6)
    state = Chain(model, Tokens((5, 9)), 3000, np.random.default_rng(1))
    squares = list(run_layers(state))[-1].gram[:, 0, 0]
    close(squares.mean(), squares.std() / math.sqrt(len(squares)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("values", [SMALL_GPT2, SMALL_LLAMA])
def test_second_moments_of_scores_and_logits(values: dict[str, Any]) -> None:
    """E p_ij^2 = (N std_Q std_K)^2 d score_scale^2 and E logit^2 = N std^2 without epsilon."""
    model = replace(Architecture.from_config(values), epsilon=0.0, norm="rms", tied=False)
    n, std = model.width, model.deviations
    state = Chain(model, Tokens((5, 9, 3)), 3000, np.random.default_rng(2))
    first = list(run_layers(state))[1]
    expected = (n * std.query * std.key) ** 2 * model.head_width * model.score_scales[0] ** 2
    squares = (first.scores[:, 0, 1, 0]) ** 2
    close(squares.mean(), squares.std() / math.sqrt(len(squares)), expected)
    assert logits_of(state).deviation() == pytest.approx(math.sqrt(n) * std.head, rel=1e-12)


# Mean cosine of 8 different tokens of GPT-2 (768) after layers 1, 6 and 12, with standard errors.
COSINES: list[tuple[dict[str, Any], tuple[float, ...], tuple[float, ...]]] = [
    ({}, (0.3732, 0.6381, 0.7062), (0.0015, 0.0015, 0.0014)),
    ({"width": math.inf}, (0.37421, 0.63764, 0.70510), (0.00013, 0.00012, 0.00011)),
    ({"width": math.inf, "keep": "head-width"}, (0.37433, 0.63779, 0.70523), (0.00011, 0.0001, 0.0001)),
    ({"width": math.inf, "scaling": "1/d"}, (0.38356, 0.64506, 0.71123), (5e-6, 5e-6, 5e-6)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "expected", "errors"), COSINES)
def test_cosines_of_gpt2(
    regime: dict[str, Any], expected: tuple[float, ...], errors: tuple[float, ...]
) -> None:
    model = Architecture.from_config(GPT2)
    law = initial_law(model, random_tokens(model, 8, 0, 0), draws=60, seed=3, **regime)
    for layer, value, error in zip((1, 6, 12), expected, errors, strict=True):
        cosine = law.layers[layer].cosine
        assert cosine is not None
        close(cosine.value, cosine.error or 0.0, value, error)
    if not regime:
        log = [2 * math.log(rms) for rms in (law.layers[12].rms.low, law.layers[12].rms.value)]
        close(log[1], 0.0403 / math.sqrt(60), -2.293, 0.002)
        assert log[0] == pytest.approx(-2.293 - 1.645 * 0.0403, abs=0.03)


@pytest.mark.slow
def test_loss_of_different_ids() -> None:
    """E loss = ln V + Var(logit) / 2 where the target is not among what a causal token has seen."""
    model = Architecture.from_config(GPT2)
    law = initial_law(model, random_tokens(model, 10, 0, 0), draws=80, seed=1)
    assert law.loss is not None
    close(law.loss.value, law.loss.error or 0.0, law.uniform_loss + law.logit_sd.value**2 / 2)
    close(law.logit_sd.value**2, 0.0, 0.30730, 0.00011)
    # Published to three digits, without epsilon: 1e-5 under a mean square of 0.1, of half a variance of 0.3.
    assert law.uniform_loss + law.logit_sd.value**2 / 2 == pytest.approx(10.979, abs=5e-4 + 2e-5)


@pytest.mark.slow
def test_a_normal_sum_over_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {**SMALL_GPT2, "vocab_size": 6000, "initializer_range": 0.15}
    for cap in (None, 2.0):
        model = replace(Architecture.from_config(values), logit_cap=cap)
        sums = {}
        for most in (10_000, 100):
            monkeypatch.setattr(head_module, "MOST_DRAWN", most)
            state = Chain(model, Tokens((5, 9, 3)), 200, np.random.default_rng(most))
            list(run_layers(state))
            logits = logits_of(state)
            log_sums = logits.log_sums(state.rng)
            sums[most] = {"first": log_sums[:, 0], "difference": log_sums[:, 1] - log_sums[:, 2]}
        assert min(p_values(sums[100], sums[10_000]).values()) > 1e-3


@pytest.mark.slow
def test_rotary_scores_of_the_limit_have_their_covariance() -> None:
    """Cov(p_ij, p_kl) = g^4 Sigma_ik Sigma_jl mean_f cos(theta_f ((j - i) - (l - k))), arXiv 2506.00846's."""
    model = Architecture.from_config({**SMALL_LLAMA, "rope_theta": 10.0})
    state = LimitChain(model, Tokens((5, 9, 3)), 20_000, np.random.default_rng(4), KEPT["heads"])
    t = np.linalg.cholesky(np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.4], [0.2, 0.4, 1.0]]))
    sigma = t @ t.T
    p = state._gaussian_scores(np.broadcast_to(t, (20_000, 3, 3)))[:, 0]
    gain = model.width * model.deviations.query**2
    for i, j, k, l in ((0, 1, 0, 1), (0, 1, 1, 0), (0, 2, 1, 2), (2, 0, 1, 2), (1, 1, 2, 2)):
        turn = np.cos(np.array(model.frequencies) * ((j - i) - (l - k))).mean()
        products = p[:, i, j] * p[:, k, l]
        error = products.std() / math.sqrt(len(products))
        close(products.mean(), error, gain**2 * sigma[i, k] * sigma[j, l] * turn)


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, 32, 128])
def test_rotary_scores_have_that_covariance_at_every_width(width: int) -> None:
    """Exact at finite widths: in a wider head each frequency has the share of planes that it had."""
    model = at_width(Architecture.from_config({**SMALL_LLAMA, "rope_theta": 10.0}), width, "heads")
    state = Chain(model, Tokens((5, 9, 3)), 20_000, np.random.default_rng(4))
    t = np.linalg.cholesky(np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.4], [0.2, 0.4, 1.0]]))
    sigma = t @ t.T
    p = state._rotary_scores(np.broadcast_to(t, (20_000, 3, 3)))[:, 0] * model.score_scales[0]
    gain = model.width * model.deviations.query**2
    planes = 10.0 ** (-np.arange(0, 8, 2) / 8)
    kept = planes if width > 16 else planes[::2]  # two planes of four numbers
    for i, j, k, l in ((0, 1, 0, 1), (0, 1, 1, 0), (0, 2, 1, 2), (2, 0, 1, 2), (1, 1, 2, 2)):
        turn = np.cos(kept * ((j - i) - (l - k))).mean()
        products = p[:, i, j] * p[:, k, l]
        error = products.std() / math.sqrt(len(products))
        close(products.mean(), error, gain**2 * sigma[i, k] * sigma[j, l] * turn)


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["heads", "head-width"])
def test_wide_models_have_the_law_of_the_limit(keep: str) -> None:
    model = replace(Architecture.from_config(SMALL_LLAMA), depth=2, score_scales=(1 / math.sqrt(8),) * 2)
    tokens = Tokens((5, 9, 3, 7))
    wide = initial_law(model, tokens, draws=80, width=4096, keep=keep, seed=5)
    limit = initial_law(model, tokens, draws=800, width=math.inf, keep=keep, seed=6)
    for layer, other in zip(wide.layers, limit.layers, strict=True):
        for name in ("cosine", "rms"):
            a, b = getattr(layer, name), getattr(other, name)
            # The mean differs from the limit's by a few parts in N.
            assert abs(a.value - b.value) < SIGMAS * math.hypot(a.error, b.error or 0.0) + 8 / 4096 * b.value


@pytest.mark.slow
def test_the_spread_over_initialisations_falls_with_the_width() -> None:
    """N (Var - Var_inf) of the mean cosine is 0.53 to 0.66 for N from 32 to 1024."""
    values = {**GPT2, "n_embd": 64, "n_head": 2, "n_layer": 4, "initializer_range": math.sqrt(2.07 / 64)}
    model = Architecture.from_config({**values, "vocab_size": 40})
    std = replace(model.deviations, embedding=0.18, position=0.18)
    model, tokens, draws = replace(model, deviations=std), Tokens((1, 2, 3, 4, 5, 6)), 1500
    spread = {}
    for width in (64, math.inf):
        law = initial_law(model, tokens, draws=draws, width=width, seed=8)
        assert law.layers[-1].cosine is not None
        spread[width] = law.layers[-1].cosine.spread ** 2
    error = 64 * math.sqrt(2 / draws) * math.hypot(*spread.values())
    excess = 64 * (spread[64] - spread[math.inf])
    assert 0.53 - SIGMAS * error < excess < 0.66 + SIGMAS * error


def test_matched_units_have_the_mean_and_covariance_of_all() -> None:
    model = replace(Architecture.from_config(SMALL_LLAMA), hidden=300)
    t = np.broadcast_to(np.linalg.cholesky(np.array([[1.0, 0.5], [0.5, 1.0]])), (6000, 2, 2))
    rng = np.random.default_rng(9)
    exact, matched = (hidden_gram(model, t, units, rng) for units in (0, 60))
    for a, b in ((exact[:, 0, 0], matched[:, 0, 0]), (exact[:, 0, 1], matched[:, 0, 1])):
        close(a.mean(), a.std() / math.sqrt(6000), b.mean(), b.std() / math.sqrt(6000))
        centred = [(entries - entries.mean()) ** 2 for entries in (a, b)]
        errors = [squares.std() / math.sqrt(6000) for squares in centred]
        close(centred[0].mean(), errors[0], centred[1].mean(), errors[1])


def test_another_width_keeps_gains() -> None:
    model = Architecture.from_config(SMALL_GPT2)
    for keep, heads, head_width in (("heads", 4, 32), ("head-width", 16, 8)):
        wide = at_width(model, 128, keep)
        assert (wide.heads, wide.head_width, wide.hidden) == (heads, head_width, 512)
        assert wide.width * wide.deviations.query**2 == pytest.approx(model.width * model.deviations.query**2)
        scale = wide.score_scales[0] * math.sqrt(wide.head_width)
        assert scale == pytest.approx(model.score_scales[0] * math.sqrt(model.head_width))


LLAMA = {"model_type": "llama"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("regime", "cosine", "entropy"),
    [
        ({}, (0.240, 0.002), (0.855, 0.002)),
        ({"width": math.inf}, (0.2415, 0.0009), (0.855, 0.002)),
        ({"width": math.inf, "keep": "head-width"}, (0.2384, 0.0005), (0.8562, 0.001)),
        ({"width": math.inf, "scaling": "1/d"}, (0.48464, 5e-6), (1.32558, 5e-6)),
    ],
)
def test_llama_7b(regime: dict[str, Any], cosine: tuple[float, float], entropy: tuple[float, float]) -> None:
    """The first 8 layers at 8 tokens; the entropy is a mean over 8 tokens, of which the first has none."""
    model = Architecture.from_config(LLAMA, depth=8)
    law = initial_law(model, random_tokens(model, 8, 0, 0), draws=12, seed=1, **regime)
    assert law.cosine is not None
    close(law.cosine.value, law.cosine.error or 0.0, *cosine)
    uniform = sum(math.log(i) for i in range(1, 9)) / 8
    assert law.entropy is not None
    close(uniform * law.entropy.value, uniform * (law.entropy.error or 0.0), *entropy)
