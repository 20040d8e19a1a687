"""Records of what an audit notes about a model in addition to its spectra, as evidence for findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from attnlaw.checkpoints.model import MissingTensor
from attnlaw.checkpoints.network import LAYER_GROUPS

# The roles of stored tensors, as `attnlaw.analysis.findings.scan` describes them.
MAP, EMBEDDING, GAIN, VECTOR, OTHER = ("map", "embedding", "gain", "vector", "other")
# What some tensors are in particular: tables with one row for each token, and the vectors of a layer.
TOKENS, TABLE, NORM_GAIN, OFFSET_GAIN, NORM_BIAS, BIAS = (
    "tokens",
    "table",  # of positions or of types of tokens
    "norm gain",
    "norm gain minus one",
    "norm bias",
    "bias",
)


# Parts of a model that an audit can leave out and that a detector may need. REST are the tensors that are no
# matrices of layers: embeddings, norms and biases.
LAYERS, EXPERTS, REST = "every layer", "every expert", "the other tensors"
HEADS = ("qk", "vo")
MATRICES = tuple(LAYER_GROUPS)


@dataclass(frozen=True)
class TensorLocation:
    """The place where something was found. A field is None if it does not apply."""

    layer: int | None = None
    stack: str | None = None
    kind: str | None = None
    head: int | None = None
    expert: int | None = None
    tensor: str | None = None


@dataclass(frozen=True)
class StoredTensor:
    """Facts about a stored tensor, or about one matrix of a stored stack of matrices."""

    location: TensorLocation  # layer and kind of the matrix that uses it, and its name
    role: str  # `MAP`, `EMBEDDING`, `GAIN`, `VECTOR` or `OTHER`
    shape: tuple[int, ...]
    dtype: str
    quantised: bool  # whether the file stores a code instead of floating-point numbers
    not_finite: int  # number of entries that are NaN or infinite
    peak: float | None  # largest magnitude; None if an entry is not finite
    constant: bool  # whether all entries are equal
    zero_rows: int
    zero_columns: int
    part: str = ""  # the particular use of the tensor, such as `TOKENS` or `BIAS`
    inner_zero_rows: int = 0  # with a nonzero row somewhere below them
    distinct: float | None = None  # median number of values among 32 neighbours of a row, if rows are as long
    significands: float | None = None  # the same of significands among 128 neighbours
    noise_ratio: float | None = None  # spectral norm of a table of tokens over that of noise, if known
    decibels: float | None = None  # signal-to-noise ratio of the values of a known code
    twin: str | None = None  # name of the first tensor with the same bits
    alike: str | None = None  # "equal" or "parallel" rows of a table; None if they differ, or are not a table
    mask: bool = False  # whether it has at most two different values, so that it is a buffer and not weights

    @property
    def zero(self) -> bool:
        return self.peak == 0

    @property
    def is_layer_matrix(self) -> bool:
        """Whether the location is a weight matrix of the layers, or of an adapter, that is not all zero."""
        return self.role == MAP and len(self.shape) > 1 and not self.zero


@dataclass(frozen=True)
class Similarity:
    """Two similar layers or heads with the exact cosines of their QK and VO. `location` is the later one."""

    location: TensorLocation
    layer: int | None
    stack: str | None
    head: int | None
    qk: float
    vo: float


@dataclass(frozen=True)
class Orientation:
    """Two correlations that show how well each side of a square matrix fits the layer's other matrices."""

    location: TensorLocation
    residual_side: float
    head_side: float


@dataclass(frozen=True)
class Balance:
    """The ratio of the root mean squares of two matrices that follow each other: "Q/K", "V/O" or "in/out"."""

    location: TensorLocation
    pair: str
    ratio: float


@dataclass(frozen=True)
class Evidence:
    """All notes about one model. `seconds` is the CPU time spent on taking notes."""

    tensors: tuple[StoredTensor, ...] = ()
    similar_layers: tuple[Similarity, ...] = ()
    similar_heads: tuple[Similarity, ...] = ()
    orientations: tuple[Orientation, ...] = ()
    balances: tuple[Balance, ...] = ()
    seconds: float = 0.0
    missing: tuple[MissingTensor, ...] = ()


@dataclass(frozen=True)
class Subject:
    """A model as the detectors see it."""

    evidence: Evidence  # notes about the model from when it was read
    matrices: pl.DataFrame  # the audit's table of matrices
    chance: float | None = None  # probability that an untrained model differs from noise as much
    left_out: frozenset[str] = frozenset()  # parts that were not measured: LAYERS, EXPERTS, REST, `MATRICES`

    def allows(self, needs: Iterable[str]) -> bool:
        """Return whether a detector can look at this model, given the parts that the detector needs."""
        return self.left_out.isdisjoint(needs)


@dataclass(frozen=True)
class Hit:
    """A detector's report about one location."""

    location: TensorLocation
    value: float | None  # the number that passed the threshold
    detail: str = ""  # a description of this case, which is put before the detector's meaning
    level: str | None = None  # a level that replaces the detector's; None keeps it
