"""Spectra of matrices that are too large to factorise: stochastic Lanczos quadrature with deflation.

With A = M M^T (n x n, where n is the shorter side), a sum over singular values is a trace: sum f(s_i) = tr
f(A^(1/2)). An orthonormal U (n x k) that nearly spans the leading singular vectors splits the trace without
bias,

    tr f = sum_i u_i^T f u_i + E[z^T f z],    z = (I - U U^T) g,  g with random signs.

Every term v^T f v is a Gauss rule: its nodes are the eigenvalues of the Lanczos tridiagonal of A started at
v, its weights the squared first entries of the eigenvectors times |v|^2 (Golub and Meurant 2010). Leading
vectors are almost invariant, so three steps are enough for each. Two sums are known exactly, the number of
values (n) and the sum of their squares (|M|_F^2), and the weights of every probe are multiplied by a + b s^2
so that both are right. The spread over probes is the standard error.

With x = s^2, a sum of s^p is a sum of x^(p/2), whose even derivatives are negative and odd ones positive for
0 < p < 2. So the Gauss rule is above the true sum, and the Gauss-Radau rule with a node at 0 is below it. The
weight of that node is the largest that zero can have (Chebyshev, Markov, Stieltjes), so it is the uncertainty
of a rank. The tolerance of ranks is far below what the steps resolve, and moves neither side.
"""

from __future__ import annotations

import numpy as np

from attnlaw.checkpoints.blocks import NormFold
from attnlaw.core.arrays import Reals
from attnlaw.spectra.exact import entry_norms, matrix_spectrum, rescale_spectrum
from attnlaw.spectra.krylov import ROUND_OFF, KrylovRun, Operator, lanczos, tridiagonals
from attnlaw.spectra.precision import power_scaled
from attnlaw.spectra.spectrum import Multiplicities, Spectrum, applied_matrix

DEFLATED = 64
PROBES = 16
STEPS = 40
LEADING_STEPS = 3
POWER_STEPS = 1


def approximate_spectrum(matrix: Reals, seed: int = 0, fold: NormFold | None = None) -> Spectrum:
    """Approximate the spectrum of a float64 matrix by a few values with multiplicities and errors.

    The largest singular value, the (2,1) norm and the (1,1) norm are computed, not estimated. A matrix whose
    shorter side is at most 2 `DEFLATED` is factorised, because an approximation would not be faster. If you
    pass the norm layer before the matrix (`fold`), the spectrum also describes the product of both.

    >>> matrix = np.random.default_rng(0).standard_normal((300, 400))
    >>> spectrum = approximate_spectrum(matrix)
    >>> error = spectrum.error(lambda spectrum: spectrum.nuclear)
    >>> abs(spectrum.nuclear - np.linalg.svd(matrix, compute_uv=False).sum()) < 4 * error < 100
    True
    """
    if min(matrix.shape) <= 2 * DEFLATED:
        return matrix_spectrum(matrix, fold)
    scaled, scale = power_scaled(matrix)
    wide = scaled if scaled.shape[0] <= scaled.shape[1] else scaled.T
    size = wide.shape[0]
    rng = np.random.default_rng(seed)

    def gram(block: Reals) -> Reals:
        return wide @ (wide.T @ block)

    leading = _leading_vectors(gram, size, min(DEFLATED, size // 2), rng)
    probes = rng.choice([-1.0, 1.0], size=(size, PROBES))
    probes -= leading @ (leading.T @ probes)
    leading_run = lanczos(gram, leading, LEADING_STEPS)
    # The leading vector joins the probes, to find the largest value.
    run = lanczos(gram, np.column_stack([probes, leading[:, -1]]), STEPS)
    top, top_error = _largest(run.rows(slice(PROBES, None)))
    deflated_trace = float(np.sum(leading_run.squared_norm * leading_run.diagonal[:, 0]))
    rest = size - leading.shape[1], float(np.einsum("ij,ij->", wide, wide)) - deflated_trace
    probed, floor = run.rows(slice(PROBES)), ROUND_OFF * top**2
    upper = _spectrum(top, _gauss_rules(leading_run), _calibrate(_gauss_rules(probed), *rest))
    lower = _spectrum(top, _radau_rules(leading_run, floor), _calibrate(_radau_rules(probed, floor), *rest))
    multiplicities = Multiplicities(upper[1], *lower, top_error)
    shape, norms = (matrix.shape[0], matrix.shape[1]), entry_norms(scaled)
    applied = None if fold is None else applied_matrix(scaled, fold)
    spectrum = Spectrum(upper[0], shape, *norms, "lanczos", multiplicities, applied=applied)
    return rescale_spectrum(spectrum, scale)


def _leading_vectors(gram: Operator, size: int, count: int, rng: np.random.Generator) -> Reals:
    """Return the Ritz vectors of a randomised subspace iteration, in ascending order of their values."""
    basis = np.linalg.qr(gram(rng.standard_normal((size, count))))[0]
    for _ in range(POWER_STEPS):
        basis = np.linalg.qr(gram(basis))[0]
    return np.asarray(basis @ np.linalg.eigh(basis.T @ gram(basis))[1])


def _largest(run: KrylovRun) -> tuple[float, float]:
    values, vectors = np.linalg.eigh(tridiagonals(run)[0])
    top = float(np.sqrt(max(values[-1], 0.0)))
    residual = float(run.off_diagonal[0, -1] * abs(vectors[-1, -1]))
    return top, residual / (2 * top) if top > 0 else 0.0


def _gauss_rules(run: KrylovRun) -> tuple[Reals, Reals]:
    """Return the nodes (squared singular values) and the weights of the Gauss rule of each start."""
    nodes, vectors = np.linalg.eigh(tridiagonals(run))
    return np.maximum(nodes, 0.0), run.squared_norm[:, None] * vectors[:, 0, :] ** 2


def _radau_rules(run: KrylovRun, round_off: float) -> tuple[Reals, Reals]:
    """Return the nodes and the weights of the Gauss-Radau rules, both of shape (starts, steps + 1).

    Their tridiagonals T = B B^T are singular, with the node 0. B is the Cholesky factor, (steps + 1) x steps,
    of the Lanczos tridiagonal with the row that follows it. If a pivot is round-off, the steps have found an
    eigenvalue 0 themselves, and the rule ends there.
    """
    count, steps = run.diagonal.shape
    factors = np.zeros((count, steps + 1, steps))
    below = np.zeros(count)
    for step in range(steps):
        pivot = run.diagonal[:, step] - below**2
        root = np.sqrt(np.where(pivot > round_off, pivot, 0.0))
        below = np.divide(run.off_diagonal[:, step], root, out=np.zeros(count), where=root > 0)
        factors[:, step, step], factors[:, step + 1, step] = root, below
    vectors, roots, _ = np.linalg.svd(factors)
    nodes = np.column_stack([roots**2, np.zeros(count)])
    return nodes, run.squared_norm[:, None] * vectors[:, 0, :] ** 2


def _calibrate(rules: tuple[Reals, Reals], mass: float, trace: float) -> tuple[Reals, Reals]:
    """Multiply the weights of every rule by a + b node, so that it has the known mass and first moment."""
    nodes, weights = rules
    m0, m1, m2 = ((weights * nodes**k).sum(axis=1) for k in range(3))
    spread = m0 * m2 - m1**2
    # If all nodes are equal, only the mass can be corrected.
    known = spread > 1e-12 * m0 * m2
    b = np.divide(trace * m0 - mass * m1, spread, out=np.zeros_like(m0), where=known)
    a = (mass - b * m1) / m0
    return nodes, weights * (a[:, None] + b[:, None] * nodes)


def _spectrum(top: float, deflated: tuple[Reals, Reals], rest: tuple[Reals, Reals]) -> tuple[Reals, Reals]:
    """Return singular values in descending order, and the multiplicity of each one according to each probe.

    The largest value comes first with multiplicity zero, because the deflated nodes count it already.
    """
    probes = rest[0].shape[0]
    values = np.sqrt(np.concatenate([[top**2], deflated[0].ravel(), rest[0].ravel()]))
    probe_weights = np.kron(np.eye(probes), np.ones(rest[0].shape[1])) * rest[1].ravel()
    common = np.tile(np.append(0.0, deflated[1].ravel()), (probes, 1))
    order = np.append(0, np.argsort(values[1:])[::-1] + 1)
    return np.minimum(values, top)[order], np.hstack([common, probe_weights])[:, order]
