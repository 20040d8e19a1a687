"""Evidence for findings: plain records of what an audit notes about a model in addition to its spectra."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class TensorLocation:
    """Where something was found; None for whatever does not apply."""

    layer: int | None = None
    stack: str | None = None
    kind: str | None = None
    head: int | None = None
    expert: int | None = None
    tensor: str | None = None


@dataclass(frozen=True)
class StoredTensor:
    """A stored tensor, or one matrix of a stored stack of matrices, as it was seen once.

    Args:
        distinct: median number of different values in blocks of 32 neighbours along a row; None if rows have
            no such blocks.
        decibels: ratio of the signal to the rounding of its code; None if the file does not quantise it, or
            if attnlaw does not know the code.
    """

    location: TensorLocation  # the layer and kind it belongs to, and its name
    role: str  # one of `ROLES` in `attnlaw.analysis.findings.scan`
    shape: tuple[int, ...]
    dtype: str
    quantised: bool  # whether the file stores a code instead of floating-point numbers
    not_finite: int  # number of entries that are NaN or infinite
    peak: float | None  # largest magnitude; None if an entry is not finite
    constant: bool  # whether all entries have the same magnitude
    zero_rows: int
    zero_columns: int
    distinct: float | None = None
    decibels: float | None = None
    twin: str | None = None  # name of the first tensor with the same bits
    mask: bool = False  # whether it takes at most two values, so that it is a buffer and not weights

    @property
    def zero(self) -> bool:
        return self.peak == 0


@dataclass(frozen=True)
class Similarity:
    """Two layers, or two heads of one layer, and the exact cosines of their QK and VO matrices.

    `location` is the later one. `layer`, `stack` and `head` say which earlier one it resembles.
    """

    location: TensorLocation
    layer: int | None
    stack: str | None
    head: int | None
    qk: float
    vo: float


@dataclass(frozen=True)
class Orientation:
    """How well each side of a square matrix fits the layer's other matrices, as correlations."""

    location: TensorLocation
    residual_side: float
    head_side: float


@dataclass(frozen=True)
class Balance:
    """The ratio of the root mean squares of two matrices that are applied one after the other.

    `pair` names them: "Q/K", "V/O" or "in/out".
    """

    location: TensorLocation
    pair: str
    ratio: float


@dataclass(frozen=True)
class Evidence:
    """Everything noted about one model; `seconds` is the CPU time that noting it took."""

    tensors: tuple[StoredTensor, ...] = ()
    similar_layers: tuple[Similarity, ...] = ()
    similar_heads: tuple[Similarity, ...] = ()
    orientations: tuple[Orientation, ...] = ()
    balances: tuple[Balance, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Subject:
    """The model that detectors look at.

    Args:
        chance: probability that an untrained model has so many matrices that differ from noise; None if not
            every matrix was measured or none could be tested.
    """

    evidence: Evidence  # what was noted while it was read
    matrices: pl.DataFrame  # the audit's table of matrices
    chance: float | None = None


@dataclass(frozen=True)
class Hit:
    """What a detector reports for one location."""

    location: TensorLocation
    value: float | None  # the number that passed the threshold
    detail: str = ""  # what is particular to this case; it is put before the detector's meaning
    level: str | None = None  # replaces the detector's level
