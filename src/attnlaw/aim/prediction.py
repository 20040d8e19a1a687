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

import numpy as np

from attnlaw.aim.problem import Problem
from attnlaw.laws.law import Law


@dataclass(frozen=True)
class Outlier:
    """A target eigenvalue outside the bulk, where the trained matrix shows it, and the squared overlap."""

    target: float
    location: float
    overlap: float

    def describe(self) -> dict[str, float]:
        return dict(vars(self))


@dataclass(frozen=True)
class Prediction:
    """Theory for one problem; what a student does not have is None.

    `spectrum` is the limiting law of the trained matrix; `residual` is what the equations miss at the
    solution, relative to their size; `status` says "converged" or what happened and what to change.
    """

    problem: Problem
    estimation_error: float
    prediction_error: float | None
    training_loss: float | None
    overlap: float
    norm: float
    rank_fraction: float
    trace: float
    noise_level: float
    threshold: float | None
    shrinkage: float
    spectrum: Law
    outliers: tuple[Outlier, ...]
    status: str
    residual: float
    steps: int

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
            "status": self.status,
            "residual": self.residual,
        }

    def _bulk(self) -> list[tuple[float, float]]:
        """Intervals of the spectrum without those that one listed outlier fills alone."""
        seen = np.array([outlier.location for outlier in self.outliers])
        return [
            (low, high) for low, high in self.spectrum.intervals if not np.any((seen > low) & (seen < high))
        ]
