"""`limit --score`: four score functions at widths 16 and 64, against layers whose weights are all drawn."""

from __future__ import annotations

import numpy as np
import pytest
from theory.limit.brute_force import brute_force

import attnlaw
from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.inputs import RandomInputs
from attnlaw.theory.limit.layer import SCORES, AttentionLayer, ScoreSettings
from attnlaw.verbs import find_verb

COORDINATES = 8
CHUNK = 250


def drawn_outputs(score: str, width: int, chunks: int) -> np.ndarray:
    """Return output coordinates of token 1, (draws, coordinates), of layers with 4 tokens and 2 heads."""
    layer = AttentionLayer(RandomInputs(4), heads=2, width=width, scores=ScoreSettings(score))
    samples = [brute_force(Depth(layer), CHUNK, 17 + chunk, COORDINATES) for chunk in range(chunks)]
    return np.concatenate([sample.outputs[:, 0] for sample in samples])


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Return the mean over draws with its standard error. Coordinates of a draw depend on each other."""
    by_draw = values.mean(axis=1)
    return float(by_draw.mean()), float(by_draw.std(ddof=1) / np.sqrt(by_draw.size))


def scores(score: str, width: int, chunks: int) -> list[float]:
    """Return z-scores of E |y|, E y^2 and four probabilities, between the command's law and brute force."""
    y = drawn_outputs(score, width, chunks)
    result = attnlaw.limit(score=score, width=width, draws=40_000)
    law = result.record.law
    deviation = law.variance().value ** 0.5
    pairs = [
        (law.variance().value, law.variance().error, *mean_and_error(y**2)),
    ]
    places = deviation * np.array([0.1, 0.4, 1.0, 2.0])
    table = law.distribution(places)
    errors = table.std(axis=0, ddof=1) / np.sqrt(len(table))
    for place, value, error in zip(places, table.mean(axis=0), errors, strict=True):
        pairs.append((2 * value - 1, 2 * error, *mean_and_error((np.abs(y) <= place).astype(float))))
    assert result.output_variance.value == law.variance().value
    return [(ours - other) / np.hypot(ours_error, error) for ours, ours_error, other, error in pairs]


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("score", list(SCORES))
def test_the_law_of_a_score_function_is_that_of_all_weights_drawn(score: str, width: int) -> None:
    assert np.abs(scores(score, width, chunks=16 if width == 16 else 5)).max() < 4


@pytest.mark.parametrize("score", list(SCORES))
def test_the_variance_of_the_limit_has_a_closed_form(score: str) -> None:
    """Independent tokens of length 1: E sum_j f(p_j)^2 over 4 tokens, p_j standard normal, by quadrature."""
    result = attnlaw.limit(score=score, width=float("inf"), draws=20_000)
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    expected = {
        "relu": 4 * 0.5,
        "linear": 4.0,
        "sigmoid": 4 * float(weights @ (1 / (1 + np.exp(-nodes))) ** 2),
        "softmax": 0.3918,  # by quadrature with four normals, to 2e-4
    }[score]
    assert abs(result.output_variance.value - expected) < 4 * result.output_variance.error + 2e-4


def test_relu_scores_have_a_divergence_although_some_outputs_are_zero() -> None:
    """With two tokens and one head every score is negative in a quarter of the draws of the limit."""
    near, limit = attnlaw.limit(score="relu", tokens=2, heads=1, width=[64, float("inf")], draws=4000)
    zero = float((limit.record.law.variances == 0).mean())
    assert abs(zero - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5
    assert 0 < near.kl_to_limit.value < 0.1


def test_a_study_and_the_lab_know_scores() -> None:
    cases = find_verb("limit").cases({"score": ["relu", "softmax"], "width": [16]})
    assert [case.score for case in cases] == ["relu", "softmax"]
