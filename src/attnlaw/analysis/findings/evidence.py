"""What an audit notes of a model beside its spectra, as plain values: what rules of findings look at."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class TensorLocation:
    """Where something was found; what it does not say is None."""

    layer: int | None = None
    stack: str | None = None
    kind: str | None = None
    head: int | None = None
    expert: int | None = None
    tensor: str | None = None


@dataclass(frozen=True)
class StoredTensor:
    """One stored tensor (of a stack of matrices one member), seen once.

    `role` is one of `roles.ROLES`. `peak` is the largest magnitude, None where entries are not finite.
    `distinct` is the median number of different values in blocks of 32 along its rows, None where it has no
    such blocks; `decibels` the signal over the rounding of its code, None where the file does not quantise
    it or its code is not known. `twin` names the first tensor with the same bits.
    """

    location: TensorLocation
    role: str
    shape: tuple[int, ...]
    dtype: str
    quantised: bool
    not_finite: int
    peak: float | None
    constant: bool
    zero_rows: int
    zero_columns: int
    distinct: float | None = None
    decibels: float | None = None
    twin: str | None = None
    mask: bool = False

    @property
    def zero(self) -> bool:
        return self.peak == 0


@dataclass(frozen=True)
class Similarity:
    """Two layers (or two heads of a layer, `spot.head` and `head`) with the cosines of their maps, exact."""

    location: TensorLocation
    layer: int | None
    stack: str | None
    head: int | None
    qk: float
    vo: float


@dataclass(frozen=True)
class Orientation:
    """How well both sides of a square matrix fit the layer's other matrices, as correlations."""

    location: TensorLocation
    residual_side: float
    head_side: float


@dataclass(frozen=True)
class Balance:
    """The root mean squares of the entries of two matrices that are applied one after the other."""

    location: TensorLocation
    pair: str
    ratio: float


@dataclass(frozen=True)
class Evidence:
    """All of one model; `seconds` is the CPU time that noting it took."""

    tensors: tuple[StoredTensor, ...] = ()
    similar_layers: tuple[Similarity, ...] = ()
    similar_heads: tuple[Similarity, ...] = ()
    orientations: tuple[Orientation, ...] = ()
    balances: tuple[Balance, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Subject:
    """What a rule looks at: the evidence, the rows of the matrices, and the chance of a model this random.

    `chance` is the probability of so many matrices that differ from noise in a freshly initialised model,
    None where none was tested or not all were.
    """

    evidence: Evidence
    matrices: pl.DataFrame
    chance: float | None = None


@dataclass(frozen=True)
class Hit:
    """What a rule found at one spot: the value that passes its threshold, and what is particular to it.

    `level` replaces the rule's own.
    """

    location: TensorLocation
    value: float | None
    detail: str = ""
    level: str | None = None
