"""Ridge risk of weighted groups: reference values, scalar equations, exact Wishart means, simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from theory.regression.agree import holds, z_score

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.theory.regression.problem import Group, Regression, importance_weights, mixture
from attnlaw.theory.regression.risk import ridge_risk, solve
from attnlaw.theory.regression.simulate import simulate_ridge

WEIGHTS = {"ones": (1.0, 1.0), "importance": (0.25, 4.0), "truncated": (0.25, 2.0)}
REFERENCE = {
    ("ones", 0.01): (0.003631, 0.940693),
    ("ones", 0.1): (0.108185, 0.451763),
    ("ones", 1.0): (0.704082, 0.076130),
    ("importance", 0.01): (0.027007, 0.780991),
    ("importance", 0.1): (0.323520, 0.274432),
    ("importance", 1.0): (0.985601, 0.080010),
    ("truncated", 0.01): (0.027495, 0.764485),
    ("truncated", 0.1): (0.328080, 0.255244),
    ("truncated", 1.0): (1.026641, 0.055497),
}


def two_groups(
    p: int = 200, weights: tuple[float, float] = (1.0, 1.0), ridge: float = 0.1, noises=(0.3, 0.3), ratio=1.5
) -> Regression:
    first, second = np.linspace(0.5, 1.5, p), np.linspace(4.0, 0.4, p)
    groups = [Group(0.8, first, weights[0], noises[0]), Group(0.2, second, weights[1], noises[1])]
    return Regression(
        groups, np.full(p, p**-0.5), round(ratio * p), ridge, mixture(groups, shares=(0.2, 0.8))
    )


def spectrum(eigenvalues: np.ndarray, samples: int = 100, noise: float = 0.25) -> Regression:
    signal = np.zeros(eigenvalues.size)
    signal[:5] = 5**-0.5
    return Regression((Group(1.0, eigenvalues, noise=noise),), signal, samples)


@pytest.mark.parametrize(("weighting", "ridge"), REFERENCE)
def test_reference_values(weighting: str, ridge: float) -> None:
    risk = ridge_risk(two_groups(weights=WEIGHTS[weighting], ridge=ridge))
    assert (risk.bias, risk.variance) == pytest.approx(REFERENCE[weighting, ridge], abs=5.1e-7)
    assert risk.excess == risk.bias + risk.variance
    assert (risk.outcome, risk.remark) == (Outcome.DONE, None)


def test_importance_weights() -> None:
    assert importance_weights([0.8, 0.2], [0.2, 0.8]).tolist() == [0.25, 4.0]
    with pytest.raises(
        InputError, match=r"target_shares: found \[0.2, 0.7\], expected numbers of at least 0"
    ):
        importance_weights([0.8, 0.2], [0.2, 0.7])


@pytest.mark.parametrize(
    ("eigenvalues", "kappa", "df2", "variance", "bias"),
    [
        (np.arange(1, 3001) ** -1.5, 0.0031728836, 36.828610, 0.145749, None),
        (np.repeat([10.0, 0.02], [5, 2000]), 0.40020161, None, 0.025189, 0.016299),
    ],
    ids=["power", "spiked"],
)
def test_interpolation_by_its_scalar_equation(eigenvalues, kappa, df2, variance, bias) -> None:
    """One group, no ridge: kappa by bisection, and the formulas in kappa."""
    problem = spectrum(eigenvalues)
    root = brentq(
        lambda k: (eigenvalues / (eigenvalues + k)).sum() - 100, 1e-14, eigenvalues.sum() / 100, rtol=1e-14
    )
    solution, risk = solve(problem), ridge_risk(problem)
    assert solution.e[0] == pytest.approx(root, rel=1e-10)
    assert root == pytest.approx(kappa, rel=2e-8)
    second = float((eigenvalues**2 / (eigenvalues + root) ** 2).sum())
    if df2 is not None:
        assert second == pytest.approx(df2, abs=1e-6)
    assert risk.variance == pytest.approx(0.25 * second / (100 - second), rel=1e-10)
    assert risk.variance == pytest.approx(variance, abs=5.1e-7)
    signal = np.asarray(problem.signal)
    left = root**2 * float((eigenvalues * signal**2 / (eigenvalues + root) ** 2).sum())
    assert risk.bias == pytest.approx(left / (1 - second / 100), rel=1e-10)
    if bias is not None:
        assert risk.bias == pytest.approx(bias, abs=5.1e-7)
    assert risk.degrees == pytest.approx(100, rel=1e-10)


@pytest.mark.parametrize("ratio", [0.5, 1.5], ids=["n < p", "n > p"])
def test_no_ridge_is_the_limit_of_a_small_one(ratio: float) -> None:
    none = ridge_risk(two_groups(weights=(0.25, 4.0), ridge=0.0, ratio=ratio))
    small = ridge_risk(two_groups(weights=(0.25, 4.0), ridge=1e-8, ratio=ratio))
    assert (none.bias, none.variance) == pytest.approx((small.bias, small.variance), rel=3e-6, abs=1e-9)


def test_isotropic_inputs_have_exact_means() -> None:
    """E of an inverse Wishart: variance sigma^2 p/(n - p - 1) with n > p; bias 1 - n/p with n < p."""
    more = ridge_risk(Regression((Group(1.0, np.ones(2000), noise=0.7),), np.ones(2000), 3000))
    assert more.bias == 0.0
    assert more.variance == pytest.approx(0.7 * 2000 / 999, rel=2 / 1000)
    fewer = ridge_risk(Regression((Group(1.0, np.ones(300), noise=0.7),), np.full(300, 300**-0.5), 100))
    assert (fewer.bias, fewer.variance) == pytest.approx((2 / 3, 0.7 * 100 / 200), rel=1e-10)


def test_equal_groups_are_one_group_and_a_rotation_changes_nothing() -> None:
    problem = two_groups(p=40, weights=(0.25, 4.0), noises=(0.1, 0.5))
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((40, 40)))[0]
    turned = [
        Group(g.share, rotation @ np.diag(g.covariance) @ rotation.T, g.weight, g.noise)
        for g in problem.groups
    ]
    target = rotation @ np.diag(problem.target) @ rotation.T
    same = ridge_risk(Regression(turned, rotation @ problem.signal, 60, 0.1, target))
    risk = ridge_risk(problem)
    assert (same.bias, same.variance) == pytest.approx((risk.bias, risk.variance), rel=1e-10)
    merged = Regression([Group(1.0, np.ones(40), noise=0.2)], problem.signal, 60, 0.1)
    split = Regression([Group(s, np.ones(40), noise=0.2) for s in (0.3, 0.7)], problem.signal, 60, 0.1)
    assert ridge_risk(merged).excess == pytest.approx(ridge_risk(split).excess, rel=1e-12)


def test_matrices_that_do_not_commute() -> None:
    """The formulas of the variance and the bias written out with traces, at the solved R and c."""
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((3, 6, 6))
    first, second, target = (root @ root.T for root in roots)
    groups = [Group(0.4, first, 2.0, 0.3), Group(0.6, second, 0.5, 0.8)]
    problem = Regression(groups, rng.standard_normal(6), 10, 0.2, target)
    solution, n = solve(problem), 10
    R, pi, c = solution.R, problem.shares, solution.c
    T = np.array([[np.trace(a @ R @ b @ R) / n for b in (first, second)] for a in (first, second)])
    b = np.array([np.trace(a @ R @ target @ R) / n for a in (first, second)])
    t = np.linalg.inv(np.eye(2) - T * (pi * c**2)) @ b
    assert c == pytest.approx(problem.weights / (1 + problem.weights * solution.e), rel=1e-12)
    assert solution.e == pytest.approx([np.trace(a @ R) / n for a in (first, second)], rel=1e-10)
    assert np.linalg.inv(R) == pytest.approx(
        np.tensordot(pi * c, [first, second], 1) + 0.2 * np.eye(6), rel=1e-9
    )
    assert solution.variance == pytest.approx(problem.noises @ (pi * c**2 * t), rel=1e-10)
    inside = target + np.tensordot(pi * c**2 * t, [first, second], 1)
    bias = 0.2**2 * problem.signal @ R @ inside @ R @ problem.signal
    assert ridge_risk(problem).bias == pytest.approx(bias, rel=1e-10)
    assert solution.bias_of(None) == pytest.approx(0.2**2 * np.trace(R @ inside @ R) / 6, rel=1e-10)


def test_weights_vanish_with_the_ridge_where_labels_are_fitted() -> None:
    """n < p: the fitted theta moves as the ridge: 6e-4 and 6e-7 at 1e-4 and 1e-7, one draw."""
    problem = two_groups(p=60, ratio=0.5)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 60)), rng.standard_normal(30)

    def theta(weights: np.ndarray, ridge: float) -> np.ndarray:
        return X.T @ np.linalg.solve(X @ X.T + 30 * ridge * np.diag(1 / weights), y)

    w = np.array([0.25] * 24 + [4.0] * 6)
    moved = [
        np.linalg.norm(theta(w, ridge) - theta(np.ones(30), ridge)) / np.linalg.norm(theta(w, 0.0))
        for ridge in (1e-4, 1e-7)
    ]
    assert moved[0] / moved[1] == pytest.approx(1000, rel=0.05)
    weighted, plain = (
        ridge_risk(
            Regression(two_groups(60, weights, ratio=0.5).groups, problem.signal, 30, 0.0, problem.target)
        )
        for weights in ((0.25, 4.0), (1.0, 1.0))
    )
    assert weighted.excess == pytest.approx(plain.excess, rel=1e-10)


def test_ratios_of_densities_degenerate_with_the_dimension() -> None:
    """E w^2 of N(0, 1) and N(0, s^2) by quadrature, to the power p: 152 at s^2 = 1.1 and p = 1000."""
    s2 = 1.1

    def squared(x: float) -> float:
        return np.exp(-x * x / s2 + x * x / 2) / (s2 * np.sqrt(2 * np.pi))

    moment = quad(squared, -60, 60, epsabs=1e-14, epsrel=1e-13)[0]
    assert moment == pytest.approx(1 / (s2 * np.sqrt(2 / s2 - 1)), rel=1e-12)
    assert moment**1000 == pytest.approx(152, abs=0.5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Regression([Group(0.8, np.ones(3)), Group(0.1, np.ones(3))], np.ones(3), 5),
            "the shares of 2 groups sum to 0.9, expected 1; divide each by their sum",
        ),
        (lambda: Regression([Group(1.0, np.ones(3))], np.ones(4), 5), r"sizes \[3, 4\], expected one size p"),
        (lambda: Group(1.0, -np.ones(3)), "expected p variances from 0 on .a diagonal covariance., or a"),
        (lambda: Group(1.0, np.ones(3), weight=0.0), "weight: found 0, expected a number above 0"),
        (
            lambda: ridge_risk(Regression([Group(1.0, np.ones(5))], np.ones(5), 5)),
            "5 samples of inputs with 5 directions out of 5 do not determine a unique fit without a ridge",
        ),
        (
            lambda: simulate_ridge(Regression([Group(0.5, np.ones(3))] * 2, np.ones(3), 5, 0.1)),
            "samples are not whole numbers; simulate another",
        ),
    ],
)
def test_bad_input_is_one_line(build, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_nearly_as_many_samples_as_directions_is_said() -> None:
    risk = ridge_risk(Regression([Group(1.0, np.ones(103), noise=1.0)], np.ones(103), 100))
    assert risk.outcome == Outcome.ILL_CONDITIONED
    assert "give a ridge" in risk.remark


def simulated(case: dict, sizes: tuple[int, ...], seeds: tuple[int, ...]) -> list[float]:
    runs = [simulate_ridge(two_groups(p, **case), seeds=k) for p, k in zip(sizes, seeds, strict=True)]
    # The limit of each size's own spectrum: what is left is of order 1/p.
    limits = [ridge_risk(two_groups(p, **case)) for p in sizes]
    family = []
    for name in ("bias", "variance"):
        ratios = [getattr(m, name) / getattr(t, name) for m, t in zip(runs, limits, strict=True)]
        family.append(z_score(1.0, sizes, ratios))
    return family


def test_simulations_tend_to_the_theory() -> None:
    """Two covariances, weights, unequal noise, interpolation: extrapolated in 1/p, seeds 0 to K-1."""
    cases = [
        {"weights": (0.25, 4.0), "ridge": 0.01},
        {"weights": (1.0, 1.0), "ridge": 0.1},
        {"weights": (0.25, 2.0), "ridge": 1.0, "noises": (0.1, 0.9)},
        {"weights": (0.25, 4.0), "ridge": 0.1, "ratio": 0.5, "noises": (0.9, 0.1)},
        {"ridge": 0.0, "ratio": 0.5},
    ]
    family = [z for case in cases for z in simulated(case, (40, 80, 160), (96, 48, 24))]
    assert holds(family), family


def test_covariances_without_common_eigenvectors() -> None:
    """The same with a rotated second group: resolvents are true matrices."""
    family = []
    for weights in ((1.0, 1.0), (0.25, 4.0)):
        sizes, ratios = (30, 60, 120), []
        for p, seeds in zip(sizes, (128, 64, 32), strict=True):
            plain = two_groups(p, weights)
            turn = np.linalg.qr(np.random.default_rng(p).standard_normal((p, p)))[0]
            second = turn @ np.diag(plain.groups[1].covariance) @ turn.T
            groups = [plain.groups[0], Group(0.2, second, weights[1], 0.3)]
            problem = Regression(groups, plain.signal, plain.samples, 0.05, mixture(groups, (0.2, 0.8)))
            ratios.append((simulate_ridge(problem, seeds), ridge_risk(problem)))
        for name in ("bias", "variance"):
            measured = [getattr(m, name) / getattr(t, name) for m, t in ratios]
            family.append(z_score(1.0, sizes, measured))
    assert holds(family), family
