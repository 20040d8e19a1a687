"""What the theory says about one problem: errors, overlaps, and the spectrum of the trained matrix.

| letter | field |
|---|---|
| E | `estimation_error`, `|S_hat - S*|_F^2 / d` |
| m, q | `overlap` Tr S_hat^T S* / d, `norm` |S_hat|_F^2 / d |
| delta (softmax and Bayes: a) | `noise_level` |
| b | `threshold` |
| t | `cut`, where the width of the factors cuts more than the threshold does |
| K/alpha_P | `stability` (`attnlaw.theory.learn.stability`) where the loss is not convex (a cut, a softmax):
  unstable above 1 |
| r, s | `shrinkage`: the trained matrix is `r (X - b)_+` or, for the direct student, `s X` |

What the error of a trained matrix is made of: our own definition, by modes of the target.

Out are the modes that stand out of the learned spectrum, each with the target's value s, the learned one s'
and the squared overlap o of their vectors; they carry `Q_out = sum s^2/d`, `m_out = sum s s' o/d`, `q_out =
sum s'^2/d`. In is the rest: `Q_in = Q* - Q_out`, `m_in = m - m_out`, `q_in = q - q_out`.

    approximation   sum_out (s^2 - 2 s s' o + s'^2)/d      modes that were found, but not exactly
    underfitting    (Q_in - m_in)^2 / Q_in                 what is missing along the target
    overfitting     q_in - m_in^2 / Q_in                   what was learned beside it

They sum to `E = Q* - 2 m + q`. Without outliers the last two are never negative (Cauchy-Schwarz). A spike
weighs nothing in the limit; a mode of a power law of dimension d weighs 1/d.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attnlaw.core.estimate import BriefRepr, Estimate, Outcome
from attnlaw.theory.laws.law import Law
from attnlaw.theory.learn.outliers import Outlier, find_outliers, isolated_modes
from attnlaw.theory.learn.problem import Problem


@dataclass(frozen=True)
class ErrorSplit:
    """The three parts of E; None where the solver does not resolve E."""

    approximation: float | None
    underfitting: float | None
    overfitting: float | None


def split_error(prediction: Prediction) -> ErrorSplit:
    """The parts of a prediction's error.

    >>> from attnlaw.theory.learn.problem import Problem
    >>> from attnlaw.theory.learn.state_evolution import state_evolution
    >>> problem = Problem(alpha=0.5, noise=0.5, weight_decay=0.2, attention="untied")
    >>> parts = split_error(state_evolution(problem))
    >>> parts.approximation, round(parts.underfitting, 4), round(parts.overfitting, 4)
    (0.0, 0.2305, 0.4113)
    """
    if not prediction.is_resolved:
        return ErrorSplit(None, None, None)
    target = prediction.problem.target
    weight = 0.0 if target.dimension is None else 1 / target.dimension
    modes = [seen for seen in prediction.outliers if seen.target not in target.spikes]
    Q_out = weight * sum(seen.target**2 for seen in modes)
    m_out = weight * sum(seen.target * seen.location * seen.overlap for seen in modes)
    q_out = weight * sum(seen.location**2 for seen in modes)
    Q, m = target.second_moment - Q_out, prediction.overlap.value - m_out
    q = prediction.norm.value - q_out
    # With all of the target found there is nothing to miss: what is left of S was learned beside it.
    if 1e-12 * target.second_moment >= Q:
        return ErrorSplit(Q_out - 2 * m_out + q_out, 0.0, q)
    return ErrorSplit(Q_out - 2 * m_out + q_out, (Q - m) ** 2 / Q, q - m * m / Q)


RESIDUAL = 1e-8
WARNING, UNSTABLE = 0.6, 1.0  # of the stability indicator


@dataclass(frozen=True, repr=False)
class Prediction(BriefRepr):
    """Theory for one problem; what a student does not have, or what is too small to resolve, is None.

    An `Estimate` has an error where it is an average over draws (softmax) that converged: its standard error;
    without one it is exact to quadrature. `spectrum` is the limiting law of the trained matrix: its
    eigenvalues, untied its singular values, whose sum over d is the `nuclear_norm` (tied: `trace`);
    `residual` is what the equations miss at the solution, relative to their size; `outcome` says how solving
    them ended, `remark` what to change.
    """

    problem: Problem
    estimation_error: Estimate
    prediction_error: Estimate | None
    training_loss: Estimate | None
    overlap: Estimate
    norm: Estimate
    rank_fraction: Estimate | None
    trace: Estimate | None
    nuclear_norm: Estimate | None
    noise_level: Estimate | None
    threshold: Estimate | None
    cut: Estimate | None
    shrinkage: float
    spectrum: Law
    outliers: tuple[Outlier, ...]
    residual: float
    steps: int
    outcome: Outcome = Outcome.DONE
    remark: str | None = None
    stability: float | None = None

    @property
    def converged(self) -> bool:
        return self.outcome is Outcome.DONE

    @property
    def is_resolved(self) -> bool:
        """Whether E is a value and not a bound."""
        return self.outcome is not Outcome.RECOVERED or self.estimation_error.value == 0

    @property
    def relative_error(self) -> Estimate:
        """`E / Q*`."""
        return self.estimation_error / self.problem.target.second_moment

    @property
    def angle(self) -> Estimate | None:
        """`arccos(m/sqrt(q Q*))` between the trained matrix and the target, where a loss sets no scale."""
        q, Q = self.norm.value, self.problem.target.second_moment
        if self.problem.observed_output.queries is None or not q:
            return None
        return Estimate(math.acos(min(max(self.overlap.value / math.sqrt(q * Q), -1.0), 1.0)))

    @property
    def wrong_keys(self) -> Estimate | None:
        """`angle/pi`: the share of fresh queries whose larger score is that of the wrong key of two."""
        return None if self.angle is None else self.angle / math.pi

    @property
    def atom_at_zero(self) -> float:
        """The share of eigenvalues that are zero."""
        return float(sum(weight for place, weight in self.spectrum.atoms if place == 0.0))

    @property
    def smallest_value(self) -> float | None:
        """The smallest eigenvalue (singular value) that narrow factors keep: 0 where weight decay cuts.

        Away from zero it says that width, not weight decay, cut the rank.
        """
        if self.problem.width is None or self.threshold is None:
            return None
        return 0.0 if self.cut is None else self.shrinkage * (self.cut.value - self.threshold.value)

    @cached_property
    def _split(self) -> ErrorSplit:
        return split_error(self)

    @property
    def approximation_error(self) -> float | None:
        return self._split.approximation

    @property
    def underfitting_error(self) -> float | None:
        return self._split.underfitting

    @property
    def overfitting_error(self) -> float | None:
        return self._split.overfitting

    @property
    def adapter_noise(self) -> float | None:
        """`Delta_eff = Delta/2 + E`: the noise that a rank-one adapter trained after this student sees.

        What this student misses acts on a later low-rank correction as label noise (arXiv 2606.05899). For
        the plain linear output; None where groups have noises of their own.
        """
        problem = self.problem
        if problem.output != "linear" or problem.groups:
            return None
        return problem.noise / 2 + self.estimation_error.value

    @property
    def bulk(self) -> list[tuple[float, float]]:
        """Intervals of the spectrum without those that one mode of the target fills alone."""
        # Without noise the eigenvalues are the target's own, and those of a power law fill no interval.
        level = self.noise_level
        modes = isolated_modes(self.problem.target, level.value) if level and level.value else []
        pairs = list(self.spectrum.intervals)
        # A threshold cuts intervals away from below: those that are left are the upper ones.
        kept = modes[len(modes) - len(pairs) :] if modes else [None] * len(pairs)
        return [pair for pair, mode in zip(pairs, kept, strict=True) if mode is None]

    @property
    def edges(self) -> list[float]:
        """The ends of the intervals of the bulk, low and high in turn."""
        return [float(end) for pair in self.bulk for end in pair]

    @property
    def top_edge(self) -> float | None:
        return max((float(high) for _, high in self.bulk), default=None)

    @property
    def outlier_locations(self) -> list[float]:
        return [seen.location for seen in self.outliers]

    @property
    def outlier_overlaps(self) -> list[float]:
        return [seen.overlap for seen in self.outliers]

    @property
    def outlier_targets(self) -> list[float]:
        return [seen.target for seen in self.outliers]


def estimates(
    problem: Problem,
    E: float,
    *,
    overlap: float,
    norm: float,
    trace: float | None = None,
    nuclear_norm: float | None = None,
    prediction_error: float | None = None,
    training_loss: float | None = None,
    rank_fraction: float | None = None,
    noise_level: float | None = None,
    threshold: float | None = None,
    cut: float | None = None,
    errors: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The numbers of a prediction under their names, with their `errors`.

    The prediction error follows from E where the output has a closed form for it.
    """
    if prediction_error is None:
        prediction_error = problem.prediction_error(E)
    values = {
        "estimation_error": E,
        "prediction_error": prediction_error,
        "training_loss": training_loss,
        "overlap": overlap,
        "norm": norm,
        "rank_fraction": rank_fraction,
        "trace": trace,
        "nuclear_norm": nuclear_norm,
        "noise_level": noise_level,
        "threshold": threshold,
        "cut": cut,
    }
    known = errors or {}
    return {
        name: None if value is None else Estimate(value, known.get(name)) for name, value in values.items()
    }


def trace_or_nuclear_norm(problem: Problem, value: float) -> dict[str, Any]:
    """The sum of the eigenvalues (singular values) of the trained matrix over d, under its name."""
    return {"trace" if problem.sides == 1 else "nuclear_norm": value}


def outcome_of(
    residual: float,
    resolved: bool = True,
    remedy: str = "raise the weight decay",
    instability: float | None = None,
) -> dict[str, Any]:
    """How solving the equations ended, as `outcome` and `remark`."""
    if not resolved:
        return {
            "outcome": Outcome.RECOVERED,
            "remark": "the error is below what the solver resolves and is given as its bound; "
            f"lower alpha or {remedy} for a resolved value",
        }
    if not residual <= RESIDUAL:
        return {
            "outcome": Outcome.ILL_CONDITIONED,
            "remark": f"the equations miss by {residual:.1e}; raise the weight decay or the noise",
        }
    if instability is not None and instability > UNSTABLE:
        return {
            "outcome": Outcome.UNSTABLE,
            "remark": f"unstable: K/alpha_P = {instability:.3g}; training loss is a lower bound",
        }
    if instability is not None and instability > WARNING:
        return {
            "outcome": Outcome.DONE,
            "remark": f"nearly unstable: K/alpha_P = {instability:.3g}; training runs may end up to 1% apart",
        }
    return {"outcome": Outcome.DONE, "remark": None}


def recovered_prediction(
    problem: Problem, E: float, residual: float, steps: int, threshold: float | None = None
) -> Prediction:
    """The target itself, E = 0; or so near to it that the solver does not tell, E a bound.

    `threshold` is the one of a student that cuts, at the target itself.
    """
    target, is_exact = problem.target, E == 0
    how = outcome_of(residual, resolved=False)
    if is_exact:
        how["remark"] = "clean labels and no penalty give the target itself; add a weight decay for an error"
    return Prediction(
        problem=problem,
        **estimates(
            problem,
            E,
            prediction_error=0.0 if is_exact else None,
            training_loss=0.0 if is_exact else None,
            overlap=target.second_moment,
            norm=target.second_moment,
            rank_fraction=target.rank_fraction if is_exact else None,
            **trace_or_nuclear_norm(problem, target.mean),
            noise_level=0.0 if is_exact else None,
            threshold=threshold if is_exact else None,
        ),
        shrinkage=1.0,
        spectrum=target.law,
        outliers=find_outliers(target, target.least_noise_level, None, 1.0),
        **how,
        residual=residual,
        steps=steps,
    )
