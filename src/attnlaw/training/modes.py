"""Modes of heads: singular values that stand out of the null's bulk, followed from step to step.

A mode is a singular value beyond the edge of the head's finite-size null, with its two directions. From one
measurement to the next it is the one that shares its directions most: the assignment of largest sum of
`(u.u')^2 (v.v')^2`, where `|u.u'| |v.v'|` is at least a quarter. A value that was no mode before has just
left the bulk; a mode that is not found again has gone back to it.

A run that resumes has no directions of earlier steps: there the largest value is taken for the mode that was
the largest before, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Reals = NDArray[np.float64]
HeadKey = tuple[Any, ...]  # where a head stands
LEAST_OVERLAP = 0.25  # the least product of overlaps of a mode with itself, a measurement later


@dataclass(frozen=True, eq=False)
class Mode:
    """A singular value beyond the bulk; `number` counts the modes of its head in the order they left in.

    `left_step` is the first measured step at which it stood out; None where it did so when the run began.
    """

    number: int
    left_step: int | None
    value: float
    u: Reals | None = field(default=None, repr=False)
    v: Reals | None = field(default=None, repr=False)


@dataclass
class ModeTracker:
    """The modes of every head at the last measurement, by head; `counts`: how many each has had."""

    modes: dict[HeadKey, list[Mode]] = field(default_factory=dict)
    counts: dict[HeadKey, int] = field(default_factory=dict)
    has_begun: bool = False

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]], key: tuple[str, ...]) -> ModeTracker:
        """That of stored rows of one step, whose places are the columns of `key`."""
        tracker = cls(has_begun=True)
        for row in rows:
            place = tuple(row[name] for name in key)
            tracker.modes.setdefault(place, []).append(Mode(row["mode"], row["left_step"], row["value"]))
            tracker.counts[place] = max(tracker.counts.get(place, 0), row["mode"] + 1)
        return tracker

    def follow(
        self, step: int, seen: Mapping[HeadKey, tuple[Reals, Reals, Reals]]
    ) -> dict[HeadKey, list[Mode]]:
        """The modes of all heads at a step, from the values beyond the bulk and their directions.

        `seen`: by head values (k,), descending, u (rows, k) and v (cols, k).
        """
        modes = {}
        for place, (values, u, v) in seen.items():
            earlier = self.modes.get(place, [])
            same = _match_modes(earlier, values, u, v)
            head_modes = []
            for i, value in enumerate(values.tolist()):
                before = same.get(i)
                if before is None:
                    number = self.counts.get(place, 0)
                    self.counts[place] = number + 1
                    before = Mode(number, step if self.has_begun else None, value)
                head_modes.append(Mode(before.number, before.left_step, value, u[:, i], v[:, i]))
            modes[place] = head_modes
        self.modes, self.has_begun = modes, True
        return modes


def _match_modes(earlier: list[Mode], values: Reals, u: Reals, v: Reals) -> dict[int, Mode]:
    """Which value is which mode of before."""
    if not earlier or not values.size:
        return {}
    lefts = [mode.u for mode in earlier if mode.u is not None]
    rights = [mode.v for mode in earlier if mode.v is not None]
    if not lefts:
        ranked = sorted(earlier, key=lambda mode: -mode.value)
        return dict(zip(range(values.size), ranked, strict=False))
    shared = np.abs(np.stack(lefts) @ u) * np.abs(np.stack(rights) @ v)
    rows, columns = linear_sum_assignment(shared**2, maximize=True)
    return {
        int(j): earlier[i]
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
        if shared[i, j] >= LEAST_OVERLAP
    }


def top_singular_vectors(left: Reals, right: Reals, count: int) -> tuple[Reals, Reals, Reals]:
    """The largest singular values of `left @ right` with their directions: (count,), (rows, .), (cols, .)."""
    q_left, r_left = np.linalg.qr(left)
    q_right, r_right = np.linalg.qr(right.T)
    u, values, v = np.linalg.svd(r_left @ r_right.T)
    return values[:count], q_left @ u[:, :count], q_right @ v[:count].T
