"""Flatness of factors: the trace by its formula and by a brute Jacobian, minima by formulas and L-BFGS."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from operator import matmul

import numpy as np
import pytest
from scipy.optimize import minimize
from theory.regression.agree import holds

from attnlaw import InputError
from attnlaw.theory.implicit_bias.flatness import hessian_trace, least_decay, least_trace

VALUES = (3.0, 1.0, 0.5)


def product(factors):
    return reduce(matmul, factors)


def drawn(depth, seed=0, rows=5, cols=4):
    """Factors of unequal widths."""
    rng = np.random.default_rng([depth, seed])
    sizes = [rows, *rng.integers(2, 7, depth - 1), cols]
    return [rng.standard_normal(shape) for shape in pairwise(sizes)]


def jacobian(factors):
    """What each entry of each factor does to the product: a matrix each."""
    derivatives = []
    for number, factor in enumerate(factors):
        for entry in np.ndindex(factor.shape):
            unit = np.zeros_like(factor)
            unit[entry] = 1.0
            derivatives.append(product([*factors[:number], unit, *factors[number + 1 :]]))
    return np.array(derivatives)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_trace_is_that_of_a_brute_jacobian(depth):
    factors = drawn(depth)
    assert hessian_trace(factors) == pytest.approx(np.square(jacobian(factors)).sum(), rel=1e-13)


@pytest.mark.parametrize("depth", [2, 3])
def test_the_trace_in_the_metric_of_tokens_is_that_of_a_brute_jacobian(depth):
    """E (x^T X x')^2 = Tr S X S X^T."""
    factors = drawn(depth, rows=5, cols=5)
    root = np.random.default_rng(1).standard_normal((5, 5))
    S = root @ root.T
    brute = sum(np.trace(S @ X @ S @ X.T) for X in jacobian(factors))
    assert hessian_trace(factors, S) == pytest.approx(brute, rel=1e-12)
    if depth == 2:
        query, key = factors[0], factors[1].T
        both = np.trace(query.T @ S @ query) + np.trace(key.T @ S @ key)
        assert hessian_trace(factors, S) == pytest.approx(np.trace(S) * both, rel=1e-12)


def test_measurements_have_this_trace_in_the_mean():
    """Of a loss over 50 random measurements, by seeds 0 to 39: Gaussian matrices, and pairs of tokens."""
    family = []
    for depth in (2, 3, 4):
        factors = drawn(depth, rows=5, cols=5)
        J = jacobian(factors).reshape(-1, 25)
        root = np.random.default_rng(1).standard_normal((5, 5))
        for S in (None, root @ root.T):
            traces = []
            for seed in range(40):
                rng = np.random.default_rng(seed)
                A = rng.standard_normal((50, 5, 5))
                if S is not None:
                    A = np.einsum("ni,nj->nij", *(rng.standard_normal((50, 5)) @ root.T for _ in range(2)))
                traces.append(np.square(A.reshape(50, 25) @ J.T).sum() / 50)
            error = np.std(traces, ddof=1) / len(traces) ** 0.5
            family.append((np.mean(traces) - hessian_trace(factors, S)) / error)
    assert holds(family), family


# Derived for M = diag(3, 1, .5), 3 x 3, and minimised there over factors to a relative 5e-6 or better.
@pytest.mark.parametrize(
    ("depth", "trace", "decay"), [(2, 27, 9), (3, 46.360927, 11.130133), (4, 66.136223, 13.756630)]
)
def test_reference_values_of_the_minima(depth, trace, decay):
    assert least_trace(VALUES, depth, 3, 3) == pytest.approx(trace, abs=5e-7)
    assert least_decay(VALUES, depth) == pytest.approx(decay, abs=5e-7)


def minimised(value, target, depth):
    """The least of a function of factors of a product, the last of them told by the others."""
    rows = target.shape[0]

    def factors(flat):
        free = list(flat.reshape(depth - 1, rows, rows))
        return [*free, np.linalg.solve(product(free), target)]

    starts = [np.tile(np.eye(rows), (depth - 1, 1, 1))]
    starts.append(starts[0] + 0.2 * np.random.default_rng(depth).standard_normal(starts[0].shape))
    options = {"maxfun": 10**6, "maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
    return min(
        minimize(lambda flat: value(factors(flat)), start.ravel(), method="L-BFGS-B", options=options).fun
        for start in starts
    )


@pytest.mark.slow
@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("target", [np.diag(VALUES), np.random.default_rng(7).standard_normal((3, 4))])
def test_the_minima_are_found_by_descent(depth, target):
    """Differences err by sqrt(eps) of the value in the gradient, by far less in a minimum."""
    values = np.linalg.svd(target, compute_uv=False)
    for minimum, formula in (
        (minimised(hessian_trace, target, depth), least_trace(values, depth, *target.shape)),
        (
            minimised(lambda factors: sum(map(np.sum, map(np.square, factors))), target, depth),
            least_decay(values, depth),
        ),
    ):
        assert formula * (1 - 1e-12) <= minimum <= formula * (1 + 1e-6)


@pytest.mark.slow
def test_the_least_trace_in_the_metric_of_tokens():
    """Over the gauge of a head: 2 Tr S |S^.5 M S^.5|_*."""
    rng = np.random.default_rng(3)
    query, key, half = (rng.standard_normal((4, 4)) for _ in range(3))
    values, vectors = np.linalg.eigh(half @ half.T)
    root = (vectors * values**0.5) @ vectors.T
    nuclear = np.linalg.svd(root @ query @ key.T @ root, compute_uv=False)
    formula = least_trace(nuclear, 2, values.sum(), values.sum())
    assert formula == pytest.approx(2 * values.sum() * nuclear.sum(), rel=1e-14)
    minimum = minimised(lambda factors: hessian_trace(factors, half @ half.T), query @ key.T, 2)
    assert formula * (1 - 1e-12) <= minimum <= formula * (1 + 1e-6)


def sensed(measurements, depth, cost, seed=0):
    """M of rank 2, 12 x 12, and the interpolator of its measurements of least `cost(factors, A)`.

    By multipliers and L-BFGS over factors of full width; the gradient is torch's. Also that of least
    Frobenius norm.
    """
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 12))
    M /= np.linalg.norm(M)
    A = torch.tensor(rng.standard_normal((measurements, 12, 12)))
    y = torch.einsum("nij,ij->n", A, torch.tensor(M))
    x = 0.5 * np.eye(12) + 0.05 * rng.standard_normal((depth, 12, 12))
    multipliers, weight = torch.zeros(measurements, dtype=torch.float64), 10.0

    def missed(factors):
        return torch.einsum("nij,ij->n", A, product(list(factors))) - y

    def value(flat):
        factors = torch.tensor(flat.reshape(depth, 12, 12), requires_grad=True)
        left = missed(factors)
        lagrangian = cost(list(factors), A) + multipliers @ left + weight / 2 * left @ left
        lagrangian.backward()
        return lagrangian.item(), factors.grad.numpy().ravel()

    for _ in range(12):
        options = {"maxiter": 300, "ftol": 1e-13, "gtol": 1e-8}
        x = minimize(value, x.ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(depth, 12, 12)
        left = missed(torch.tensor(x))
        multipliers, weight = multipliers + weight * left, min(2 * weight, 1e4)
    assert float(left.abs().max()) < 1e-5
    plain = np.linalg.lstsq(A.reshape(measurements, -1).numpy(), y.numpy(), rcond=None)[0]
    return M, product(list(x)), plain.reshape(12, 12)


def empirical_trace(factors, A):
    """Of the Hessian over these measurements: sum_l mean_i |F_1..F_{l-1}^T A_i F_{l+1}..F_L^T|^2."""
    eye = A.new_ones(12).diag()
    return sum(
        (product([eye, *factors[:place]]).T @ A @ product([eye, *factors[place + 1 :]]).T).square().sum()
        / len(A)
        for place in range(len(factors))
    )


def decay(factors, A):
    return sum(factor.square().sum() for factor in factors)


@pytest.mark.long
@pytest.mark.parametrize("depth", [2, 3])
def test_the_flattest_interpolator_recovers_a_low_rank(depth):
    """90 measurements of 44 degrees of freedom: to all digits; the least Frobenius norm is off by .65."""
    M, interpolator, plain = sensed(90, depth, empirical_trace)
    assert np.linalg.norm(interpolator - M) < 1e-4
    assert 0.55 < np.linalg.norm(plain - M) < 0.7


@pytest.mark.long
def test_the_flattest_interpolator_of_few_measurements_has_nearly_the_least_nuclear_norm():
    """60 measurements: .2 to .3% above it at depth 2, .5 to 1.6% at depth 3, in draws of four."""
    least, *traces = (
        np.linalg.norm(sensed(60, depth, cost)[1], "nuc")
        for depth, cost in ((2, decay), (2, empirical_trace), (3, empirical_trace))
    )
    assert 0.001 < traces[0] / least - 1 < 0.006
    assert 0.003 < traces[1] / least - 1 < 0.02


def test_flatness_and_decay_part_above_depth_two():
    """One large value or several of the same sum: flatness does not care, decay prefers the one."""
    single, several = [3.0, 0.0, 0.0], [1.0, 1.0, 1.0]
    for depth in (2, 3, 4):
        assert least_trace(single, depth, 3, 3) == least_trace(several, depth, 3, 3)
    assert least_decay(single, 2) == least_decay(several, 2)
    assert all(least_decay(single, depth) < least_decay(several, depth) for depth in (3, 4))


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: hessian_trace([np.eye(2)]), "expected at least two matrices that can be multiplied"),
        (lambda: hessian_trace([np.eye(2), np.eye(3)]), r"factors of shapes \[\[2, 2\], \[3, 3\]\]"),
        (lambda: hessian_trace([np.eye(2), np.eye(2)], np.eye(3)), r"covariance of shape \[3, 3\]"),
        (
            lambda: hessian_trace([np.eye(2), np.eye(2)], -np.eye(2)),
            "the eigenvalue -1, expected no negative eigenvalue",
        ),
        (lambda: least_trace([1.0], 1, 2, 2), "depth"),
        (
            lambda: least_decay([-1.0], 2),
            "singular values: expected finite numbers that are not negative; give",
        ),
    ],
)
def test_bad_input_gets_one_line(call, line):
    with pytest.raises(InputError, match=line):
        call()
