"""What reading some maps shows, as records: small enough to send from a worker to who gathers them."""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.analysis.findings.duplicates import Sketch
from attnlaw.analysis.findings.evidence import TensorLocation
from attnlaw.analysis.findings.orientation import Float32Array
from attnlaw.analysis.findings.scan import Scan


@dataclass(frozen=True)
class TensorNote:
    """One look at a stored tensor, or at one matrix of a stack; the fields are those of `StoredTensor`."""

    name: str
    member: int | None
    shape: tuple[int, ...]
    seen: Scan
    decibels: float | None
    mask: bool


@dataclass(frozen=True)
class SizeNote:
    """The root mean square of the entries of a map, where it is used."""

    spot: TensorLocation
    field: str
    size: float


@dataclass(frozen=True, eq=False)
class SketchNote:
    """The sketches of all heads of a block, of one kind."""

    layer: int
    kind: str
    heads: Sketch


@dataclass(frozen=True, eq=False)
class SideNote:
    """Gram matrices of the residual side and of the head side of a map (see `orientation`)."""

    layer: int
    field: str
    residual: Float32Array | None
    head: Float32Array | None


Note = TensorNote | SizeNote | SketchNote | SideNote
# The classes of all records inside notes.
NOTED = (TensorNote, SizeNote, SketchNote, SideNote, Scan, TensorLocation)
