"""The laws of multi-head attention: reference values, free cumulants, one head, softmax draws, spikes."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from scipy.stats import kstest
from theory.laws.attention_draws import attention_spectrum

from attnlaw.core.errors import InputError
from attnlaw.theory.laws.attention_matrix import AttentionMatrixLaw, random_attention
from attnlaw.theory.laws.law import Law
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.theory.laws.tied_values import TiedValuesLaw

# Edges, moments 1 to 3, and the density at quarters between the edges, worked out by scripts (quadrature of
# the density against free cumulants, two also by continuation from infinity) before these laws were written.
REFERENCE: list[tuple[Law, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = [
    (
        MultiHeadLaw(1.0, 4, 16.0),
        (".4120302", "4.0270740"),
        ("1.7182818", "3.7531156", "9.6018291"),
        (".4138580", ".2721078", ".1612603"),
    ),
    (
        MultiHeadLaw(1.0, 16, 16.0),
        (".8927596", "2.8983232"),
        ("1.7182818", "3.1995232", "6.3904792"),
        (".7224936", ".5718033", ".3680118"),
    ),
    (
        MultiHeadLaw(1.0, 16, 16.0, 16.0, 16.0),
        ("9.4135966", "61.1758516"),
        ("27.492509", "913.5577", "35025.7"),
        (".0299932", ".0184659", ".0103032"),
    ),
    (
        MultiHeadLaw(1.0, 16, 16.0, 16.0, 1.0),
        ("0", "7.8038367"),
        ("1.7182818", "6.3365464", "29.958602"),
        (".1374478", ".0704933", ".0370663"),
    ),
    (
        MultiHeadLaw(1.0, 12, 1.5, 1.5, 1.5),
        (".0130767", "16.0603787"),
        ("2.5774227", "17.554178", "163.29586"),
        (".0527152", ".0226429", ".0108330"),
    ),
    (
        MultiHeadLaw(0.5, 8, 0.5, 0.5, 2.0),
        (".0173607", "6.9278508"),
        (".56805083", "1.6697213", "6.7191905"),
        (".0612972", ".0266803", ".0128977"),
    ),
    (
        TiedValuesLaw(1.0, 16, 16.0, 16.0),
        ("13.3028471", "103.6887999"),
        ("43.492509", "2365.2581", "151228.6"),
        (".01715401", ".00999629", ".00542565"),
    ),
    (
        TiedValuesLaw(1.0, 8, 2.0, 0.5),
        (".2440285", "24.9851042"),
        ("2.8591409", "31.68781", "464.74013"),
        (".02348985", ".01073113", ".00528100"),
    ),
]


def same(value: float, printed: str) -> None:
    """Compare to half a unit of the last printed digit, plus rounding."""
    digits = len(printed.partition(".")[2])
    assert value == pytest.approx(float(printed), abs=0.51 * 10.0**-digits)


@pytest.mark.parametrize(("law", "edges", "moments", "densities"), REFERENCE)
def test_reference_values(
    law: Law, edges: tuple[str, ...], moments: tuple[str, ...], densities: tuple[str, ...]
) -> None:
    ((low, high),) = law.intervals
    for value, printed in zip((low, high), edges, strict=True):
        same(value, printed)
    for order, printed in enumerate(moments, start=1):
        same(law.moment(order), printed)
    places = low + (high - low) * np.array([0.25, 0.5, 0.75])
    for value, printed in zip(law.density(places), densities, strict=True):
        same(float(value), printed)


def free_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Moments 1 to 3 of the free product of two laws of mean one (sums over non-crossing partitions)."""
    second = a[1] + b[1] - 1
    third = b[2] + 3 * (a[1] - 1) * b[1] + a[2] - 3 * a[1] + 2
    return np.array([1.0, second, third])


def plain_moments(a: float) -> np.ndarray:
    """Return the moments of the Marchenko-Pastur law of mean one with ratio 1/a."""
    return np.array([1.0, 1 + 1 / a, 1 + 3 / a + 1 / a**2])


def moments_by_cumulants(law: MultiHeadLaw) -> np.ndarray:
    """Return the moments of the law of `1 - c + c X` times a Marchenko-Pastur law for each factor."""
    c = law.beta**2 / law.theta
    x = np.append(1.0, plain_moments(law.key_ratio))
    moments = np.array(
        [sum(comb(q, j) * c**j * (1 - c) ** (q - j) * x[j] for j in range(q + 1)) for q in (1, 2, 3)]
    )
    for a in (law.heads, law.value_ratio, law.output_ratio):
        if a is not None:
            moments = free_product(moments, plain_moments(a))
    return moments * law.mean ** np.arange(1, 4)


def tied_by_cumulants(law: TiedValuesLaw) -> np.ndarray:
    """Return moments from the free cumulants `h m_q` of the jumps, by quadrature over Marchenko-Pastur."""
    rate = law.key_ratio / law.heads
    base = MarchenkoPastur(rate)
    x, w = base.nodes()
    # The free Poisson law of this rate is what its nodes become when their mean is the rate.
    x = x * (rate / base.mean)
    phi = (law.theta - law.beta**2) * x + law.heads * law.beta**2 / law.key_ratio * x**2
    k = [law.heads * float(w @ phi**q) for q in (1, 2, 3)]
    raw = np.array([k[0], k[1] + k[0] ** 2, k[2] + 3 * k[0] * k[1] + k[0] ** 3])
    mean = raw[0]
    moments = raw / mean ** np.arange(1, 4)
    if law.output_ratio is not None:
        moments = free_product(moments, plain_moments(law.output_ratio))
        mean *= law.output_ratio / law.key_ratio
    return moments * mean ** np.arange(1, 4)


MULTI = [
    MultiHeadLaw(0.7, 3, 1.5),
    MultiHeadLaw(1.3, 1, 0.2),
    MultiHeadLaw(0.4, 5, 0.3, 0.8),
    MultiHeadLaw(1.0, 12, 1.5, 2.5, 0.6),
]
TIED = [
    TiedValuesLaw(0.7, 3, 1.5),
    TiedValuesLaw(1.0, 4, 9.0),
    TiedValuesLaw(0.5, 8, 0.5, 2.0),
    TiedValuesLaw(0.4, 32, 0.83, 1.0),
]


@pytest.mark.parametrize("law", MULTI)
def test_moments_are_those_of_free_cumulants(law: MultiHeadLaw) -> None:
    assert [law.moment(k) for k in (1, 2, 3)] == pytest.approx(moments_by_cumulants(law), rel=1e-12)
    assert law.mean == pytest.approx(law.moment(1), rel=1e-14)


@pytest.mark.parametrize("law", TIED)
def test_moments_of_tied_values_are_those_of_free_cumulants(law: TiedValuesLaw) -> None:
    assert [law.moment(k) for k in (1, 2, 3)] == pytest.approx(tied_by_cumulants(law), rel=1e-11)
    assert law.mean == pytest.approx(law.moment(1), rel=1e-13)


@pytest.mark.parametrize("head_size", [None, 5, 200])
def test_the_architecture_is_in_the_second_moment(head_size: int | None) -> None:
    """arXiv 2610.10033, (C.16): `m2/m1^2 - 1` is a sum over the layer's parts; a Hermite term adds one."""
    law = MultiHeadLaw(0.8, 6, 0.7, 1.1, 2.0, head_size=head_size)
    b, theta = 0.64, np.expm1(0.64)
    expected = 1 / 6 + 1 / 1.1 + 1 / 2.0 + (b / theta) ** 2 / 0.7
    if head_size is not None:
        expected += (b**2 / 2 / theta) ** 2 / (0.7 * (head_size + 1) / 2)
    assert law.moment(2) / law.mean**2 - 1 == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("beta", "t"), [(1.0, 1.0), (1.0, 0.064), (0.3, 5.0), (2.0, 0.5)])
def test_one_head_has_the_law_of_an_attention_matrix(beta: float, t: float) -> None:
    law, known = MultiHeadLaw(beta, 1, t), AttentionMatrixLaw(beta, t)
    assert len(law.intervals) == len(known.intervals)
    for interval, other in zip(law.intervals, known.intervals, strict=True):
        assert interval == pytest.approx(other, rel=1e-12)
    for low, high in known.intervals:
        x = low + (high - low) * np.array([0.01, 0.2, 0.5, 0.9])
        assert law.density(x) == pytest.approx(known.density(x), rel=1e-11)
    assert law.moment(4) == pytest.approx(known.moment(4), rel=1e-12)


def test_wide_heads_need_no_second_term() -> None:
    first, second = MultiHeadLaw(0.8, 4, 2.0), MultiHeadLaw(0.8, 4, 2.0, head_size=9999)
    assert second.support == pytest.approx(first.support, rel=1e-3)
    assert MultiHeadLaw(0.8, 4, 2.0, head_size=9).support[1] > 1.002 * first.support[1]


def test_one_root_passes_and_far_away_it_is_the_transform_of_the_mean() -> None:
    rng = np.random.default_rng(5)
    for law in (MULTI[2], MULTI[3], MultiHeadLaw(0.9, 8, 0.3, head_size=8)):
        z = rng.uniform(-3, 9, 200) - 1j * 10 ** rng.uniform(-3, 1, 200)
        _, passes, residual = law.map._candidates(z)
        assert ((passes & (residual < 1e-9)).sum(-1) == 1).all()
        far = 1e7 * law.mean
        # g = 1/z + m1/z^2 + ..., the next term is 1e-14 of the first.
        assert law.stieltjes(far) == pytest.approx((1 + 1e-7) / far, rel=1e-12)


@pytest.mark.parametrize("law", [*MULTI, *TIED])
def test_random_laws_have_mass_one_and_their_mean(law: Law) -> None:
    x, w = law.nodes()
    assert w.sum() + law.mass_of_atoms == pytest.approx(1.0, abs=1e-11)
    assert w @ x == pytest.approx(law.mean, rel=1e-11)
    assert law.density(np.array([law.support[1] * (1 + 1e-9)])) == 0.0


def test_atoms_are_what_the_rank_leaves() -> None:
    assert MultiHeadLaw(1.0, 4, 0.1).atoms == ()
    assert MultiHeadLaw(1.0, 4, 0.1, 0.3).mass_of_atoms == pytest.approx(0.7)
    assert MultiHeadLaw(1.0, 4, 3.0, 0.3, 0.2).mass_of_atoms == pytest.approx(0.8)
    assert TiedValuesLaw(1.0, 4, 0.3, 0.5).mass_of_atoms == pytest.approx(0.7)
    assert TiedValuesLaw(1.0, 4, 3.0, 0.5).mass_of_atoms == pytest.approx(0.5)


def test_four_equal_factors_leave_a_density_that_is_integrated() -> None:
    # h = gV = gO = 1: like x^(-3/4) at zero, the hardest edge there is.
    law = MultiHeadLaw(0.9, 1, 1.9, 1.0, 1.0, head_size=8)
    assert law.nodes()[1].sum() == pytest.approx(1.0, abs=1e-11)
    x = np.array([1e-16, 1e-14, 1e-12])
    scaled = law.density(x) * x**0.75
    assert scaled == pytest.approx(np.full(3, scaled[0]), rel=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("tokens", "head_size", "beta", "first", "second"), [
    (512, 32, 0.12, 0.17, 0.04),
    (1000, 64, 0.5, 0.09, 0.035),
    (1000, 64, 1.0, 0.10, 0.07),
])  # fmt: skip
def test_the_second_term_cures_narrow_heads(
    tokens: int, head_size: int, beta: float, first: float, second: float
) -> None:
    """The distances are those of one softmax head, drawn by another script (two digits)."""
    values = attention_spectrum(random_attention(tokens, head_size, beta, seed=2))
    for expected, kept in ((first, None), (second, head_size)):
        law = MultiHeadLaw(beta, 1, head_size / tokens, head_size=kept)
        # Draws differ by a few values of n; the printed ones are rounded.
        assert kstest(values, law.cdf).statistic == pytest.approx(expected, abs=0.006 + 4 / tokens)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiHeadLaw(0.0, 4, 1.0), "beta"),
        (lambda: MultiHeadLaw(6.0, 4, 1.0), "beta"),
        (lambda: MultiHeadLaw(1.0, 0, 1.0), "heads"),
        (lambda: MultiHeadLaw(1.0, 4, 0.0), "key ratio"),
        (lambda: MultiHeadLaw(1.0, 4, 1.0, output_ratio=1.0), "output ratio without a value ratio"),
        (lambda: TiedValuesLaw(1.0, 4, -1.0), "key ratio"),
        (lambda: TiedValuesLaw(1.0, 2.5, 1.0), "heads"),  # type: ignore[arg-type]
    ],
)
def test_bad_parameters_are_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
