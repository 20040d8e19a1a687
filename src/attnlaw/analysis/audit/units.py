"""Measure a model unit by unit, possibly on several machines, and build the audit from the results.

A unit is one matrix, or QK or VO of all heads of a block. Its result depends only on the checkpoint and the
number of the unit. A worker returns small records: first the spectra, then the notes for findings. They take
a few numbers for each singular value, 16 kB for each head (sketches) and 2 MB for each layer (Gram matrices).
The matrices themselves are not sent. `audit_from_units` then builds the same audit as a single process would.

`pack` writes records of plain values and arrays as bytes, and `unpack` reads them back bit for bit. No code
in the bytes is ever run. One line of JSON holds the structure: records by the name of their class, arrays by
their position. The arrays follow in numpy's format (.npy). This keeps their memory layout, so that sums over
them are computed in the same order.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnlaw.analysis.audit import AuditOptions
from attnlaw.analysis.audit.audit import Audit, build_audit, select_matrices
from attnlaw.analysis.findings.observer import NOTED, EvidenceCollector, Note, Observer, TensorIndex
from attnlaw.checkpoints.formats import FORMATS
from attnlaw.checkpoints.hub import CONFIGS
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import GROUPS
from attnlaw.checkpoints.open import local_model_path
from attnlaw.checkpoints.settings import Arithmetic, ModelSettings
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.spectra.head_sizes import FactorSizes, Lengths, ScorePart, ScoreSizes
from attnlaw.spectra.measure import Selection, Unit, spectra_tree, unit_spectra, units_of
from attnlaw.spectra.spectrum import Applied, Multiplicities, Spectrum


def pack(record: Any) -> bytes:
    """Convert a frozen dataclass of plain values, arrays and records to bytes that `unpack` reads back.

    >>> from attnlaw.core.estimate import Estimate
    >>> unpack(pack(Estimate(0.1, float("inf"))), [Estimate])
    Estimate(value=0.1, error=inf)
    """
    arrays: list[NDArray[Any]] = []
    buffer = io.BytesIO()
    buffer.write(json.dumps(_encode(record, arrays)).encode() + b"\n")
    for array in arrays:
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def unpack(data: bytes, kinds: Iterable[type]) -> Any:
    """Return the record that `pack` converted to bytes. `kinds` are the classes that it may contain."""
    buffer = io.BytesIO(data)
    tree = json.loads(buffer.readline())
    arrays = (np.load(buffer, allow_pickle=False) for _ in count())
    return _decode(tree, {kind.__name__: kind for kind in kinds}, arrays)


def _encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Convert a value for JSON: a pair of kind and content if JSON has no such type. Collect `arrays`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return ["array", None]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, tuple):
        return ["tuple", [_encode(part, arrays) for part in value]]
    if is_dataclass(value) and not isinstance(value, type):
        pairs = [[field.name, _encode(getattr(value, field.name), arrays)] for field in fields(value)]
        return [type(value).__name__, pairs]
    raise TypeError(f"attnlaw cannot store a value of type {type(value).__name__}")


def _decode(tree: Any, kinds: dict[str, type], arrays: Iterator[NDArray[Any]]) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, content = tree
    if kind == "array":
        return next(arrays)
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "tuple":
        return tuple(_decode(part, kinds, arrays) for part in content)
    values = {name: _decode(part, kinds, arrays) for name, part in content}
    record = kinds.get(kind)
    if record is None or {field.name for field in fields(record)} != {*values}:
        raise InputError(
            f"a stored {kind} comes from another version of attnlaw; compute it again with --force"
        )
    return record(**values)


RECORDS = (Spectrum, Multiplicities, Applied, Estimate, FactorSizes, ScoreSizes, ScorePart, Lengths, *NOTED)


def selected_units(settings: ModelSettings, options: AuditOptions, arithmetic: Arithmetic) -> list[Unit]:
    """Return the units of an audit. This function reads only the names and shapes of tensors."""
    model = settings.open()
    return units_of(model, select_matrices(settings, options, model.network, arithmetic))


def local_path(path: Any) -> str:
    """Return an absolute path at which workers can open the checkpoint, and download it if it is on a hub."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"attnlaw cannot send a {type(path).__name__} to workers; save it to a file that all workers "
            "can read"
        )
    return str(local_model_path(path).absolute())


def file_state(*paths: str | None) -> str:
    """Return a hash of the files' names, sizes, times and inodes, which no copy has in common."""
    endings = (*CONFIGS, ".index.json", *(ending for kind in FORMATS for ending in kind.endings))
    lines = []
    for path in (Path(path) for path in paths if path is not None):
        inside = sorted(path.iterdir()) if path.is_dir() else [path.parent / name for name in CONFIGS]
        for file in (path, *(entry for entry in inside if entry.name.endswith(endings))):
            if file.is_file():
                facts = file.stat()
                lines.append(f"{file} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns} {facts.st_ino}")
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()[:16]


@lru_cache(maxsize=1)
def _open_units(
    settings: ModelSettings, arithmetic: Arithmetic, state: str
) -> tuple[Model, TensorIndex, dict[int, Unit]]:
    """Open a model and list its units by number, once for each `state` of the checkpoint's files."""
    model = settings.open()
    groups = tuple(GROUPS) if model.network.layers else ()
    units = units_of(model, Selection(groups=groups, arithmetic=arithmetic))
    return model, TensorIndex.of(model), {unit.first: unit for unit in units}


def measure_unit(
    settings: ModelSettings, arithmetic: Arithmetic, first: int, state: str
) -> tuple[int, pl.DataFrame]:
    """Measure the unit of matrix number `first`. Return the number of its matrices, and packed records."""
    model, index, units = _open_units(settings, arithmetic, state)
    if first not in units:
        raise InputError(
            f"{settings.model}: this file has no matrix number {first} here; check that all workers read "
            "the same file"
        )
    noted: list[Note] = []
    spectra = unit_spectra(Observer(model, noted.append, index).model, units[first])
    packed = [pack(record) for record in (*spectra, *noted)]
    return len(spectra), pl.DataFrame({"record": packed}, schema={"record": pl.Binary()})


def audit_from_units(
    settings: ModelSettings, options: AuditOptions, arithmetic: Arithmetic, tables: Iterable[pl.DataFrame]
) -> Audit:
    """Build the audit from the tables of `measure_unit` for all units, in the order of `selected_units`."""
    model = settings.open()
    selection = select_matrices(settings, options, model.network, arithmetic)
    gathered = EvidenceCollector(model)

    def spectra() -> Iterator[Spectrum]:
        for table in tables:
            for data in table["record"]:
                record = unpack(data, RECORDS)
                if isinstance(record, Spectrum):
                    yield record
                else:
                    gathered.take(record)

    measured = spectra_tree(model, selection, list(spectra()))
    return build_audit(model, selection, options, measured, gathered.evidence(selection))
