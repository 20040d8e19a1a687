"""The target of the attention-indexed model: the spectrum of the teacher's matrix S*.

Normalisation: eigenvalues of `S*` are of order one, and `Q* = Tr S*^2 / d`. The default target is `S* = W0
W0^T / sqrt(m0 d)`, which is Marchenko-Pastur with `kappa0 = m0/d`, mean `sqrt(kappa0)` and `Q* = 1 + kappa0`.

Untied attention has singular values instead, and `Q* = |S*|_F^2 / d`. Its default target is `S* = W_Q0 W_K0^T
/ sqrt(m0 d)` with `Q* = 1` for every kappa0. The theory uses every singular value with both signs, each with
half the weight. So the `law` of a target `with_both_signs` is symmetric.

| letter | name |
|---|---|
| kappa0 | `rank_ratio` |
| gamma | `exponent` of a power law `s_k = A sqrt(d) k^-gamma`, `A^2 = 1/zeta(2 gamma)` |
| Q* | `second_moment` |
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from attnlaw.core.arrays import Reals, require_spectral_values
from attnlaw.core.errors import InputError, as_input_error
from attnlaw.core.files import read_bounded, require_valid_path
from attnlaw.core.settings import check_value, setting_fields
from attnlaw.theory.laws.discrete import Discrete
from attnlaw.theory.laws.free_convolution import Base
from attnlaw.theory.laws.law import Law
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.symmetric_product import SymmetricProduct
from attnlaw.theory.laws.transformed import Folded
from attnlaw.theory.learn.settings import ProblemSettings

# Eigenvalues of a power law beyond this index are put into bins of 5% width in k.
EXACT_MODES = 100
LARGEST_SIZE = 10**6
LEAST_STEPS = 1e5


@dataclass(frozen=True)
class Target:
    """The spectrum of a target matrix.

    Make a target with `marchenko_pastur`, `product`, `power_law` or `discrete`.

    Args:
        spikes: single eigenvalues outside the bulk. They cause outliers of the learned spectrum.
        both_signs: whether the law has each singular value with both signs, as untied attention needs.

    >>> target = Target.marchenko_pastur(0.5)
    >>> target.second_moment, target.quantiles(4).round(3).tolist()
    (1.5, [0.0, 0.0, 0.563, 2.101])
    """

    kind: str
    rank_ratio: float | None = None
    exponent: float | None = None
    dimension: int | None = None
    eigenvalues: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    spikes: tuple[float, ...] = ()
    both_signs: bool = False

    @classmethod
    def marchenko_pastur(cls, rank_ratio: float) -> Target:
        """Make the target `S* = W0 W0^T / sqrt(m0 d)`, where W0 is Gaussian and `m0/d = rank_ratio`."""
        return cls("marchenko-pastur", rank_ratio=_validate_setting("target_rank", rank_ratio))

    @classmethod
    def product(cls, rank_ratio: float) -> Target:
        """Make the target `W_Q0 W_K0^T / sqrt(m0 d)` for untied attention, with `m0/d = rank_ratio`."""
        return cls("product", rank_ratio=_validate_setting("target_rank", rank_ratio), both_signs=True)

    @classmethod
    def power_law(cls, exponent: float, dimension: int) -> Target:
        """Make the target with eigenvalues `s_k = A sqrt(d) k^-gamma`. Its Q* approaches 1 for large d."""
        return cls(
            "power-law",
            exponent=_validate_setting("target_exponent", exponent),
            dimension=_validate_setting("target_dimension", dimension),
        )

    @classmethod
    def discrete(cls, eigenvalues: Sequence[float], weights: Sequence[float] | None = None) -> Target:
        """Make a target with any eigenvalues that are not negative.

        Args:
            weights: weights of the eigenvalues, which need not sum to one. None means equal weights.
        """
        remedy = "the teacher S* is positive semidefinite"
        values = tuple(
            require_spectral_values("target eigenvalues", eigenvalues, remedy, positive=True).tolist()
        )
        shares = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float)
        if shares.shape != (len(values),) or not np.all(shares > 0):
            raise InputError("target weights: expected one positive weight for each eigenvalue")
        shares = shares / shares.sum()
        return cls("eigenvalues", eigenvalues=values, weights=tuple(float(share) for share in shares))

    def with_spikes(self, *spikes: float) -> Target:
        """Return a copy of this target with these single eigenvalues outside its bulk."""
        return replace(self, spikes=tuple(_validate_setting("target_spike", spike) for spike in spikes))

    def with_both_signs(self, both: bool = True) -> Target:
        """Return this target with each singular value in both signs, or in one sign if not `both`."""
        return self if self.both_signs == both else replace(self, both_signs=both)

    @property
    def is_product(self) -> bool:
        """Whether the target is a product of two different factors, so that it is not symmetric."""
        return self.kind == "product"

    @cached_property
    def law(self) -> Base:
        """The law of the bulk of the spectrum. It is symmetric if the target has both signs."""
        if self.is_product and self.rank_ratio is not None:
            return SymmetricProduct(self.rank_ratio)
        return _mirrored(self._positive) if self.both_signs else self._positive

    @cached_property
    def values(self) -> Law:
        """The law of the eigenvalues, or of the singular values without signs."""
        return Folded(self.law) if self.is_product else self._positive

    @cached_property
    def _positive(self) -> MarchenkoPastur | Discrete:
        if self.rank_ratio is not None:
            return MarchenkoPastur(self.rank_ratio)
        if self.exponent is not None and self.dimension is not None:
            return _binned(_power_law(self.exponent, self.dimension))
        return Discrete(self.eigenvalues, self.weights)

    @cached_property
    def second_moment(self) -> float:
        """The second moment of the spectrum, `Q* = |S*|_F^2 / d`."""
        if self.is_product:
            return 1.0
        return 1.0 + self.rank_ratio if self.rank_ratio is not None else self.values.moment(2)

    @cached_property
    def mean(self) -> float:
        """The mean eigenvalue `Tr S* / d`, or the mean singular value `|S*|_* / d`."""
        if self.rank_ratio is not None and not self.is_product:
            return float(np.sqrt(self.rank_ratio))
        return self.values.moment(1)

    @cached_property
    def rank_fraction(self) -> float:
        """The share of eigenvalues that are not zero."""
        return 1.0 - sum(weight for place, weight in self.values.atoms if place == 0.0)

    @cached_property
    def least_noise_level(self) -> float:
        """The smallest noise level delta that can be computed in float64.

        It is the rounding error of the largest eigenvalue. In a discrete law, noise widens an eigenvalue of
        weight p to `delta sqrt(p)`, which must be at least `LEAST_STEPS` rounding errors.
        """
        law = self.law
        least = float(np.finfo(float).eps) * law.support[1]
        return (
            least * LEAST_STEPS / float(np.sqrt(law.arrays[1].min())) if isinstance(law, Discrete) else least
        )

    def quantiles(self, size: int) -> Reals:
        """Return the `size` eigenvalues of a finite target, in ascending order.

        They are quantiles of the bulk, and the spikes. A Marchenko-Pastur target or a product has exactly
        `size * rank_ratio` nonzero eigenvalues, and this number must be whole. The size of a power law must
        be its dimension.
        """
        least = 1 + len(self.spikes)
        check_value("size", size, int, minimum=least, maximum=LARGEST_SIZE)
        bulk = size - len(self.spikes)
        if self.exponent is not None and self.dimension is not None:
            if size != self.dimension:
                raise InputError(
                    f"students of dimension {size} cannot learn a power-law target of the different "
                    f"dimension {self.dimension}; choose equal dimensions"
                )
            values = _power_law(self.exponent, self.dimension)[::-1][len(self.spikes) :]
        elif self.rank_ratio is not None and self.rank_ratio < 1:
            zeros = min(size - whole_share(size, self.rank_ratio, "target rank"), bulk)
            rest = bulk - zeros
            levels = 1.0 - self.rank_ratio + self.rank_ratio * (np.arange(rest) + 0.5) / max(rest, 1)
            values = np.concatenate([np.zeros(zeros), self.values.quantile(levels)])
        else:
            if self.rank_ratio is not None:
                whole_share(size, self.rank_ratio, "target rank")
            values = self.values.quantile((np.arange(bulk) + 0.5) / bulk)
        return np.sort(np.concatenate([values, self.spikes]))


def whole_share(size: int, ratio: float, name: str) -> int:
    """Return `size * ratio`, or raise an `InputError` if this is not a whole number of at least 1."""
    share = size * ratio
    if abs(share - round(share)) > 1e-9 * size or round(share) < 1:
        raise InputError(
            f"dimension {size} times {name} {ratio:g} is {share:g}, expected a whole number of at least 1; "
            f"choose another dimension or {name}"
        )
    return round(share)


def _validate_setting(name: str, value: Any) -> Any:
    """Check a value by the rules of the setting `name`, and return it."""
    return setting_fields(ProblemSettings)[name].validate(value)


def _power_law(exponent: float, dimension: int) -> Reals:
    """Return the eigenvalues `A sqrt(d) k^-gamma` for k = 1..d, descending."""
    k = np.arange(1, dimension + 1, dtype=float)
    return np.asarray(np.sqrt(dimension / scipy.special.zeta(2 * exponent)) * k**-exponent)


def _mirrored(law: MarchenkoPastur | Discrete) -> Discrete:
    """Return the law, or its quadrature nodes, in which every value has both signs with half the weight."""
    points, weights = law.nodes() if isinstance(law, MarchenkoPastur) else (np.empty(0), np.empty(0))
    atoms = np.array(law.atoms).reshape(-1, 2)
    values = np.concatenate([points, atoms[:, 0]])
    shares = np.concatenate([weights, atoms[:, 1]])
    shares = np.tile(shares / shares.sum() / 2, 2)
    return Discrete(tuple(np.append(-values, values).tolist()), tuple(shares.tolist()))


def _binned(values: Reals) -> Discrete:
    """Return the law of a power law's eigenvalues, with the smaller ones put into narrow bins."""
    size = values.size
    head = min(size, EXACT_MODES)
    count = max(int(np.ceil(np.log(size / head) / np.log(1.05))), 1)
    ends = np.unique(np.round(np.geomspace(head, size, count + 1)).astype(int))
    sums = np.concatenate([[0.0], np.cumsum(values**2)])
    widths = np.diff(ends)
    # Root mean squares of the bins keep Q*. Without bins, 1000 eigenvalues take ten times as long.
    tail = np.sqrt((sums[ends[1:]] - sums[ends[:-1]]) / widths) if widths.size else np.empty(0)
    places = np.concatenate([values[:head], tail])
    weights = np.concatenate([np.ones(head), widths]) / size
    return Discrete(tuple(places.tolist()), tuple(weights.tolist()))


LARGEST = 16  # megabytes
DAMAGE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


def read_target(source: str) -> Target:
    """Read a target from a file, or from numbers with commas between them."""
    wanted = "one eigenvalue on each line, optionally followed by its weight (or a list such as 0,0.4,1,2.2)"
    with as_input_error(f"{source}: not a spectrum", f"expected {wanted}", *DAMAGE, with_reason=False):
        table = _numbers(source)
        if table.ndim == 1:
            table = np.column_stack([table, np.ones(table.size)])
        if table.ndim != 2 or table.shape[1] != 2:
            raise ValueError(f"shape {table.shape}")
        values, places = np.unique(table[:, 0], return_inverse=True)
        if not np.all(table[:, 1] > 0):
            raise ValueError("a weight that is not positive")
        weights = np.bincount(places.ravel(), table[:, 1])
    try:
        return Target.discrete(values.tolist(), weights.tolist())
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def _numbers(source: str) -> NDArray[np.float64]:
    path = require_valid_path(Path(source))
    if "," in source and not path.exists():
        return np.array(source.split(","), dtype=np.float64)
    data = read_bounded(
        path, LARGEST, remedy="give a file of eigenvalues, or a list of numbers separated by commas"
    )
    if path.suffix == ".npy":
        stored: Any = np.load(io.BytesIO(data), allow_pickle=False)
        return np.asarray(stored.astype(np.float64, casting="same_kind"))
    lines = [line.split("#")[0].replace(",", " ").split() for line in data.decode("utf-8").splitlines()]
    rows = np.array([line for line in lines if line], dtype=np.float64)
    return rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows


def stated_target(case: Any, of_rank: Callable[[float], Target]) -> Target:
    """Return the target that settings describe: a rank, a power law or eigenvalues, perhaps a spike."""
    if case.target_eigenvalues is not None:
        bulk = read_target(case.target_eigenvalues)
    elif case.target_exponent is not None:
        bulk = Target.power_law(case.target_exponent, case.target_dimension)
    else:
        bulk = of_rank(case.target_rank)
    return bulk if case.target_spike is None else bulk.with_spikes(case.target_spike)
