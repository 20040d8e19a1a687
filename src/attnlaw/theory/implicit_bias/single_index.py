"""A single-index model learned by one score step and a threshold, or by factors stopped early.

Normalisation, stated once (arXiv 2007.08322): y = f(<x, beta>) + noise, x ~ N(0, I_p), |beta| = 1 with s
equal coefficients, phi = mean y_i x_i. With g standard normal:

| here | means |
|---|---|
| mu | E f'(g) = E g f(g): E phi = mu beta, so the direction is identified and mu is not |
| power | E y^2 |
| tau | `threshold` times (2 ln p)^(1/2) |y|/n |

Given y, phi is exactly N(0, |y|^2/n^2) off the support, whatever the noise. On it its variance is
`(E y^2 + beta_j^2 (E y^2 g^2 - E y^2 - mu^2))/n`. The risk `sum_j E (beta_T(phi_j) - mu beta_j)^2` takes phi
for normal and |y|^2 for its mean (ours): at finite n it is some per cent off, more for an f that is not odd.

One score step on the attention-indexed model, then a threshold, against training to the end.

At one token and a linear output (see `theory.learn.problem`), `phi = sqrt(d)/(2n) sum_i h_i (x_i x_i^T - I)`
is `S* + delta GOE` with

    delta^2 = (Q* + Delta/2)/(2 alpha)

(ours; exact in the limit for symmetric Gaussian sensing, higher by a term of order 1/d for tokens). Factors
stopped early keep the eigenvalues of phi above a threshold; `(x - b)_+` is what weight decay would keep of
the same phi; no rule does better than the conditional mean of each eigenvalue, `laws.Shrunk`.

The problem of a single index: its settings, known before any mathematics is imported.

What the problems of this room may be made of: links, rules of shrinking, graphs. A new one is a line here.

The tables are known before any mathematics is imported: functions of arrays are named by `module:function`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Estimate
from attnlaw.core.lazy import resolve
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.variants import Variants, by_name, parse_positive, with_parameter
from attnlaw.numerics.draws import generators, mean_of
from attnlaw.numerics.quadrature import panels
from attnlaw.theory.implicit_bias.early_stopping import descend, stopping_time
from attnlaw.theory.laws.free_convolution import FreeConvolution, Truncated
from attnlaw.theory.laws.transformed import Shrunk, Thresholded, rectify
from attnlaw.theory.learn.problem import Problem


@dataclass(frozen=True)
class Link:
    """y = f(<x, beta>) + noise: `function` names f."""

    name: str
    function: str
    example: str | None = None
    parameters: tuple[float, ...] = ()

    def at(self, parameter: str) -> Link:
        return with_parameter(self, parameter, parse_positive(parameter))


@dataclass(frozen=True)
class Rule:
    """What is made of a noisy coefficient at a threshold: `function(phi, threshold, init)`."""

    name: str
    label: str
    function: str
    starts: bool = False  # it has a start, of scale `init`


@dataclass(frozen=True)
class Graph:
    """Whether the corner of a 2 x 2 matrix is seen, which connects its rows and columns."""

    name: str
    label: str
    observed: bool


_LINKS = "attnlaw.theory.implicit_bias.single_index"
_RULES = "attnlaw.theory.implicit_bias.early_stopping"

LINKS = Variants(
    Link("identity", f"{_LINKS}:identity"),
    Link("relu", f"{_LINKS}:relu"),
    Link("sin", f"{_LINKS}:sine"),
    # z + sin(3 z)/2
    Link("wave", f"{_LINKS}:wave"),
    # tanh(G z)
    Link("tanh:G", f"{_LINKS}:tanh", example="tanh:2"),
)
RULES = by_name(
    Rule("flow", "gradient flow, stopped", f"{_RULES}:flow_at_threshold", starts=True),
    Rule("hard", "hard threshold", f"{_RULES}:hard"),
    Rule("soft", "soft threshold", f"{_RULES}:soft"),
)
GRAPHS = by_name(
    Graph("connected", "corner seen: connected", observed=True),
    Graph("disconnected", "corner not seen: disconnected", observed=False),
)


@settings_dataclass
class SingleIndex(Settings):
    """Labels of one hidden direction with few coefficients, and how it is estimated.

    >>> SingleIndex(link="identity").signals
    10
    """

    link: str = setting("tanh:2", "The function of <x, β>; f in the page.", choices=LINKS)
    samples: int = setting(1000, "Samples.", symbol="n", minimum=1)
    dimension: int = setting(2000, "Dimension of the inputs.", symbol="p", minimum=2)
    signals: int = setting(10, "Coefficients that are not zero, all equal.", symbol="s", minimum=1)
    noise: float = setting(0.25, "Variance of the noise of labels.", symbol="σ²", minimum=0)
    rule: str = setting("flow", "How coefficients are kept.", choices=RULES)
    threshold: float = setting(1.0, "Threshold, in units of √(2 ln p) ‖y‖/n.", symbol="c", greater_than=0)
    init: float = setting(
        1e-6, "Scale of the factors at the start.", symbol="a", greater_than=0, active_if=("rule", "starts")
    )

    def check(self) -> None:
        if self.signals > self.dimension:
            raise BadSetting("signals", "expected at most {dimension}", self.signals)


FAR = 10.0  # standard deviations; what lies beyond is below the floats
NODES = 400


@dataclass(frozen=True)
class IndexPrediction:
    """Risk |beta_T - mu beta|^2, expected coefficients above tau and those off the support, tau, its time.

    `slope` is mu. `time` is None of a rule without a flow.
    """

    problem: SingleIndex
    risk: float
    kept: float
    false_positives: float
    tau: float
    time: float | None
    slope: float

    def apply_rule(self, phi: ArrayLike) -> Reals:
        """What the rule makes of coefficients phi, or of eigenvalues."""
        rule = resolve(RULES[self.problem.rule].function)
        return np.asarray(rule(np.asarray(phi, dtype=float), self.tau, self.problem.init))


@dataclass(frozen=True)
class MeasuredIndex:
    """Means over draws, with their standard errors."""

    risk: Estimate
    kept: Estimate
    false_positives: Estimate
    seeds: int


def moments(problem: SingleIndex) -> tuple[float, float, float]:
    """mu, E y^2 and E y^2 g^2.

    >>> [round(moment, 6) for moment in moments(SingleIndex(link="identity", noise=0.5))]
    [1.0, 1.5, 3.5]
    """
    g, w = normal_nodes(0.0, 1.0, (0.0,))
    f, noise = apply_link(problem, g), problem.noise
    return float(w @ (g * f)), float(w @ f**2) + noise, float(w @ (g * f) ** 2) + noise


def apply_link(problem: SingleIndex, z: Reals) -> Reals:
    """f(z), entry by entry."""
    chosen = LINKS[problem.link]
    outputs: Reals = resolve(chosen.function)(z, *chosen.parameters)
    return outputs


def threshold(problem: SingleIndex, length: float) -> float:
    """tau, for labels of this |y|."""
    return problem.threshold * float(np.sqrt(2 * np.log(problem.dimension))) * length / problem.samples


def predict_index(problem: SingleIndex) -> IndexPrediction:
    """The risk by one integral for the support and one for the rest.

    >>> round(predict_index(SingleIndex(link="tanh:2")).risk, 6)
    0.010904
    """
    mu, power, squared = moments(problem)
    n, s, others = problem.samples, problem.signals, problem.dimension - problem.signals
    tau, beta = threshold(problem, float(np.sqrt(n * power))), s**-0.5
    spread = np.sqrt(np.array([power + beta**2 * (squared - power - mu**2), power]) / n)
    rule = resolve(RULES[problem.rule].function)
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
    """Draw samples and train: gradient descent on the factors for a flow, the rule itself for the others.

    Off the support phi is drawn from its exact law given y, so X is made on the support alone.

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
        estimates = resolve(choice.function)(phi, tau, problem.init)
    truth = np.append(mu * beta, np.zeros(problem.dimension - s))
    above = np.abs(phi) > tau
    counts = above.sum(axis=1), above[:, s:].sum(axis=1)
    risk = ((estimates - truth) ** 2).sum(axis=1)
    return MeasuredIndex(mean_of(risk), mean_of(counts[0]), mean_of(counts[1]), seeds)


def normal_nodes(mean: float, deviation: float, cuts: tuple[float, ...]) -> tuple[Reals, Reals]:
    """Points and weights of a normal law, in pieces between cuts where an integrand may have a corner.

    >>> x, w = normal_nodes(1.0, 2.0, (0.0,))
    >>> round(float(w @ x**2), 12)
    5.0
    """
    low, high = mean - FAR * deviation, mean + FAR * deviation
    x, widths = panels([low, *(cut for cut in cuts if low < cut < high), high], NODES)
    density = np.exp(-0.5 * ((x - mean) / deviation) ** 2) / (np.sqrt(2 * np.pi) * deviation)
    return x, widths * density


def identity(z: Reals) -> Reals:
    return z


def relu(z: Reals) -> Reals:
    return np.maximum(z, 0.0)


def sine(z: Reals) -> Reals:
    return np.sin(z)


def wave(z: Reals) -> Reals:
    return np.asarray(z + 0.5 * np.sin(3 * z))


def tanh(z: Reals, gain: float) -> Reals:
    return np.tanh(gain * z)


GRID = 60  # thresholds that are tried before the best is refined


@dataclass(frozen=True)
class OneStep:
    """Estimation errors |f(phi) - S*|^2/d of the best thresholds, and those over the noise delta.

    `least` is that of the best rule of any kind on the eigenvalues of phi.
    """

    noise: float
    hard: float
    hard_threshold: float
    soft: float
    soft_threshold: float
    least: float


def one_step_law(problem: Problem) -> FreeConvolution:
    """The law of the eigenvalues of phi.

    >>> round(one_step_law(Problem(alpha=0.3, noise=0.5)).sigma ** 2, 6)
    2.916667
    """
    if problem.output != "linear" or problem.tokens != 1 or problem.groups:
        raise InputError(
            f"one step: output {problem.output}, {problem.tokens} tokens, {len(problem.groups)} groups; "
            "expected a linear output of one token without groups"
        )
    square = (problem.target.second_moment + problem.noise / 2) / (2 * problem.alpha)
    return FreeConvolution(problem.target.law, float(np.sqrt(square)))


def one_step(problem: Problem) -> OneStep:
    """The errors after one step, each at its best threshold; the student of the problem plays no part.

    >>> from attnlaw.theory.learn.target import Target
    >>> found = one_step(Problem(alpha=0.3, noise=0.5, target=Target.marchenko_pastur(0.3)))
    >>> round(found.hard, 4), round(found.soft, 4), round(found.least, 4)
    (1.0777, 0.6503, 0.5934)
    """
    law = one_step_law(problem)
    table = Truncated(law.base, np.array([law.sigma]))
    top = float(table.top[0])
    hard = _best(lambda tau: Thresholded(law, tau).distance, top)
    soft = _best(lambda b: float(rectify(table, np.array([b])).E[0]), top)
    least = table.second_moment - Shrunk(law).moment(2)
    delta = law.sigma
    return OneStep(delta, hard[1], hard[0] / delta, soft[1], soft[0] / delta, float(least))


def _best(error: Callable[[float], float], top: float) -> tuple[float, float]:
    """The best threshold up to the edge of the spectrum, and its error; errors may have several minima."""
    places = np.linspace(0.0, top, GRID)
    first = int(np.argmin([error(float(place)) for place in places]))
    ends = float(places[max(first - 1, 0)]), float(places[min(first + 1, GRID - 1)])
    minimum = scipy.optimize.minimize_scalar(
        error, bounds=ends, method="bounded", options={"xatol": 1e-8 * top}
    )
    return float(minimum.x), float(minimum.fun)
