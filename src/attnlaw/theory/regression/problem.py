"""A linear regression problem with groups of samples, for both theory and simulation.

Labels are `y_i = x_i . theta + noise` with x_i ~ N(0, Sigma_g) for the samples of group g. The loss is

    (1/n) sum_i w_i (y_i - x_i . theta)^2 + ridge |theta|^2

A ridge of 0 means the limit ridge -> 0. This is the interpolator of least norm if there are fewer samples
than directions, else least squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.settings import check_value
from attnlaw.core.variants import by_name


@dataclass(frozen=True, eq=False)
class Group:
    """A group of samples with the same distribution.

    Args:
        covariance: covariance of the inputs, of shape (p, p), or only its diagonal.
    """

    share: float
    covariance: ArrayLike
    weight: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name, rules in (
            ("share", {"greater_than": 0, "maximum": 1}),
            ("weight", {"greater_than": 0}),
            ("noise", {"minimum": 0}),
        ):
            object.__setattr__(self, name, check_value(name, getattr(self, name), float, **rules))
        object.__setattr__(self, "covariance", _covariance(self.covariance, "covariance"))


@dataclass(frozen=True, eq=False)
class Regression:
    """A regression problem: groups of samples, a signal and a ridge.

    Args:
        ridge: strength of the penalty |theta|^2. The value 0 means the limit of a vanishing ridge.
        target: covariance of the test inputs. By default, the test inputs are a mixture of the groups.

    >>> groups = (Group(0.8, np.ones(2)), Group(0.2, np.array([4.0, 1.0])))
    >>> Regression(groups, signal=[1.0, 0.0], samples=10).target
    array([1.6, 1. ])
    """

    groups: Sequence[Group]
    signal: ArrayLike
    samples: int
    ridge: float = 0.0
    target: ArrayLike | None = None

    def __post_init__(self) -> None:
        groups, signal = tuple(self.groups), np.asarray(self.signal, dtype=float)
        total = sum(group.share for group in groups)
        if abs(total - 1) > 1e-9:
            raise InputError(
                f"regression: the shares of {len(groups)} groups sum to {total:g}, expected 1; "
                "divide each by their sum"
            )
        given = mixture(groups) if self.target is None else _covariance(self.target, "target")
        covariances = [np.asarray(group.covariance) for group in groups] + [given]
        sizes = {covariance.shape[0] for covariance in covariances} | {signal.size}
        if signal.ndim != 1 or len(sizes) > 1:
            raise InputError(
                f"regression: found covariances and a signal of sizes {sorted(sizes)}, expected one size p"
            )
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "signal", signal)
        object.__setattr__(self, "target", given)
        object.__setattr__(self, "samples", check_value("samples", self.samples, int, minimum=1))
        object.__setattr__(self, "ridge", check_value("ridge", self.ridge, float, minimum=0))

    @property
    def dimension(self) -> int:
        return int(np.asarray(self.signal).size)

    @property
    def shares(self) -> Reals:
        return np.array([group.share for group in self.groups])

    @property
    def weights(self) -> Reals:
        return np.array([group.weight for group in self.groups])

    @property
    def noises(self) -> Reals:
        return np.array([group.noise for group in self.groups])

    @property
    def covariances(self) -> tuple[Reals, Reals]:
        """The covariances of the groups and of the target, or only variances if all are diagonal."""
        every = _same_form([group.covariance for group in self.groups] + [np.asarray(self.target)])
        return np.array(every[:-1]), every[-1]


def mixture(groups: Sequence[Group], shares: Sequence[float] | None = None) -> Reals:
    """Return the covariance of a mixture of groups, by default in their own shares."""
    parts = [group.share for group in groups] if shares is None else shares
    covariances = _same_form([group.covariance for group in groups])
    if len({covariance.shape for covariance in covariances}) > 1:
        raise InputError("regression: found covariances of different sizes, expected the same size p for all")
    return np.asarray(np.tensordot(np.asarray(parts, dtype=float), np.array(covariances), axes=1))


def importance_weights(shares: ArrayLike, target_shares: ArrayLike, largest: float | None = None) -> Reals:
    """Return each group's share in the target divided by that in the samples, at most `largest`."""
    pi, wanted = np.asarray(shares, dtype=float), np.asarray(target_shares, dtype=float)
    for name, values in (("shares", pi), ("target_shares", wanted)):
        if abs(values.sum() - 1) > 1e-9 or values.min() < 0:
            raise BadSetting(name, "expected numbers of at least 0 that sum to 1", values.tolist())
    return np.asarray(np.minimum(wanted / pi, np.inf if largest is None else largest))


def _covariance(values: ArrayLike, name: str) -> Reals:
    """Check a covariance, and return it as an array of variances or as a symmetric matrix."""
    array = np.asarray(values, dtype=float)
    square = array.ndim == 1 or (array.ndim == 2 and np.allclose(array, array.T, rtol=1e-10, atol=0))
    if not square or not array.size or not np.isfinite(array).all() or _variances(array).min() < 0:
        raise InputError(
            f"{name}: found an array of shape {array.shape}, expected p variances from 0 on (a diagonal "
            "covariance), or a symmetric p x p matrix"
        )
    return array


def _same_form(covariances: Sequence[ArrayLike]) -> list[Reals]:
    """Return variances if all covariances are diagonal, else all of them as matrices."""
    every = [np.asarray(covariance, dtype=float) for covariance in covariances]
    if any(covariance.ndim == 2 for covariance in every):
        every = [np.diag(covariance) if covariance.ndim == 1 else covariance for covariance in every]
    return every


def _variances(covariance: Reals) -> Reals:
    return covariance if covariance.ndim == 1 else np.diagonal(covariance)


@dataclass(frozen=True)
class Weighting:
    """A way to weight groups of samples if their shares differ from those in the target."""

    name: str
    label: str
    weighted: bool
    truncated: bool = False


WEIGHTINGS = by_name(
    Weighting("ones", "equal weights", weighted=False),
    Weighting("importance", "importance weights", weighted=True),
    Weighting("truncated", "truncated importance weights", weighted=True, truncated=True),
)
