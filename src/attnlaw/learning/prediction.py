"""What the theory says about one problem: errors, overlaps, and the spectrum of the trained matrix.

| letter | field |
|---|---|
| E | `estimation_error`, `|S_hat - S*|_F^2 / d` |
| m, q | `overlap` Tr S_hat S* / d, `norm` Tr S_hat^2 / d |
| delta (softmax and Bayes: a) | `noise_level` |
| b | `threshold` |
| r, s | `shrinkage`: the trained matrix is `r (X - b)_+` or, for the direct student, `s X` |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnlaw.laws.law import Law
from attnlaw.learning.outliers import Outlier, lone_modes
from attnlaw.learning.problem import Problem


@dataclass(frozen=True)
class Prediction:
    """Theory for one problem; what a student does not have, or what is too small to resolve, is None.

    `spectrum` is the limiting law of the trained matrix; `residual` is what the equations miss at the
    solution, relative to their size; `status` says "converged" or what happened and what to change. `error`
    is the standard error of each quantity that is an average over draws (softmax), None where all are exact
    to quadrature or where the iteration did not converge.
    """

    problem: Problem
    estimation_error: float
    prediction_error: float | None
    training_loss: float | None
    overlap: float
    norm: float
    rank_fraction: float | None
    trace: float
    noise_level: float | None
    threshold: float | None
    shrinkage: float
    spectrum: Law
    outliers: tuple[Outlier, ...]
    status: str
    residual: float
    steps: int
    error: dict[str, float] | None = None

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    def describe(self) -> dict[str, Any]:
        """Plain values, as `attnlaw learn --json` prints them."""
        names = ("estimation_error", "prediction_error", "training_loss", "overlap", "norm", "rank_fraction")
        rest = ("trace", "noise_level", "threshold")
        at_zero = sum(weight for place, weight in self.spectrum.atoms if place == 0.0)
        return {
            **{name: getattr(self, name) for name in names + rest},
            "spectrum": {
                "atom_at_zero": float(at_zero),
                "edges": [list(pair) for pair in self._bulk()],
                "outliers": [outlier.describe() for outlier in self.outliers],
            },
            "error": self.error,
            "status": self.status,
            "residual": self.residual,
        }

    def _bulk(self) -> list[tuple[float, float]]:
        """Intervals of the spectrum without those that one mode of the target fills alone."""
        # Without noise the eigenvalues are the target's own, and those of a power law fill no interval.
        modes = lone_modes(self.problem.target, self.noise_level) if self.noise_level else []
        pairs = list(self.spectrum.intervals)
        # A threshold cuts intervals away from below: those that are left are the upper ones.
        kept = modes[len(modes) - len(pairs) :] if modes else [None] * len(pairs)
        return [pair for pair, mode in zip(pairs, kept, strict=True) if mode is None]
