"""Power-law and lognormal tails compared with scipy's distributions and adaptive quadrature."""

from __future__ import annotations

from functools import partial

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from attnlaw.core.errors import InputError
from attnlaw.theory.laws.tail_laws import Lognormal, PowerLaw

LEVELS = np.array([0.0, 1e-9, 0.1, 0.5, 0.99, 1 - 1e-12])


@pytest.mark.parametrize(("alpha", "x_min"), [(1.2, 0.3), (2.5, 1.0), (6.0, 40.0)])
def test_power_law_is_paretos(alpha: float, x_min: float) -> None:
    law, other = PowerLaw(alpha, x_min), stats.pareto(alpha - 1, scale=x_min)
    x = other.ppf(LEVELS)
    assert law.log_density(x) == pytest.approx(other.logpdf(x), abs=1e-12)
    assert law.cdf(x) == pytest.approx(other.cdf(x), abs=1e-14)
    assert law.quantile(LEVELS) == pytest.approx(x, rel=1e-9)
    assert (law.density(0.9 * x_min), law.cdf(0.9 * x_min)) == (0.0, 0.0)
    assert law.quantile(1.0) == np.inf


def test_moments_that_do_not_exist_are_infinite() -> None:
    law = PowerLaw(2.5, 2.0)
    assert law.moment(1) == pytest.approx(6.0)
    assert [law.moment(k) for k in (2, 3)] == [np.inf, np.inf]
    assert PowerLaw(2.0, 1.0).mean == np.inf


@pytest.mark.parametrize("alpha", [1.2, 2.0, 3.5, 8.0])
def test_transform_of_a_power_law_agrees_with_the_principal_value(alpha: float) -> None:
    law = PowerLaw(alpha, 2.0)
    x = law.quantile(np.array([0.05, 0.5, 0.95]))
    assert law.stieltjes(x) == pytest.approx(law.stieltjes_by_quadrature(x), rel=1e-9)
    z = np.array([1 + 1j, 3 + 0.5j, -2 - 0.1j, 50 + 40j])

    def integrand(t: mp.mpf, v: complex) -> mp.mpc:
        return (alpha - 1) / 2 * t ** (alpha - 1) / (v * t / 2 - 1)

    exact = [complex(mp.quad(partial(integrand, v=v), [0, 1])) for v in z.tolist()]
    # t = x_min/x: g = (alpha-1)/x_min int t^(alpha-1) / (z t/x_min - 1) dt.
    assert law.stieltjes(z) == pytest.approx(np.array(exact), rel=1e-9)


@pytest.mark.parametrize(
    ("mu", "sigma", "x_min"), [(0.3, 0.5, 0.0), (0.3, 0.5, 0.8), (-1.0, 2.0, 9.0), (0.0, 0.1, 1e-9)]
)
def test_lognormal_is_scipys_cut_off(mu: float, sigma: float, x_min: float) -> None:
    law, whole = Lognormal(mu, sigma, x_min), stats.lognorm(sigma, scale=np.exp(mu))
    levels = LEVELS[2:]  # scipy has no log-levels: 1 - 1e-9 would lose the digits of its reference
    x = whole.isf(whole.sf(x_min) * (1 - levels))
    assert law.log_density(x) == pytest.approx(whole.logpdf(x) - whole.logsf(x_min), abs=1e-10)
    assert 1 - law.cdf(x) == pytest.approx(whole.sf(x) / whole.sf(x_min), rel=1e-9, abs=1e-15)
    assert law.quantile(levels) == pytest.approx(x, rel=1e-9)
    assert law.quantile(0.0) == pytest.approx(x_min, rel=1e-12)


def test_a_far_tail_of_a_lognormal_stays_finite() -> None:
    law = Lognormal(0.0, 1.0, float(np.exp(45.0)))  # 45 standard deviations out: P(x > x_min) is 1e-442
    x, w = law.nodes()
    assert w.sum() == pytest.approx(1.0, abs=1e-12)
    assert w @ (x / law.x_min) == pytest.approx(law.moment(1) / law.x_min, rel=1e-10)


@pytest.mark.parametrize(
    "law", [Lognormal(0.3, 0.5), Lognormal(0.3, 0.5, 0.8), Lognormal(-1.0, 1.0, 3.0)], ids=str
)
def test_principal_value_of_a_lognormal(law: Lognormal) -> None:
    for level in (0.2, 0.5, 0.9):
        x = float(law.quantile(level))
        low, wide = max(law.x_min, 1e-8), x - max(law.x_min, 0.5 * x)

        def pair(t: float, x: float = x) -> float:
            return (float(law.density(x - t)) - float(law.density(x + t))) / t

        near = mp.quad(pair, [wide * 1e-6, wide / 8, wide])
        rest = mp.quad(
            lambda t, x=x: float(law.density(t)) / (x - t), [x + wide, 2 * x + wide, 6 * x, 40 * x, 4000 * x]
        )
        if x - wide > low:
            rest += mp.quad(
                lambda t, x=x: float(law.density(t)) / (x - t), [low, 0.5 * (low + x - wide), x - wide]
            )
        # Left out: |t| < 1e-6 wide, of size 2e-6 wide |rho'|; doubles inside mpmath's rule: 1e-9.
        assert law.stieltjes(x).real == pytest.approx(float(near + rest), abs=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PowerLaw(1.0, 1.0),
        lambda: PowerLaw(2.0, 0.0),
        lambda: Lognormal(0.0, 0.0),
        lambda: Lognormal(np.nan, 1.0),
        lambda: Lognormal(0.0, 1.0, -1.0),
        lambda: PowerLaw(2.0, 1.0).quantile(1.1),
        lambda: Lognormal(0.0, 1.0).quantile(-0.1),
    ],
)
def test_bad_parameters_are_refused(make: object) -> None:
    with pytest.raises(InputError):
        make()  # type: ignore[operator]
