"""Errors of proxies of approximate spectra: by brute force over probes and norms, and against exact ones."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from theory.bounds.plain_numbers import errors, logs

from attnlaw.checkpoints.network import Heads, Layer, Maps, Network
from attnlaw.core.estimate import Estimate
from attnlaw.spectra import matrix_spectrum, product_spectrum
from attnlaw.spectra.approximate import approximate_spectrum
from attnlaw.spectra.spectrum import Applied
from attnlaw.theory.bounds import BOUNDS
from attnlaw.theory.bounds.factors import lipschitz
from attnlaw.theory.bounds.log_errors import LogError, combine_log_errors
from attnlaw.theory.bounds.proxies import proxies

N, WIDTH, DEPTH = 200, 240, 2
NAMES = tuple(BOUNDS)


def weights(seed=3):
    """Thin factors of a head and the feed-forward matrices of each layer, with decaying columns."""
    rng = np.random.default_rng(seed)
    layers = []
    for _ in range(DEPTH):
        thin = [0.3 * rng.standard_normal((N, 4)) for _ in range(4)]
        maps = [
            gain * rng.standard_normal(shape) / np.arange(1.0, shape[1] + 1) ** 0.7
            for gain, shape in ((0.05, (N, WIDTH)), (0.2, (WIDTH, N)))
        ]
        layers.append((thin, maps))
    return layers


def network(layers, spectrum_of):
    """Heads by their thin factors; `spectrum_of(matrix, number)` measures feed-forward matrices."""
    built = []
    for number, (thin, (inner, outer)) in enumerate(layers):
        qk, vo = product_spectrum(thin[0], thin[1].T), product_spectrum(thin[2], thin[3].T)
        measured = (spectrum_of(inner, 2 * number), spectrum_of(outer, 2 * number + 1))
        built.append(Layer(number, Heads((qk,), (vo,)), feed_forward=Maps(*measured)))
    return Network(tuple(built), tuple(range(DEPTH)), (N,), "gelu")


@cache
def drawn(seed):
    """The network with Lanczos spectra."""
    return network(weights(), lambda matrix, number: approximate_spectrum(matrix, 10 * seed + number))


def approximate(seed=0, bound=None):
    """The same, `bound` the relative error of their norms, unless their own."""
    if bound is None:
        return drawn(seed)

    def bounded(_, spectrum):
        multiplicities = spectrum.multiplicities
        if multiplicities is None:
            return spectrum
        return replace(
            spectrum, multiplicities=replace(multiplicities, spectral_error=bound * spectrum.spectral)
        )

    return drawn(seed).map(bounded)


def changed(whole, layer, name, spectrum):
    layers = list(whole.layers)
    block = replace(layers[layer].feed_forward, **{name: spectrum})
    layers[layer] = replace(layers[layer], feed_forward=block)
    return replace(whole, layers=tuple(layers))


def adaptivities(proxy_set):
    """The values of adaptivity: of the network, then of its layers."""
    return proxy_set.adaptivity, *proxy_set.per_layer_adaptivity


def vector(whole):
    """The logarithms of all proxies, then the values of adaptivity."""
    proxy_set = proxies(whole)
    return np.array([*logs(proxy_set).values(), *(estimate.value for estimate in adaptivities(proxy_set))])


def averaged(spectrum):
    """A spectrum of the same values, whose two probes are both the mean of its own: errors cost little."""
    multiplicities = spectrum.multiplicities
    return replace(
        spectrum,
        multiplicities=replace(multiplicities, weights=multiplicities.weights.mean(axis=0)[None][[0, 0]]),
    )


def brute_force(whole):
    """The errors of `vector`: each matrix by each of its probes alone, by its lower rule and with its norm
    raised, everything evaluated anew. Of the others only the values matter, so their probes are averaged."""
    value = vector(whole)
    plain = replace(
        whole,
        layers=tuple(
            replace(
                layer,
                feed_forward=Maps(averaged(layer.feed_forward.inner), averaged(layer.feed_forward.outer)),
            )
            for layer in whole.layers
        ),
    )
    assert vector(plain) == pytest.approx(value, rel=1e-12)
    squares, bound = 0.0, 0.0
    for layer, name in ((layer, name) for layer in range(DEPTH) for name in ("inner", "outer")):
        spectrum = getattr(whole.layers[layer].feed_forward, name)
        multiplicities = spectrum.multiplicities
        raised = np.append(spectrum.values[0] + multiplicities.spectral_error, spectrum.values[1:])
        probes = [
            replace(spectrum, multiplicities=replace(multiplicities, weights=row[[0, 0]]))
            for row in multiplicities.weights[:, None]
        ]
        others = [
            replace(
                spectrum,
                values=multiplicities.lower_values,
                multiplicities=replace(multiplicities, weights=multiplicities.lower_weights),
            ),
            replace(spectrum, values=raised),
        ]
        varied = (*probes, *map(averaged, others))
        vectors = [vector(changed(plain, layer, name, other)) for other in varied]
        squares += np.var(vectors[:-2], axis=0, ddof=1) / len(probes)
        bound += np.abs(vectors[-2] - value) + np.abs(vectors[-1] - value)
    return np.sqrt(squares + bound**2)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [pytest.param(0.0, marks=pytest.mark.long), 1e-3])
def test_errors_are_those_of_the_sums(bound):
    """d ln(sum C + sqrt L) = sum (C / proxy) d ln C, to first order in errors of a per cent or less.

    Numerator and denominator of the value of adaptivity err together. The bounds of norms count as if each
    moved the ratio its own way, so there the error may be larger.
    """
    whole = approximate(bound=bound)
    proxy_set = proxies(whole)
    log_errors = errors(proxy_set)
    assert tuple(log_errors) == NAMES
    expected = brute_force(whole)
    assert list(log_errors.values()) == pytest.approx(expected[: len(NAMES)], rel=0.05, abs=1e-10)
    # Frobenius norms and norms of entries are exact but for the norms in gamma and alpha; ranks never are.
    assert min(log_errors["fixed_p_0"], log_errors["fixed_p_1"]) > 1e-5
    assert (log_errors["fixed_p_2"] > 1e-5) == (log_errors["edelman"] > 1e-5) == (bound > 0)
    ratios = np.array([estimate.error for estimate in adaptivities(proxy_set)])
    assert proxy_set.adaptivity.value > 1.01
    assert (ratios >= 0.95 * expected[len(NAMES) :] - 1e-10).all()
    if not bound:
        assert ratios == pytest.approx(expected[len(NAMES) :], rel=0.05, abs=1e-10)


@pytest.mark.slow
def test_the_bound_of_alpha_and_gamma_by_hand():
    """alpha of the first layer holds two approximate norms, gamma of QK and VO two, of M_in one."""
    e = np.log1p(1e-3)
    proxy_set, without = proxies(approximate(bound=1e-3)), proxies(approximate(bound=0.0))
    assert tuple(alpha.error for alpha in proxy_set.log_alpha) == pytest.approx((2 * e, 0.0), abs=1e-12)
    expected = {"qk": 2 * e, "vo": 2 * e, "ffn_in": e, "ffn_out": 0.0}
    for part, bracketed in zip(proxy_set.parts, without.parts, strict=True):
        gamma, alpha = (
            expected[part.factors.location.kind],
            2 * e if part.factors.location.layer == 0 else 0.0,
        )
        assert part.factors.log_gamma.error == pytest.approx(gamma, abs=1e-12)
        assert part.factors.log_alpha.error == pytest.approx(alpha, abs=1e-12)
        added = part.log_error.bound - bracketed.log_error.bound
        assert added == pytest.approx(part.p / (part.p + 2) * (gamma + alpha), abs=1e-12)


@pytest.mark.slow
def test_the_errors_cover_the_exact_proxies():
    """Scores over seeds are t variables with 15 degrees of freedom or more: root mean square about one, or
    less where quadrature errors are bounds; beyond 5.5 once in 10,000."""
    exact = proxies(network(weights(), lambda matrix, number: matrix_spectrum(matrix)))
    assert set(errors(exact).values()) == {None}
    scores = {name: [] for name in NAMES}
    for seed in range(20):
        proxy_set = proxies(approximate(seed))
        for name, value in logs(proxy_set).items():
            scores[name].append((value - logs(exact)[name]) / (errors(proxy_set)[name] + 1e-12))
        gap = abs(proxy_set.adaptivity.value - exact.adaptivity.value)
        assert gap <= 5.5 * proxy_set.adaptivity.error + 1e-12
    for values in scores.values():
        assert np.max(np.abs(values)) < 5.5
        assert np.sqrt(np.mean(np.square(values))) < 1.5


def test_a_layer_applied_twice_errs_twice_in_the_same_way():
    """One shared layer, counted per application: its two terms are one random number, not two."""
    layer = approximate(bound=0.0).layers[0]
    proxy_set = proxies(Network((layer,), (0, 0), (N,), "gelu").unroll())
    spread, bound = {"qk": [], "vo": [], "ffn_in": [], "ffn_out": []}, 0.0
    for part in proxy_set.parts:
        share = np.exp(part.log_curve[part.log_curve.size // 2] - logs(proxy_set)["fixed_p_1"])
        spread[part.factors.location.kind].append(share * part.fixed_log_errors[1].spread)
        bound += share * part.fixed_log_errors[1].bound
    assert min(spread["ffn_in"] + spread["ffn_out"]) > 1e-6
    expected = np.sqrt(sum(sum(values) ** 2 for values in spread.values()) + bound**2)
    assert errors(proxy_set)["fixed_p_1"] == pytest.approx(expected, rel=1e-6)


def test_zero_matrices_beside_approximate_ones_add_no_error():
    """In the dead expert M_in and the gate are approximate, and of scale 0; the live one is exact."""
    inner = approximate_spectrum(weights()[0][1][0])
    zero = matrix_spectrum(np.zeros((WIDTH, N)))
    head = product_spectrum(np.eye(N, 4), np.eye(4, N))
    live = matrix_spectrum(2 * np.eye(N))
    experts = (Maps(inner, zero, gate=inner), Maps(live, live))
    layer = Layer(0, Heads((head,), (head,)), experts=experts)
    proxy_set = proxies(Network((layer,), (0,), (N,), "relu"))
    dead = proxy_set.parts[2]
    assert dead.factors.location.kind == "ffn_in"
    assert dead.log_value == -np.inf
    assert dead.log_error == LogError(0.0, 0.0)
    assert [value for name, value in errors(proxy_set).items() if name != "fixed_p_0"] == [0.0] * (
        len(NAMES) - 1
    )
    # At p = 0 the ranks of two approximate matrices still count: ln C(0) is half of ln(rank).
    rank = inner.schatten_sum(0.0)
    share = np.exp(dead.log_curve[0] - logs(proxy_set)["fixed_p_0"])
    uncertain = -np.log1p(-inner.bracket(lambda spectrum: spectrum.schatten_sum(0.0)) / rank) / 2
    assert uncertain > 1e-4
    assert errors(proxy_set)["fixed_p_0"] == pytest.approx(2 * share * uncertain, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("decay", [6.0, 8.0])
def test_an_uncertain_rank_does_not_win_with_a_small_error(decay):
    """Feed-forward matrices with geometric spectra, some values below the tolerance and more below what
    Lanczos resolves: every proxy, and the choice of p within it, errs in the same way in every matrix."""
    rng = np.random.default_rng(5)
    values = 5 * np.exp(-np.arange(1, N + 1) / decay)
    layers = []
    for thin, _ in weights():
        left, right = (np.linalg.qr(rng.standard_normal((WIDTH, N)))[0] for _ in range(2))
        layers.append((thin, ((left[:N] * values) @ right.T, (left * values) @ right[:N].T)))
    exact = proxies(network(layers, lambda matrix, number: matrix_spectrum(matrix)))
    for seed in range(3):
        measured = network(
            layers, lambda matrix, number, seed=seed: approximate_spectrum(matrix, 9 * seed + number)
        )
        proxy_set = proxies(measured)
        for name, value in logs(proxy_set).items():
            assert abs(value - logs(exact)[name]) <= 3 * errors(proxy_set)[name] + 1e-9, name
        assert abs(proxy_set.adaptivity.value - exact.adaptivity.value) <= 3 * proxy_set.adaptivity.error
        assert logs(proxy_set)["fixed_p_0"] - logs(exact)["fixed_p_0"] > 0.05
        for part, truth in zip(proxy_set.parts, exact.parts, strict=True):
            assert abs(part.log_value - truth.log_value) <= 3 * part.log_error.total + 1e-9


def test_independent_errors_add_in_squares_and_common_ones_as_they_are():
    terms = [("a", 0.5, LogError(0.06, 0.01)), ("b", -0.5, LogError(0.08, 0.02))]
    assert combine_log_errors(terms) == pytest.approx(np.hypot(0.05, 0.015))
    assert combine_log_errors([*terms, terms[0]]) == pytest.approx(np.sqrt(0.06**2 + 0.04**2 + 0.02**2))


def test_amplification_as_applied_errs_by_its_norms_and_is_missing_where_one_is():
    """Every norm doubled: a layer's factor is Lphi 4 c2(M_in) c2(M_out) sum_h 2 c2(VO_h) (1 + 8 c2(QK_h))."""
    stored = approximate(bound=0.0)
    upper = {"ffn_in": 1e-3, "ffn_out": None, "qk": None, "vo": None}

    def folded(location, spectrum):
        norm = 2 * spectrum.spectral
        relative = upper[location.kind]
        size = Estimate(norm, None if relative is None else relative * norm)
        return replace(spectrum, applied=Applied(size, 1.0))

    network = stored.map(folded)
    proxy_set = proxies(network)
    layer = network.layers[1]
    heads = sum(
        2 * vo.spectral * (1 + 8 * qk.spectral)
        for qk, vo in zip(layer.attention.qk, layer.attention.vo, strict=True)
    )
    maps = 4 * layer.feed_forward.inner.spectral * layer.feed_forward.outer.spectral
    expected = np.log(lipschitz(network.activation) * maps * heads)
    assert [alpha.value for alpha in proxy_set.log_alpha_applied] == pytest.approx([expected, 0.0], rel=1e-12)
    stated = [alpha.error for alpha in proxy_set.log_alpha_applied]
    assert stated == pytest.approx([np.log1p(1e-3), 0.0], abs=1e-12)
    assert proxy_set.log_alpha == proxies(stored).log_alpha
    assert proxies(stored).log_alpha_applied is None
