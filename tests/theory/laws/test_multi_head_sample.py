"""Draws of multi-head attention compared with their laws: moments of every matrix, spikes, warnings."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.linalg import eigsh

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.theory.laws.attention_shape import MATRICES, SHARINGS, AttentionShape, RandomLayer
from attnlaw.theory.laws.finite_size import finite_size_warnings
from attnlaw.theory.laws.multi_head_sample import _grams, distance_to_law, multi_head_sample

MADE = [(of, sharing) for sharing in SHARINGS for of in MATRICES]


def layer(tokens: int, sharing: str) -> AttentionShape:
    """Return a layer with keys and values of half the tokens and outputs of five quarters."""
    half, out = tokens // 2, 5 * tokens // 4
    return AttentionShape(tokens, 3, half, half, out, sharing)


def shape_of(gram: np.ndarray) -> list[float]:
    """Return the mean of the eigenvalues, and moments 2 and 3 in units of it, without any eigenvalue."""
    n = gram.shape[0]
    square = gram @ gram
    mean = float(np.trace(gram)) / n
    return [mean, float(np.trace(square)) / n / mean**2, float((square * gram).sum()) / n / mean**3]


def largest(expected: RandomLayer, draws: int) -> Estimate:
    """Return mean and standard error of the largest value over draws, with 1/n subtracted."""
    rng = np.random.default_rng(4)
    grams = (_grams(expected.shape, expected.beta, MATRICES[expected.of], rng)[0] for _ in range(draws))
    top_eigenvalues = [float(eigsh(gram, k=1, which="LA", return_eigenvectors=False)[0]) for gram in grams]
    return Estimate(float(np.mean(top_eigenvalues)), float(np.std(top_eigenvalues, ddof=1) / np.sqrt(draws)))


@pytest.mark.slow
@pytest.mark.parametrize(("of", "sharing"), MADE)
def test_moments_of_draws_become_those_of_the_law(of: str, sharing: str) -> None:
    """Softmax draws at two sizes are extrapolated in 1/n: three moments of each of twelve matrices."""
    beta, rng = 0.7, np.random.default_rng(8)
    means, errors = [], []
    for tokens, draws in ((64, 60), (128, 30)):
        moments = np.array(
            [shape_of(_grams(layer(tokens, sharing), beta, MATRICES[of], rng)[0]) for _ in range(draws)]
        )
        means.append(moments.mean(axis=0))
        errors.append(moments.std(axis=0, ddof=1) / np.sqrt(draws))
    limit = 2 * means[1] - means[0]
    error = np.hypot(2 * errors[1], errors[0])
    law = layer(128, sharing).law(beta, of)
    expected = np.array([law.mean, law.moment(2) / law.mean**2, law.moment(3) / law.mean**3])
    # What is left is of second order in 1/n, and so at most the square of what was extrapolated.
    left = (means[1] - limit) ** 2 / np.abs(limit)
    assert np.all(np.abs(limit - expected) < 4 * error + 4 * left)
    assert np.all(4 * error + 4 * left < np.array([0.08, 0.06, 0.16]) * expected)


@pytest.mark.slow
def test_the_equivalent_has_the_law_without_extrapolation_of_temperature() -> None:
    """A Gaussian matrix is near its law at sizes at which softmax is not."""
    rng = np.random.default_rng(3)
    shape = layer(128, "none")
    for of in MATRICES:
        moments = np.array([shape_of(_grams(shape, 1.1, MATRICES[of], rng)[1]) for _ in range(20)])
        law = shape.law(1.1, of)
        error = moments.std(axis=0, ddof=1) / np.sqrt(20)
        expected = np.array([law.mean, law.moment(2) / law.mean**2, law.moment(3) / law.mean**3])
        # Traces of Gaussian matrices miss their limit by 1/n at first order, times the order of the moment.
        assert np.all(
            np.abs(moments.mean(axis=0) - expected) < 4 * error + expected * np.array([1, 4, 12]) / 128
        )


@pytest.mark.slow
def test_a_draw_stands_beside_its_law() -> None:
    drawn = multi_head_sample(AttentionShape(240, 4, 120), 0.5, seed=1)
    assert drawn.values.shape == drawn.equivalent.shape == (240,)
    assert np.all(np.diff(drawn.values) >= 0)
    # Eigenvalues are rigid: of order log(n)/n.
    assert drawn.law_distance < 3 * np.log(240) / 240
    assert drawn.equivalent_distance < 3 * np.log(240) / 240
    assert drawn.law_distance == pytest.approx(distance_to_law(drawn.values, drawn.law))
    ordered = np.abs(np.sort(drawn.values) - np.sort(drawn.equivalent)).mean() / drawn.law.mean
    assert drawn.equivalent_w1 == pytest.approx(ordered)
    assert drawn.largest == drawn.values[-1]
    assert drawn.beyond == (drawn.values > drawn.edge).sum()
    assert drawn.warnings == ()


@pytest.mark.slow
def test_zeros_are_counted_as_the_atom() -> None:
    drawn = multi_head_sample(AttentionShape(120, 3, 20, 20, 90), 0.6, seed=2, of="output")
    assert (drawn.values == 0).sum() == 60
    assert drawn.law.mass_of_atoms == pytest.approx(0.5)
    assert drawn.law_distance < 0.05
    # Half of the values away from where the law has half its mass.
    assert distance_to_law(drawn.values + 1e-3 * (drawn.values == 0), drawn.law) > 0.4


@pytest.mark.slow
def test_the_spike_is_where_it_is_expected_and_column_means_take_it_off() -> None:
    """beta .7, d_K/n .064, 16 heads: predicted 2.747, edge 2.221; draws of 500 tokens had 2.763(11)."""
    shape = AttentionShape(250, 16, 16)
    expected = RandomLayer(shape, 0.7, "attention", "mean")
    assert expected.law.support[1] == pytest.approx(2.221, abs=5e-4)
    assert expected.spike == pytest.approx(2.747, abs=5e-4)
    assert "one singular value near 1.657" in expected.warnings[0]
    estimate = largest(expected, 16)
    assert estimate.value == pytest.approx(2.747, abs=4 * estimate.error + 2.747 * 0.98 / 16)
    centred, kept = (
        multi_head_sample(shape, 0.7, seed=1, of="attention", centring=name) for name in ("columns", "mean")
    )
    assert centred.largest < 2.221 * (1 + 2 * 250 ** (-2 / 3))
    assert kept.largest == pytest.approx(kept.spike_found, rel=1e-9)
    assert kept.spike_found == pytest.approx(centred.spike_found, rel=1e-9)
    assert RandomLayer(shape, 0.7, "attention").warnings == ()


@pytest.mark.slow
@pytest.mark.parametrize("of", ["values", "output"])
def test_the_spike_goes_through_values_and_outputs(of: str) -> None:
    """`l^2 y = theta` is an extension of the paper, so it is compared with draws."""
    expected = RandomLayer(AttentionShape(250, 16, 16, 64, 1000), 1.0, of, "mean")
    edge = expected.law.support[1]
    estimate = largest(expected, 16)
    # The squared size of the spike is of first order in 1/d_K; the next is 2 beta^2/d_K of it.
    error = 4 * estimate.error + expected.spike * 2 / 16
    assert estimate.value == pytest.approx(expected.spike, abs=error)
    assert error < 0.75 * (expected.spike - edge)


def test_the_spike_of_attention_solves_the_equation_of_its_law() -> None:
    """`l^2 g (x g/h + 1 - 1/h) = 1`; at beta 1, d_K/n 1/16 it is at 10.005, the edge at 5.094."""
    law = AttentionShape(1024, 16, 64).law(1.0, "attention")
    size = 1024 / (2 * 64)
    x = law.spike(size)
    g = float(law.stieltjes(x).real)
    assert size * g * (x * g / 16 + 15 / 16) == pytest.approx(1.0, rel=1e-10)
    assert (law.support[1], x) == pytest.approx((5.094, 10.005), abs=5e-4)
    assert law.spike(0.0) is None
    # At the threshold it is at the edge.
    assert law.spike(law.theta / law.map.top * (1 + 1e-6)) == pytest.approx(law.support[1], rel=1e-9)
    assert law.spike(law.theta / law.map.top * (1 - 1e-6)) is None


def test_laws_of_shapes() -> None:
    shape = AttentionShape(200, 8, 20, 30, 150)
    law = shape.law(1.0)
    assert (law.key_ratio, law.value_ratio, law.output_ratio) == (0.8, 1.2, 0.75)
    assert shape.law(1.0, "attention").value_ratio is None
    assert shape.law(1.0, second_order=True).head_size == 20
    assert (shape.rank("attention"), shape.rank("values"), shape.rank()) == (200, 200, 150)
    mean = shape.law(1.0, "mean")
    assert (mean.heads, mean.key_ratio) == (1, 0.8)
    shared = AttentionShape(200, 8, 20, sharing="across")
    assert shared.law(1.0, "mean").key_ratio == pytest.approx(0.1)
    assert shared.law(1.0) == AttentionShape(200, 8, 20).law(1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AttentionShape(1, 4, 8), "tokens"),
        (lambda: AttentionShape(10, 4, 8, sharing="some"), "none, across, tied"),
        (lambda: AttentionShape(10, 4, 8, 9, sharing="tied"), "value_size 9: expected the head size, 8"),
        (lambda: AttentionShape(10, 4, 8, sharing="tied").law(1.0, second_order=True), "second_order"),
        (lambda: AttentionShape(10, 4, 8).law(1.0, "scores"), "attention, mean, values, output"),
        (lambda: RandomLayer(AttentionShape(10, 4, 8), 1.0, centring="rows"), "columns, mean"),
    ],
)
def test_bad_shapes_are_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def test_warnings_know_the_size() -> None:
    assert finite_size_warnings(1000, 1000, 1.2) == ()
    (sharp,) = finite_size_warnings(1000, 1000, 1.5)
    assert sharp.startswith(
        "beta 1.5 is too sharp for 1000 tokens: the mean of the law is about 16% too large; draw random"
    )
    assert finite_size_warnings(100_000, 1000, 1.5) == ()
    (lost,) = finite_size_warnings(512, 512, 1.8)
    assert "above 1.77 a few rows dominate" in lost
    # Here the two terms of the shift cancel, and the law is lost all the same.
    assert "above 1.77 a few rows dominate" in finite_size_warnings(512, 4, 1.82)[0]
    (narrow,) = finite_size_warnings(1000, 64, 0.5)
    assert "heads of size 64 are narrow for 1000 tokens" in narrow
    assert finite_size_warnings(1000, 64, 0.5, second_order=True) == ()
    assert finite_size_warnings(1000, 64, 0.5, heads=12) == ()
