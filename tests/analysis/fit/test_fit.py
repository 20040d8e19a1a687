"""`fit_law(spectrum, law)` and the decision: numbers by a second route, labels on spectra of known origin."""

import numpy as np
import pytest
from oracles.beta_laguerre import beta_laguerre
from scipy import stats

from attnlaw.analysis.fit import FITS, LAWS
from attnlaw.analysis.fit.describe import describe
from attnlaw.analysis.fit.fit import FITTERS, fit_law
from attnlaw.analysis.fit.null import null_shape, shape_ratio
from attnlaw.analysis.fit.tail import ks_distance
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.core.quantity import to_cells
from attnlaw.spectra.exact import matrix_spectrum
from attnlaw.spectra.factored import product_spectrum
from attnlaw.spectra.spectrum import Spectrum


def head(seed=0, size=128, inner=32):
    rng = np.random.default_rng(seed)
    return product_spectrum(rng.standard_normal((size, inner)), rng.standard_normal((inner, size)))


def matrix(seed=0, rows=60, cols=90):
    return matrix_spectrum(np.random.default_rng(seed).standard_normal((rows, cols)))


def of_values(values, shape, route):
    return Spectrum(np.sort(np.asarray(values, dtype=float))[::-1], shape, 1.0, 1.0, route)


def heavy(kappa=1.5, size=80):
    return of_values(np.sqrt(beta_laguerre(size, kappa, 0.25, seed=1)), (size, 4 * size), "svd")


@pytest.mark.parametrize("spectrum", [head(), matrix(), heavy()])
@pytest.mark.parametrize("law", FITTERS)
def test_every_law_gives_a_fit_or_says_why_not(spectrum, law):
    fit = fit_law(spectrum, law)
    assert fit.law == law
    assert fit.outcome is Outcome.DONE or fit.remark
    assert set(fit.errors) <= set(fit.parameters)
    for value in (*fit.parameters.values(), *fit.errors.values(), *fit.statistics.values(), fit.ks):
        assert value is None or np.isfinite(value)
    if fit.ks is not None:
        assert 0 < fit.ks < 1
    if fit.curve is not None:
        x, density = fit.curve
        assert x.size == density.size <= 64
        assert (np.diff(x) > 0).all()
        assert (density >= 0).all()


@pytest.mark.parametrize("spectrum", [head(), matrix()])
def test_noise_is_random_by_every_measure(spectrum):
    fit = fit_law(spectrum, "random")
    assert fit.p_value > 0.01
    assert fit.statistics["outliers"] == 0
    # Rigid spectra lie within about 1/n of their law.
    assert fit.ks < 3 / fit.size
    assert fit.errors["scale"] < 0.05 * fit.parameters["scale"]


def test_log_likelihoods_are_in_units_of_one_variable():
    """All laws give densities of eigenvalues: scaling the matrix by c lowers each mean log by 2 ln c."""
    for law in FITTERS:
        small = of_values(head(4).values, (128, 128), "qr")
        large = of_values(10 * head(4).values, (128, 128), "qr")
        small_fit, other = fit_law(small, law), fit_law(large, law)
        if small_fit.log_likelihood is None:
            assert other.log_likelihood is None
        else:
            assert small_fit.log_likelihood - other.log_likelihood == pytest.approx(2 * np.log(10), abs=1e-9)


def test_power_law_log_likelihood_is_scipys():
    spectrum = heavy()
    fit = fit_law(spectrum, "power-law")
    x = spectrum.values**2
    tail = x[x >= fit.parameters["x_min"]]
    peer = stats.pareto(fit.parameters["alpha"] - 1, scale=fit.parameters["x_min"])
    assert fit.log_likelihood == pytest.approx(peer.logpdf(tail).mean())
    assert fit.errors["alpha"] == pytest.approx((fit.parameters["alpha"] - 1) / np.sqrt(tail.size))


def test_curves_hold_the_mass_they_claim():
    spectrum = heavy(size=200)
    x, density = fit_law(spectrum, "heavy-tailed").curve
    low, high = spectrum.values[-1] ** 2, (1.05 * spectrum.values[0]) ** 2
    assert np.trapezoid(density, x) == pytest.approx(
        1.0, abs=0.02 + np.mean(spectrum.values**2 < low) + 1 / 200
    )
    assert high > low
    tail = fit_law(spectrum, "power-law")
    x, density = tail.curve
    beyond = (x[-1] / x[0]) ** (-2 * (tail.parameters["alpha"] - 1))
    assert np.trapezoid(density, x) == pytest.approx(tail.size / 200 * (1 - beyond), rel=0.01)


def test_ks_distance_is_scipys():
    values = np.sort(np.random.default_rng(1).random(50))
    assert ks_distance(values) == pytest.approx(stats.kstest(values, "uniform").statistic)


def test_bad_requests_are_refused():
    with pytest.raises(InputError, match="expected one of random, power-law"):
        fit_law(head(), "gamma")
    with pytest.raises(InputError, match=r"spectrum was approximated, .*; audit without --approximate"):
        fit_law(of_values(np.ones(4), (4, 4), "lanczos"), "random")
    with pytest.raises(
        InputError, match=r"squares of singular values near 1e\+200 are out of the range of float64"
    ):
        fit_law(of_values(1e200 * np.ones(4), (4, 4), "svd"), "random")
    with pytest.raises(InputError, match="seed: found -1, expected a whole number of at least 0"):
        fit_law(head(), "random", seed=-1)


def test_decision_on_spectra_of_known_origin():
    """One spectrum, or two, for every name that a row may hold, and no other name."""
    rng = np.random.default_rng(2)
    size = 256
    factor, blur = rng.standard_normal((size, 64)), rng.standard_normal((size, size))
    seen = factor @ factor.T / np.sqrt(64 * size) + 0.3 * (blur + blur.T) / np.sqrt(2 * size)
    learned = np.linalg.eigvalsh(seen) - 0.55
    two_steps = np.concatenate([np.linspace(1, 1.01, 32), np.linspace(2, 2.01, 32)])
    pareto, most = (
        np.sqrt(np.concatenate([rng.pareto(1.2, tail) + 1, rng.uniform(0.9, 1.0, 400 - tail)]))
        for tail in (150, 300)
    )
    origins = {
        "random": [head(), matrix()],
        "learned": [of_values(learned[learned > 0], (size, size), "qr")],
        "heavy-tailed": [heavy()],
        "power-law tail": [of_values(pareto, (400, 800), "svd")],
        "power-law spectrum": [of_values(most, (400, 800), "svd")],
        "neither": [of_values(two_steps, (size, size), "qr")],
    }
    assert tuple(origins) == tuple(LAWS)
    for law, spectra in origins.items():
        assert [describe(spectrum).law for spectrum in spectra] == [law] * len(spectra)


def test_spectra_lighter_than_the_null_are_not_heavy_tailed():
    """Unequal sides, one factor made flatter: a kappa below 2, and a second moment below the null's."""
    rng = np.random.default_rng(1)
    for _ in range(3):
        u, s, v = np.linalg.svd(rng.standard_normal((256, 64)), full_matrices=False)
        spectrum = product_spectrum((u * s**0.8) @ v, rng.standard_normal((64, 1024)))
        fit = fit_law(spectrum, "heavy-tailed")
        squares = spectrum.values**2 / np.mean(spectrum.values**2)
        assert np.mean(squares**2) < 1 + 64 / 256 + 64 / 1024
        assert fit.statistics["kappa_null"] < fit.parameters["kappa"] < 2
        assert not fit.statistics["heavier"]
        assert describe(spectrum).law != "heavy-tailed"


def test_degenerate_spectra_have_rows_too():
    """What cannot be tested has no law; equal values are tested, and like nothing that is known."""
    for values, law in ((np.zeros(16), None), (np.ones(16), "neither"), (np.ones(1), None)):
        description = describe(of_values(values, (64, 64), "qr"))
        assert description.law == description.numbers["law"] == law
        assert (description.numbers["status"] == "done") == (law is not None)
        assert description.numbers["remark"]
    assert describe(of_values(np.ones(16), (64, 64), "qr")).numbers["random_p_value"] == pytest.approx(
        1 / 201
    )


def test_fresh_products_whose_inner_size_exceeds_a_side_are_random():
    """Heads wider than the model, updates of a rank above a side: 60 of them, a null of their own each."""
    shapes = ((24, 24, 48), (16, 40, 32), (16, 24, 80))
    rng = np.random.default_rng(3)
    rejected, tested = 0, 20
    for rows, cols, inner in shapes:
        for seed in range(tested):
            spectrum = product_spectrum(
                rng.standard_normal((rows, inner)), rng.standard_normal((inner, cols))
            )
            rejected += fit_law(spectrum, "random", seed).p_value <= 0.01
        assert null_shape(spectrum) == f"{rows} x {cols} through {inner}"
        assert shape_ratio(spectrum) == rows / max(cols, inner)
    assert stats.binom.sf(rejected - 1, tested * len(shapes), 2 / 201) > 0.001


def test_round_off_of_a_rank_deficient_head_is_no_scale():
    """Rank 10 of 64, by a product that leaves round-off and by factors that are zero: the same numbers."""
    rng = np.random.default_rng(4)
    right = rng.standard_normal((64, 128))
    mixed, _ = np.linalg.qr(rng.standard_normal((64, 64)))
    pruned = np.zeros((128, 64))
    pruned[:, :10] = rng.standard_normal((128, 10))
    exact, rounded = product_spectrum(pruned, right), product_spectrum(pruned @ mixed, mixed.T @ right)
    assert exact.values[-1] == 0 < rounded.values[-1]
    for spectrum in (exact, rounded):
        fit = fit_law(spectrum, "random")
        assert fit.p_value == pytest.approx(1 / 201)
        assert fit.parameters["scale"] is fit.errors["scale"] is fit.curve is None
        assert fit.statistics["outliers"] is fit.statistics["edge"] is None
    assert fit_law(exact, "random").ks == pytest.approx(fit_law(rounded, "random").ks)


def test_laws_do_not_depend_on_the_scale_of_the_weights():
    """Powers of two scale exactly: every number is the same, those with a unit scaled."""
    rng = np.random.default_rng(5)
    left = rng.standard_normal((128, 32)) * np.geomspace(1e-4, 1.0, 32)
    right = rng.standard_normal((32, 128))
    large, small = (
        to_cells(FITS, describe(product_spectrum(left * scale, right)).numbers) for scale in (1.0, 2.0**-40)
    )
    units = dict.fromkeys(("null_scale", "null_edge", "edge_scale"), 2.0**-40) | {"x_min": 2.0**-80}
    for name, value in large.items():
        unit = units.get(name, 2.0**-40 if name.startswith(("noise_", "threshold")) else 1.0)
        if not name.startswith("log_likelihood"):
            same = pytest.approx(value * unit, rel=1e-9) if isinstance(value, float) else value
            assert small[name] == same
