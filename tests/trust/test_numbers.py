"""Matrices that break arithmetic: a right spectrum, or a refusal; and rows of audits without NaN."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import polars as pl
import pytest
from checkpoints.forward_pass import make
from checkpoints.test_experts import DEEPSEEK
from numpy.typing import NDArray

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.spectra.approximate import approximate_spectrum
from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.factored import product_spectrum
from attnlaw.spectra.precision import Underflow
from attnlaw.spectra.spectrum import Spectrum

Matrix = NDArray[np.float64]
RANDOM = np.random.default_rng(5)
GAUSSIAN = RANDOM.standard_normal((6, 4))
U, V = RANDOM.standard_normal(6), RANDOM.standard_normal(4)
TINIEST = 5e-324


def exact(matrix: Matrix) -> Spectrum:
    return matrix_spectrum(matrix)


def as_product(matrix: Matrix) -> Spectrum:
    """The same matrix as a product with the identity, or the identity with it."""
    rows, cols = matrix.shape
    return product_spectrum(matrix, np.eye(cols)) if cols <= rows else product_spectrum(np.eye(rows), matrix)


def precise(matrix: Matrix) -> Matrix:
    """Singular values in 700 digits."""
    with mpmath.workdps(700):
        values = mpmath.svd_r(mpmath.matrix(matrix.tolist()), compute_uv=False)
        return np.sort(np.array([float(value) for value in values]))[::-1]


MATRICES: dict[str, Matrix] = {
    "zeros": np.zeros((6, 4)),
    "one value": np.full((6, 4), 3.0),
    "rank one": np.outer(U, V),
    "denormal": GAUSSIAN * 1e-310,
    "smallest": np.full((3, 3), TINIEST),
    "1e300": GAUSSIAN * 1e300,
    "both": np.diag([1e300, 1.0, 1e-300, 0.0]),
    "graded": GAUSSIAN * 10.0 ** np.array([-120, -3, 0, 120]),
    "1 x N": GAUSSIAN[:1],
    "N x 1": GAUSSIAN[:, :1],
    "1 x 1": np.array([[-2.0]]),
    "repeated": 2.0 * np.eye(5),
    "repeated twice": np.diag([3.0, 3.0, 3.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("route", [exact, as_product, approximate_spectrum], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", MATRICES)
def test_spectra_against_700_digits(name: str, route: Any) -> None:
    """Every value to 1e-12 of the largest, or to the spacing of denormal numbers."""
    matrix = MATRICES[name]
    expected = precise(matrix)
    if route is as_product and 0 < expected[0] < 1e-320:
        with pytest.raises(Underflow):
            route(matrix)
        return
    spectrum = route(matrix)
    allowed = 1e-12 * expected[0] + 8 * TINIEST
    assert np.abs(spectrum.values - expected).max() <= allowed
    assert abs(spectrum.frobenius - math.hypot(*expected)) <= 2 * allowed
    assert (
        abs(spectrum.norm_11 - math.fsum(np.abs(matrix).ravel())) <= 1e-12 * spectrum.norm_11 + 48 * TINIEST
    )
    if expected[0] == 0:
        assert (spectrum.stable_rank, spectrum.effective_rank, spectrum.condition) == (None, None, None)
    else:
        assert 1 - 1e-9 <= spectrum.stable_rank <= min(matrix.shape) + 1e-9
        assert 1 - 1e-9 <= spectrum.effective_rank <= min(matrix.shape) + 1e-9


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_entry_is_refused(bad: float) -> None:
    matrix = np.ones((200, 150))
    matrix[3, 5] = bad
    for route in (exact, as_product, approximate_spectrum):
        with pytest.raises(InputError, match="NaN or infinite"):
            route(matrix)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_empty_matrices_are_refused(shape: tuple[int, int]) -> None:
    for route in (exact, approximate_spectrum):
        with pytest.raises(InputError, match="at least one entry"):
            route(np.zeros(shape))
    with pytest.raises(InputError, match="at least one entry"):
        product_spectrum(np.zeros((4, 0)), np.zeros((0, 4)))


@pytest.mark.parametrize(
    "matrix", [np.full((6, 4), 1.7e308), np.full((200, 200), 1e307)], ids=["few", "many"]
)
def test_norms_beyond_float64_are_an_error(matrix: Matrix) -> None:
    for route in (exact, approximate_spectrum):
        with pytest.raises(OverflowError, match="too large for float64"):
            route(matrix)
    with pytest.raises(OverflowError, match="too large for float64"):
        product_spectrum(matrix, matrix.T)


LARGE = RANDOM.standard_normal((300, 200))
LARGE_MATRICES: dict[str, Matrix] = {
    "zeros": np.zeros((300, 200)),
    "one value": np.full((300, 200), 3.0),
    "rank one": np.outer(LARGE[:, 0], LARGE[0]),
    "rank ten": LARGE[:, :10] @ LARGE[:10],
    "repeated": 2.0 * np.eye(200),
    "repeated twice": np.diag(np.repeat([3.0, 1.0], 100)),
    "half zero": np.diag(np.repeat([3.0, 0.0], 100)),
    "denormal": LARGE * 1e-310,
    "1e300": LARGE * 1e300,
    "nearly one value": 1.0 + 1e-12 * LARGE,
    "power law": np.diag(np.arange(1.0, 201.0) ** -2),
}


@pytest.mark.parametrize("name", LARGE_MATRICES)
def test_approximate_spectra_of_difficult_matrices(name: str) -> None:
    """The largest value is computed; sums are within five standard errors (16 probes), or exact."""
    matrix = LARGE_MATRICES[name]
    estimate, expected = approximate_spectrum(matrix), matrix_spectrum(matrix)
    assert estimate.spectral == pytest.approx(expected.spectral, rel=1e-7, abs=8 * TINIEST)
    for quantity in ("frobenius", "nuclear", "stable_rank", "effective_rank"):
        value, right = getattr(estimate, quantity), getattr(expected, quantity)
        error = estimate.error(lambda spectrum, quantity=quantity: getattr(spectrum, quantity))
        if right is None:
            assert value is None
        else:
            assert abs(value - right) <= 5 * error + 1e-9 * right + 200 * TINIEST, quantity


def block(query: Any = 1.0, rest: Any = 1.0, size: int = 8) -> dict[str, Matrix]:
    """A layer of BERT whose query weights are of one kind, and all others of another."""
    at = "encoder.layer.0."
    names = ("attention.self.key", "attention.self.value", "attention.output.dense")
    names += ("intermediate.dense", "output.dense")
    weights = {f"{at}{name}.weight": rest * np.eye(size) for name in names}
    return {f"{at}attention.self.query.weight": query * np.ones((size, size)), **weights}


@pytest.mark.parametrize("query", [0.0, 1.0, 1e-310, 1e-160, 1e150, TINIEST])
@pytest.mark.parametrize("rest", [0.0, 1.0, 1e-150])
def test_rows_of_audits_hold_numbers_or_nothing(query: float, rest: float) -> None:
    expected = query * rest * math.sqrt(8 * 4)
    if query > 0 and rest > 0 and expected < 1e-311:
        with pytest.raises(
            InputError, match=r"qk from .*query.*key.*: its norm is below 4.9e-312.*; multiply"
        ):
            attnlaw.audit(block(query, rest), heads=2)
        return
    audit = attnlaw.audit(block(query, rest), heads=2)
    for table in (audit.matrices, audit.layers):
        for column in table.select(name for name, kind in table.schema.items() if kind.is_float()):
            assert column.drop_nulls().is_finite().all(), column.name
    norms = audit.matrices.filter(kind="qk")["spectral_norm"]
    assert norms.to_list() == pytest.approx([expected] * 2, rel=1e-12)
    proxies = audit.summary["proxies"]
    assert proxies["spectrum_adaptive"]["log10"] >= 0  # at least sqrt(L) = 1
    if query == 0 or rest == 0:
        assert audit.matrices.filter(kind="qk")["stable_rank"].null_count() == 2


@pytest.mark.parametrize("scale", [1e-200, 1e-160])
def test_products_too_small_for_float64_are_refused(scale: float) -> None:
    """They were 0, or had three digits, with the status "done". Larger keys bring the product back."""
    at = "encoder.layer.0.attention.self."
    draw = np.random.default_rng(0)
    plain = {name: draw.standard_normal((8, 8)) for name in block()}
    tiny = {name: scale * weight for name, weight in plain.items()}
    with pytest.raises(InputError, match="its norm is below"):
        attnlaw.audit(tiny, heads=2)
    opposite = tiny | {f"{at}key.weight": plain[f"{at}key.weight"] / scale}
    opposite |= {f"{at}value.weight": plain[f"{at}value.weight"] / scale}
    columns = ["spectral_norm", "frobenius_norm", "stable_rank", "norm_21", "norm_11"]
    ours, expected = (
        attnlaw.audit(weights, heads=2, jobs=1).matrices.filter(pl.col("head").is_not_null())
        for weights in (opposite, plain)
    )
    for column in columns:
        assert ours[column].to_list() == pytest.approx(expected[column].to_list(), rel=1e-12)


def test_latent_factors_too_small_for_float64_are_refused() -> None:
    """Keys of latent attention are a product of two stored matrices, formed before that with queries."""
    module = make("DeepseekV3ForCausalLM", **DEEPSEEK)
    assert attnlaw.audit(module, only="qk", jobs=1).matrices.height == 8
    for name, weight in module.named_parameters():
        if "kv_a_proj" in name or "kv_b_proj" in name:
            weight.data *= 1e-200
    with pytest.raises(
        InputError, match=r"the product of .*kv_a_proj.* and .*kv_b_proj.* is smaller than 4.9e-312"
    ):
        attnlaw.audit(module, only="qk", jobs=1)


def test_audits_refuse_what_float64_cannot_hold() -> None:
    for query, message in (
        (1e308, "too large for float64"),
        (math.nan, "NaN or infinite"),
        (math.inf, "NaN or"),
    ):
        with pytest.raises(InputError, match=message):
            attnlaw.audit(block(query, 1.0), heads=2)


@pytest.mark.parametrize("heads", [0, -1, 3, 16, 10**9])
def test_heads_that_cannot_be(heads: int) -> None:
    with pytest.raises(InputError, match="heads"):
        attnlaw.audit(block(), heads=heads)


def test_empty_heads() -> None:
    weights = {name: np.zeros((0, 8)) for name in block()}
    with pytest.raises(InputError, match="expected a matrix"):
        attnlaw.audit(weights, heads=2)
