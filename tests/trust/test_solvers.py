"""Solvers, laws and limits at the edges of their parameters: right, or refused, or a status says so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attnlaw.analysis.fit.fit import FITTERS, fit_law
from attnlaw.core.errors import InputError
from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.factored import product_spectrum
from attnlaw.theory.laws.attention_matrix import AttentionMatrixLaw
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.laws.head_null import HeadNull
from attnlaw.theory.laws.heavy_tailed import HighTemperatureMP
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.semicircle import Semicircle
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.inputs import GivenInputs, RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer, WeightVariances
from attnlaw.theory.limit.limit import compare_widths
from attnlaw.theory.limit.sampler import output_law

STUDENTS = ("factorized", "direct", "bayes")
EDGES: tuple[dict[str, float], ...] = (
    {"alpha": 1e-14},
    {"alpha": 1e14},
    {"alpha": 1e14, "noise": 0.0},
    {"noise": 0.0},
    {"noise": 1e-14},
    {"noise": 1e14},
    {"weight_decay": 1e-14},
    {"weight_decay": 1e14},
    {"target_rank": 1e-8},
    {"target_rank": 1e8},
    {"tokens": 10**6},
    {"alpha": 1e-12, "noise": 0.0, "weight_decay": 1e-12},
    {"alpha": 1e-14, "weight_decay": 1e14},
)


def problem(target_rank: float = 0.5, **changes: Any) -> Problem:
    arguments = {"alpha": 0.2, "noise": 0.1, "weight_decay": 0.1, **changes}
    return Problem(target=Target.marchenko_pastur(target_rank), **arguments)


@pytest.mark.parametrize("edge", EDGES, ids=str)
@pytest.mark.parametrize("student", STUDENTS)
def test_predictions_are_finite_and_within_what_is_possible_or_say_so(student: str, edge: Any) -> None:
    prediction = state_evolution(problem(student=student, **edge))
    assert prediction.converged or ";" in prediction.remark
    if not prediction.converged:
        return
    values = (
        prediction.estimation_error.value,
        prediction.overlap.value,
        prediction.norm.value,
        prediction.rank_fraction.value,
        prediction.trace.value,
    )
    assert np.isfinite(values).all()
    Q, noise = prediction.problem.target.second_moment, prediction.problem.noise
    # Noise can be learned: at most all of it, divided among the observations, adds to the error.
    assert 0 <= prediction.estimation_error.value <= Q + 2 * noise / min(prediction.problem.observations, 1.0)
    assert 0 <= prediction.rank_fraction.value <= 1


@pytest.mark.parametrize("student", STUDENTS)
@pytest.mark.parametrize(
    "edge",
    [
        {name: value}
        for name in ("alpha", "noise", "weight_decay", "beta")
        for value in (1e-300, 1e300, math.nan)
    ]
    + [{"tokens": 10**200}, {"tokens": 0}, {"alpha": 0.0}, {"alpha": -1.0}],
    ids=str,
)
def test_problems_beyond_double_precision_are_refused(student: str, edge: dict[str, float]) -> None:
    with pytest.raises(InputError):
        problem(student=student, **edge)


@pytest.mark.parametrize("rank", [0.0, 1e-300, 1e300, math.nan, math.inf, -1.0])
def test_target_ranks_beyond_double_precision(rank: float) -> None:
    with pytest.raises(InputError, match="target_rank"):
        Target.marchenko_pastur(rank)


def test_without_data_or_under_any_penalty_nothing_is_learned() -> None:
    """E = Q* = 3/2, loss 2 Q* + noise per sample; the Bayes-optimal guess is the mean: E = Q* - mean^2."""
    for edge in ({"alpha": 1e-14}, {"weight_decay": 1e14}):
        prediction = state_evolution(problem(student="factorized", **edge))
        assert prediction.estimation_error.value == pytest.approx(1.5, rel=1e-9)
        assert prediction.training_loss.value == pytest.approx(3.1, rel=1e-9)
        assert prediction.rank_fraction.value == 0
    blind = state_evolution(problem(student="bayes", noise=1e4))
    variance = 1.5 - 0.5
    assert 0 < variance - blind.estimation_error.value < variance**2 / blind.noise_level.value**2 * 1.01


@pytest.mark.parametrize("student", STUDENTS)
def test_errors_of_many_samples_fall_as_one_over_alpha(student: str) -> None:
    """E alpha tends to a constant, with corrections of relative size 1/sqrt(alpha)."""
    few, many = (state_evolution(problem(student=student, alpha=alpha)) for alpha in (1e4, 1e6))
    assert many.estimation_error.value * 1e6 == pytest.approx(few.estimation_error.value * 1e4, rel=0.05)
    # E of the factorized and the direct student is no difference of numbers of the size of Q*.
    if student != "bayes":
        most = state_evolution(problem(student=student, alpha=1e14))
        assert most.converged
        assert most.estimation_error.value * 1e14 == pytest.approx(
            many.estimation_error.value * 1e6, rel=0.005
        )


@pytest.mark.parametrize("edge", [{"beta": 1e5}, {"beta": 1.0, "noise": 1e10}], ids=str)
def test_a_softmax_as_steep_as_a_hardmax_is_refused(edge: dict[str, float]) -> None:
    with pytest.raises(InputError, match="hardmax"):
        problem(output="softmax", tokens=2, **edge)


def test_a_flat_softmax_shows_nothing() -> None:
    prediction = state_evolution(problem(output="softmax", tokens=2, beta=1e-3))
    assert prediction.estimation_error.value == pytest.approx(1.5, rel=1e-6)


@pytest.mark.parametrize("size", [0, -1, 3, 10**9])
def test_simulations_of_impossible_sizes(size: int) -> None:
    with pytest.raises(InputError, match=r"size|dimension"):
        simulate(problem(), size=size, seeds=1, seed=0)


EDGE_LAWS = {
    "semicircle, narrow": (Semicircle(1e-100), 0.0, 1e-200),
    "semicircle, wide": (Semicircle(1e100), 0.0, 1e200),
    "marchenko-pastur, low": (MarchenkoPastur(1e-9), 1e-9**0.5, 1 + 1e-9),
    "marchenko-pastur, high": (MarchenkoPastur(1e9), 1e9**0.5, 1 + 1e9),
    "marchenko-pastur, square": (MarchenkoPastur(1.0), 1.0, 2.0),
    "free convolution, little": (FreeConvolution(MarchenkoPastur(0.5), 1e-9), 0.5**0.5, 1.5),
    "free convolution, much": (FreeConvolution(MarchenkoPastur(0.5), 1e6), 0.5**0.5, 1.5 + 1e12),
    "free convolution, a point": (FreeConvolution(Discrete((1.0,), (1.0,)), 1e-8), 1.0, 1.0),
    "head null, thin": (HeadNull(1e-9), 1.0, 1 + 2e-9),
    "high temperature, cold": (HighTemperatureMP(4096.0, 0.5), 1.0, None),
    "attention matrix, flat": (AttentionMatrixLaw(0.01, 1.0), math.expm1(1e-4), None),
}


@pytest.mark.parametrize("name", EDGE_LAWS)
def test_laws_at_their_edges_keep_mass_and_moments(name: str) -> None:
    law, mean, square = EDGE_LAWS[name]
    weights = law.nodes()[1]
    assert law.mass_of_atoms + weights.sum() == pytest.approx(1.0, abs=1e-7)
    width = law.support[1] - law.support[0]
    assert law.moment(1) == pytest.approx(mean, rel=1e-7, abs=1e-9 * width)
    if square is not None:
        assert law.moment(2) == pytest.approx(square, rel=1e-6)
    quantiles = law.quantile(np.array([0.1, 0.5, 0.9]))
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles) >= 0).all()


@pytest.mark.parametrize(
    ("law", "arguments"),
    [
        *((Semicircle, (value,)) for value in (0.0, 1e-300, 1e300, math.nan)),
        *((MarchenkoPastur, (value,)) for value in (0.0, 1e-300, 1e300, math.nan)),
        (MarchenkoPastur, (0.5, 1e200)),
        *((HeadNull, (value,)) for value in (0.0, 1e-300, 1.5, math.nan)),
        *((HighTemperatureMP, (value, 0.5)) for value in (0.0, 1e-9, 1e9, math.nan)),
        *((AttentionMatrixLaw, (value, 1.0)) for value in (0.0, 1e-9, 1e3, math.nan)),
        *((FreeConvolution, (MarchenkoPastur(0.5), value)) for value in (0.0, 1e20, 1e300, math.nan)),
    ],
    ids=lambda value: f"{getattr(value, '__name__', value)}",
)
def test_laws_beyond_their_edges_are_refused(law: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InputError):
        law(*arguments)


RANDOM = np.random.default_rng(2)
SPECTRA = {
    "zeros": matrix_spectrum(np.zeros((20, 30))),
    "one value": matrix_spectrum(np.full((20, 30), 3.0)),
    "1 x N": matrix_spectrum(RANDOM.standard_normal((1, 30))),
    "2 x N": matrix_spectrum(RANDOM.standard_normal((2, 30))),
    "1e130": matrix_spectrum(RANDOM.standard_normal((20, 30)) * 1e130),
    "1e-130": matrix_spectrum(RANDOM.standard_normal((20, 30)) * 1e-130),
    "repeated": matrix_spectrum(np.eye(20)),
    "head of zeros": product_spectrum(np.zeros((20, 4)), np.zeros((4, 20))),
    "head of size 1": product_spectrum(RANDOM.standard_normal((20, 1)), RANDOM.standard_normal((1, 20))),
    "head, repeated": product_spectrum(np.eye(40, 12), np.eye(12, 40)),
}


@pytest.mark.parametrize("law", FITTERS)
@pytest.mark.parametrize("name", SPECTRA)
def test_fits_of_difficult_spectra(name: str, law: str) -> None:
    fit = fit_law(SPECTRA[name], law)
    numbers = [
        *fit.parameters.values(),
        *fit.errors.values(),
        fit.ks,
        fit.p_value,
        fit.log_likelihood,
    ]
    assert all(number is None or math.isfinite(number) for number in numbers)
    if name in ("zeros", "1 x N", "head of zeros", "head of size 1"):
        assert fit.outcome == "not fitted"
        assert fit.parameters == {}
    if name in ("one value", "repeated", "head, repeated") and law == "random":
        assert fit.p_value < 0.01  # no noise looks like this


@pytest.mark.parametrize("scale", [1e300, 1e-310])
def test_fits_of_spectra_beyond_float64(scale: float) -> None:
    with pytest.raises(InputError, match="rescale"):
        fit_law(matrix_spectrum(RANDOM.standard_normal((20, 30)) * scale), "random")


def widths(*given: float, tokens: int = 3, draws: int = 400, depth: int = 1, **layer: Any) -> Any:
    return compare_widths(Depth(AttentionLayer(RandomInputs(tokens), **layer), depth), given, draws, 0)


def test_one_token_has_a_gaussian_limit() -> None:
    """Attention of one token is 1: the output is W_O W_V x, of variance 1 and kurtosis 3, exactly."""
    (limit,) = widths(math.inf, tokens=1)
    assert (limit.output_variance.value, limit.kurtosis.value) == (1.0, 3.0)


def test_width_one() -> None:
    """x, W_V and W_O of one token are three independent normals: variance 1, kurtosis 27."""
    law = output_law(AttentionLayer(RandomInputs(1, shared=False), width=1), draws=50_000, seed=0)
    variance, kurtosis = law.variance(), law.kurtosis()
    assert abs(variance.value - 1) < 4 * variance.error
    assert abs(kurtosis.value - 27) < 4 * kurtosis.error


def test_a_width_beyond_counting_is_the_limit() -> None:
    row, limit = widths(10**18, math.inf)
    assert row.output_variance.value == pytest.approx(limit.output_variance.value, rel=1e-7)
    assert abs(row.kl_to_limit.value) < 1e-12


@pytest.mark.parametrize("draws", [-1, 0, 1, 2])
def test_too_few_draws_have_no_error(draws: int) -> None:
    with pytest.raises(InputError, match="draws"):
        widths(8, draws=draws)


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e300, math.nan, math.inf, -1.0])
def test_variances_beyond_float64(value: float) -> None:
    with pytest.raises(InputError, match="variance"):
        WeightVariances(query=value)


@pytest.mark.parametrize(
    "gram",
    [np.zeros((2, 2)), np.eye(2) * 1e300, np.eye(2) * 1e-310, np.full((2, 2), np.nan), np.zeros((0, 0))],
    ids=["zeros", "1e300", "denormal", "nan", "empty"],
)
def test_tokens_without_a_law(gram: Any) -> None:
    with pytest.raises(InputError):
        output_law(AttentionLayer(GivenInputs(gram), 2, 8), 100, 0)
