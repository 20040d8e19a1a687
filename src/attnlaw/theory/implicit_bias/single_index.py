"""A single-index model learned from one score step, by a threshold or by factors that stop early.

Labels are y = f(<x, beta>) + noise with x ~ N(0, I_p), |beta| = 1 and s equal nonzero coefficients (arXiv
2007.08322). The score step is phi = mean y_i x_i. With g standard normal:

| here | meaning |
|---|---|
| mu | E f'(g) = E g f(g): E phi = mu beta, so the direction is identified and mu is not |
| power | E y^2 |
| tau | `threshold` times (2 ln p)^(1/2) |y|/n |

Given y, phi is exactly N(0, |y|^2/n^2) off the support, whatever the noise. On the support its variance is
`(E y^2 + beta_j^2 (E y^2 g^2 - E y^2 - mu^2))/n`. The risk is `sum_j E (beta_T(phi_j) - mu beta_j)^2`, where
beta_T is the learned coefficient. We treat phi as normal and replace |y|^2 by its mean (ours). At finite n
this is wrong by some per cent, and by more if f is not odd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting
from attnlaw.core.estimate import Estimate
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.variants import Variants, parse_positive, with_parameter
from attnlaw.numerics.draws import generators, mean_of
from attnlaw.numerics.quadrature import panels
from attnlaw.theory.implicit_bias.early_stopping import RULES, descend, stopping_time


@dataclass(frozen=True)
class Link:
    """The function f in the labels y = f(<x, beta>) + noise."""

    name: str
    function: Callable[..., Reals]
    example: str | None = None
    parameters: tuple[float, ...] = ()

    def at(self, parameter: str) -> Link:
        return with_parameter(self, parameter, parse_positive(parameter))


LINKS = Variants(
    Link("identity", lambda z: z),
    Link("relu", lambda z: np.maximum(z, 0.0)),
    Link("sin", np.sin),
    Link("wave", lambda z: np.asarray(z + 0.5 * np.sin(3 * z))),
    Link("tanh:G", lambda z, gain: np.tanh(gain * z), example="tanh:2"),
)


@settings_dataclass
class SingleIndex(Settings):
    """Labels that depend on one hidden direction with few nonzero coefficients, and a rule to estimate it.

    >>> SingleIndex(link="identity").signals
    10
    """

    link: str = setting(
        "tanh:2",
        "Link function f: labels are f(<x, β>) plus noise, for inputs x and a hidden direction β.",
        choices=LINKS,
    )
    samples: int = setting(1000, "Number of samples.", symbol="n", minimum=1)
    dimension: int = setting(2000, "Dimension of the inputs.", symbol="p", minimum=2)
    signals: int = setting(
        10,
        "Number of coefficients of the hidden direction that are not zero (all are equal).",
        symbol="s",
        minimum=1,
    )
    noise: float = setting(0.25, "Variance of the noise that is added to the labels.", symbol="σ²", minimum=0)
    rule: str = setting(
        "flow",
        "Rule that estimates the direction: gradient flow stopped early (flow), or a threshold on "
        "each coefficient.",
        choices=RULES,
    )
    threshold: float = setting(
        1.0,
        "Threshold below which the rule sets coefficients to zero, in units of √(2 ln p) ‖y‖/n (n "
        "labels y, p inputs).",
        symbol="c",
        greater_than=0,
    )
    init: float = setting(
        1e-6,
        "Size of the trained factors before training.",
        symbol="a",
        greater_than=0,
        active_if=("rule", "starts"),
    )

    def check(self) -> None:
        if self.signals > self.dimension:
            raise BadSetting("signals", "expected at most {dimension}", self.signals)


FAR = 10.0  # standard deviations; the mass beyond is below the precision of float64
NODES = 400


@dataclass(frozen=True)
class IndexPrediction:
    """The expected result of estimating the hidden direction with a rule.

    Args:
        risk: mean squared error |beta_T - mu beta|^2 of the learned coefficients beta_T.
        kept: number of coefficients above the threshold tau.
        false_positives: number of coefficients above the threshold that are zero in beta.
        slope: the mean slope mu of the function f.
    """

    problem: SingleIndex
    risk: float
    kept: float
    false_positives: float
    tau: float
    time: float | None
    slope: float

    def apply_rule(self, phi: ArrayLike) -> Reals:
        """Apply the rule to coefficients phi, or to the eigenvalues of a matrix."""
        rule = RULES[self.problem.rule].function
        return np.asarray(rule(np.asarray(phi, dtype=float), self.tau, self.problem.init))


@dataclass(frozen=True)
class MeasuredIndex:
    """Measured results: means over repetitions, with their standard errors."""

    risk: Estimate
    kept: Estimate
    false_positives: Estimate
    seeds: int


def moments(problem: SingleIndex) -> tuple[float, float, float]:
    """Return the moments mu = E g f(g), E y^2 and E y^2 g^2 of the labels y, where g is standard normal."""
    g, w = normal_nodes(0.0, 1.0, (0.0,))
    f, noise = apply_link(problem, g), problem.noise
    return float(w @ (g * f)), float(w @ f**2) + noise, float(w @ (g * f) ** 2) + noise


def apply_link(problem: SingleIndex, z: Reals) -> Reals:
    chosen = LINKS[problem.link]
    return chosen.function(z, *chosen.parameters)


def threshold(problem: SingleIndex, length: float) -> float:
    """Return the threshold tau for coefficients, given the norm |y| = `length` of the labels."""
    return problem.threshold * float(np.sqrt(2 * np.log(problem.dimension))) * length / problem.samples


def predict_index(problem: SingleIndex) -> IndexPrediction:
    """Predict the risk of estimating the hidden direction.

    The risk is the sum of two integrals: one for the nonzero coefficients of beta, one for all others.

    >>> round(predict_index(SingleIndex(link="tanh:2")).risk, 6)
    0.010904
    """
    mu, power, squared = moments(problem)
    n, s, others = problem.samples, problem.signals, problem.dimension - problem.signals
    tau, beta = threshold(problem, float(np.sqrt(n * power))), s**-0.5
    spread = np.sqrt(np.array([power + beta**2 * (squared - power - mu**2), power]) / n)
    rule = RULES[problem.rule].function
    risk = kept = false = 0.0
    for count, mean, deviation in ((s, mu * beta, spread[0]), (others, 0.0, spread[1])):
        phi, w = normal_nodes(mean, deviation, (-tau, tau))
        risk += count * float(w @ (rule(phi, tau, problem.init) - mean) ** 2)
        false = count * float(
            scipy.special.ndtr((-tau - mean) / deviation) + scipy.special.ndtr((mean - tau) / deviation)
        )
        kept += false
    time = float(stopping_time(tau, problem.init)) if RULES[problem.rule].starts else None
    return IndexPrediction(problem, risk, kept, false, tau, time, mu)


def simulate_index(problem: SingleIndex, seeds: int = 8, seed: int = 0) -> MeasuredIndex:
    """Draw several data sets, learn from each, and measure the risk.

    The rule "flow" runs gradient descent, and all other rules are applied directly. Where beta is
    zero, phi has a known distribution given y. So inputs are drawn only where beta is not zero.

    >>> simulate_index(SingleIndex(rule="hard", samples=400), seeds=4).kept.value > 5
    True
    """
    mu, s, n = moments(problem)[0], problem.signals, problem.samples
    beta = np.full(s, s**-0.5)
    drawn, taus = [], []
    for rng in generators(seed, seeds):
        X = rng.standard_normal((n, s))
        y = apply_link(problem, X @ beta) + np.sqrt(problem.noise) * rng.standard_normal(n)
        length = float(np.linalg.norm(y))
        rest = length / n * rng.standard_normal(problem.dimension - s)
        drawn.append(np.append(X.T @ y / n, rest))
        taus.append(threshold(problem, length))
    phi, tau = np.array(drawn), np.array(taus)[:, None]
    choice = RULES[problem.rule]
    if choice.starts:
        estimates = descend(phi, problem.init, stopping_time(tau, problem.init))
    else:
        estimates = choice.function(phi, tau, problem.init)
    truth = np.append(mu * beta, np.zeros(problem.dimension - s))
    above = np.abs(phi) > tau
    counts = above.sum(axis=1), above[:, s:].sum(axis=1)
    risk = ((estimates - truth) ** 2).sum(axis=1)
    return MeasuredIndex(mean_of(risk), mean_of(counts[0]), mean_of(counts[1]), seeds)


def normal_nodes(mean: float, deviation: float, cuts: tuple[float, ...]) -> tuple[Reals, Reals]:
    """Return points and weights for integrals over a normal distribution, split at the points `cuts`."""
    low, high = mean - FAR * deviation, mean + FAR * deviation
    x, widths = panels([low, *(cut for cut in cuts if low < cut < high), high], NODES)
    density = np.exp(-0.5 * ((x - mean) / deviation) ** 2) / (np.sqrt(2 * np.pi) * deviation)
    return x, widths * density
