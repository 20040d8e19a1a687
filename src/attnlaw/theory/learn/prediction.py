"""Predictions of the theory for one problem: errors, overlaps, and the spectrum of the trained matrix.

| letter | field |
|---|---|
| E | `estimation_error`, `|S_hat - S*|_F^2 / d` |
| m, q | `overlap` Tr S_hat^T S* / d, `norm` |S_hat|_F^2 / d |
| delta (softmax and Bayes: a) | `noise_level` |
| b | `threshold` |
| t | `cut`, if the width of the factors cuts more than the threshold does |
| K/alpha_P | `stability` if the loss is not convex (a cut, a softmax); a value above 1 means unstable |
| r, s | `shrinkage`: the trained matrix is `r (X - b)_+` or, for the direct student, `s X` |

The error is also split into three parts by modes of the target. The definition is ours. A mode is "out" if it
is an outlier of the learned spectrum. Its value is s in the target and s' in the trained matrix, and o is the
squared overlap of their vectors. Together these modes carry `Q_out = sum s^2/d`, `m_out = sum s s' o/d`,
`q_out = sum s'^2/d`. The rest is "in": `Q_in = Q* - Q_out`, `m_in = m - m_out`, `q_in = q - q_out`.

    approximation   sum_out (s^2 - 2 s s' o + s'^2)/d      modes that were found, but not exactly
    underfitting    (Q_in - m_in)^2 / Q_in                 what is missing along the target
    overfitting     q_in - m_in^2 / Q_in                   the part of S_hat orthogonal to S*

They sum to `E = Q* - 2 m + q`. Without outliers the last two are never negative (Cauchy-Schwarz). A spike has
no weight in the limit; a mode of a power law of dimension d has weight 1/d.
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

RESIDUAL = 1e-8
WARNING, UNSTABLE = 0.6, 1.0  # levels of the stability indicator


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(BriefRepr):
    """The predictions of the theory for one problem.

    A quantity is None if the student does not have it, or if it is too small to compute. An `Estimate` has a
    standard error if it is an average over random draws (softmax). Without one, it is as exact as numerical
    integration.
    """

    problem: Problem
    estimation_error: Estimate
    prediction_error: Estimate | None
    training_loss: Estimate | None = None
    overlap: Estimate
    norm: Estimate
    rank_fraction: Estimate | None = None
    trace: Estimate | None = None
    nuclear_norm: Estimate | None = None
    noise_level: Estimate | None = None
    threshold: Estimate | None = None
    cut: Estimate | None = None
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
        """Whether `estimation_error` is the actual error. If not, it is an upper bound."""
        return self.outcome is not Outcome.RECOVERED or self.estimation_error.value == 0

    @property
    def relative_error(self) -> Estimate:
        """The estimation error E divided by Q*, the error of a student that learned nothing."""
        return self.estimation_error / self.problem.target.second_moment

    @property
    def angle(self) -> Estimate | None:
        """The angle between the trained matrix and the target, `arccos(m/sqrt(q Q*))`."""
        q, Q = self.norm.value, self.problem.target.second_moment
        if self.problem.observed_output.queries is None or not q:
            return None
        return Estimate(math.acos(min(max(self.overlap.value / math.sqrt(q * Q), -1.0), 1.0)))

    @property
    def wrong_keys(self) -> Estimate | None:
        """The share of new queries for which the student prefers the wrong key, `angle/pi`, or None."""
        return None if self.angle is None else self.angle / math.pi

    @property
    def atom_at_zero(self) -> float:
        """The share of eigenvalues that are zero."""
        return float(sum(weight for place, weight in self.spectrum.atoms if place == 0.0))

    @property
    def smallest_value(self) -> float | None:
        """The smallest value that factors of limited width keep. It is 0 if the width cuts nothing."""
        if self.problem.width is None or self.threshold is None:
            return None
        return 0.0 if self.cut is None else self.shrinkage * (self.cut.value - self.threshold.value)

    @cached_property
    def _split(self) -> tuple[float | None, float | None, float | None]:
        """The three parts of E, or None if E is too small for the solver to resolve."""
        if not self.is_resolved:
            return None, None, None
        target = self.problem.target
        weight = 0.0 if target.dimension is None else 1 / target.dimension
        modes = [seen for seen in self.outliers if seen.target not in target.spikes]
        Q_out = weight * sum(seen.target**2 for seen in modes)
        m_out = weight * sum(seen.target * seen.location * seen.overlap for seen in modes)
        q_out = weight * sum(seen.location**2 for seen in modes)
        Q, m, q = target.second_moment - Q_out, self.overlap.value - m_out, self.norm.value - q_out
        approximation = Q_out - 2 * m_out + q_out
        # If all of the target is found, nothing is missing: the rest of S is overfitting.
        if 1e-12 * target.second_moment >= Q:
            return approximation, 0.0, q
        return approximation, (Q - m) ** 2 / Q, q - m * m / Q

    @property
    def approximation_error(self) -> float | None:
        return self._split[0]

    @property
    def underfitting_error(self) -> float | None:
        return self._split[1]

    @property
    def overfitting_error(self) -> float | None:
        return self._split[2]

    @property
    def adapter_noise(self) -> float | None:
        """The effective noise for a rank-one adapter that is trained after this student, `Delta/2 + E`.

        What this student did not learn acts on the adapter like label noise (arXiv 2606.05899). The value is
        None if the output is not linear, or if there are observation groups.
        """
        problem = self.problem
        if problem.output != "linear" or problem.groups:
            return None
        return problem.noise / 2 + self.estimation_error.value

    @property
    def bulk(self) -> list[tuple[float, float]]:
        """The intervals of the spectrum, without intervals that come from a single target eigenvalue."""
        # Without noise the eigenvalues are those of the target, and single modes do not fill an interval.
        level = self.noise_level
        modes = isolated_modes(self.problem.target, level.value) if level and level.value else []
        pairs = list(self.spectrum.intervals)
        # A threshold removes intervals from below, so the upper ones are left.
        kept = modes[len(modes) - len(pairs) :] if modes else [None] * len(pairs)
        return [pair for pair, mode in zip(pairs, kept, strict=True) if mode is None]

    @property
    def edges(self) -> list[float]:
        """The lower and upper end of each interval of the bulk, in increasing order."""
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
    problem: Problem, E: float, errors: Mapping[str, float] | None = None, **values: float | None
) -> dict[str, Any]:
    """Return the arguments of `Prediction` that can have a standard error."""
    if values.get("prediction_error") is None:
        values["prediction_error"] = problem.prediction_error(E)
    known = errors or {}
    return {
        name: None if value is None else Estimate(value, known.get(name))
        for name, value in {"estimation_error": E, **values}.items()
    }


def trace_or_nuclear_norm(problem: Problem, value: float) -> dict[str, Any]:
    """Return `value` as the argument `trace` (tied attention) or `nuclear_norm` (untied)."""
    return {"trace" if problem.sides == 1 else "nuclear_norm": value}


def outcome_of(
    residual: float,
    resolved: bool = True,
    remedy: str = "raise the weight decay",
    instability: float | None = None,
) -> dict[str, Any]:
    """Return the arguments `outcome` and `remark` of a `Prediction`."""
    outcome, remark = Outcome.DONE, None
    if not resolved:
        outcome = Outcome.RECOVERED
        remark = (
            f"the error is too small to compute, so this is an upper bound; lower alpha or {remedy} for a "
            "value"
        )
    elif not residual <= RESIDUAL:
        outcome = Outcome.ILL_CONDITIONED
        remark = (
            f"the equations were solved only to a precision of {residual:.1e}; raise the weight decay or the "
            "noise"
        )
    elif instability is not None and instability > UNSTABLE:
        outcome = Outcome.UNSTABLE
        remark = f"unstable (stability {instability:.3g} is above 1), so the training loss is a lower bound"
    elif instability is not None and instability > WARNING:
        remark = f"nearly unstable (stability {instability:.3g}), so training runs may differ by up to 1%"
    return {"outcome": outcome, "remark": remark}


def recovered_prediction(
    problem: Problem, E: float, residual: float, steps: int, threshold: float | None = None
) -> Prediction:
    """Return the prediction for a student that finds the target exactly, or up to a tiny error E."""
    target, is_exact = problem.target, E == 0
    how = outcome_of(residual, resolved=False)
    if is_exact:
        how["remark"] = (
            "labels without noise and no weight decay recover the target exactly; add weight decay to "
            "get an error above 0"
        )
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
