"""One model measured unit by unit, wherever each is: what a unit returns, and the audit made of all of them.

A unit (one matrix, or all heads of one product) depends on the checkpoint and its number alone. It returns
records: spectra in the order of rows, then the notes for findings. They are a few numbers for each singular
value, 16 kB of sketches for a head and 2 MB of Gram matrices for a layer; matrices stay where they were read.
The audit is concluded from them as it is in one process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.audit.audit import AuditOptions, build_audit
from attnlaw.analysis.audit.record import Audit
from attnlaw.analysis.findings.gather import EvidenceCollector
from attnlaw.analysis.findings.notes import NOTED, Note
from attnlaw.analysis.findings.observer import Observer, TensorIndex
from attnlaw.checkpoints.formats import FORMATS
from attnlaw.checkpoints.hub import CONFIGS
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import GROUPS
from attnlaw.checkpoints.open import local_model_path
from attnlaw.checkpoints.settings import Arithmetic, ModelSettings
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.core.packing import pack, unpack
from attnlaw.spectra.factor_sizes import FactorSizes
from attnlaw.spectra.measure import Selection, Unit, spectra_tree, unit_spectra, units_of
from attnlaw.spectra.score_sizes import Lengths, ScorePart, ScoreSizes
from attnlaw.spectra.spectrum import Applied, Multiplicities, Spectrum

RECORDS = (Spectrum, Multiplicities, Applied, Estimate, FactorSizes, ScoreSizes, ScorePart, Lengths, *NOTED)


def selected_units(settings: ModelSettings, arithmetic: Arithmetic) -> list[Unit]:
    """The units that an audit of these settings is made of; only names and shapes are read."""
    model = settings.open()
    return units_of(model, Selection.from_settings(settings, model.network, arithmetic))


def local_path(path: Any) -> str:
    """The absolute path of a checkpoint that workers can open; one on a hub is fetched."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"cannot send a {type(path).__name__} to workers; save it to a file that they see, and give that"
        )
    return str(local_model_path(path).absolute())


def file_state(*paths: str | None) -> str:
    """Names, sizes and times of change of the files of checkpoints: another text when one was replaced."""
    endings = (*CONFIGS, ".index.json", *(ending for kind in FORMATS for ending in kind.endings))
    lines = []
    for path in (Path(path) for path in paths if path is not None):
        inside = sorted(path.iterdir()) if path.is_dir() else [path.parent / name for name in CONFIGS]
        for file in (path, *(entry for entry in inside if entry.name.endswith(endings))):
            if file.is_file():
                lines.append(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def _open_units(
    settings: ModelSettings, arithmetic: Arithmetic, state: str
) -> tuple[Model, TensorIndex, dict[int, Unit]]:
    """A model with all its units by their numbers: opened once by a worker, as long as it does not change."""
    model = settings.open()
    groups = tuple(GROUPS) if model.network.layers else ()
    every = units_of(model, Selection(groups=groups, arithmetic=arithmetic))
    return model, TensorIndex.of(model), {unit.first: unit for unit in every}


def measure_unit(
    settings: ModelSettings, arithmetic: Arithmetic, first: int, state: str
) -> tuple[int, pl.DataFrame]:
    """The number of matrices of a unit, and its records as a table of bytes.

    `state` tells the checkpoint from an earlier one at the same path (see `file_state`).
    """
    model, index, units = _open_units(settings, arithmetic, state)
    if first not in units:
        raise InputError(f"{settings.model}: has no matrix {first} to begin with; is it the same everywhere?")
    noted: list[Note] = []
    spectra = unit_spectra(Observer(model, noted.append, index).model, units[first])
    packed = [pack(record) for record in (*spectra, *noted)]
    return len(spectra), pl.DataFrame({"record": packed}, schema={"record": pl.Binary()})


def join_units(
    settings: ModelSettings, options: AuditOptions, arithmetic: Arithmetic, tables: Iterable[pl.DataFrame]
) -> Audit:
    """The audit of a model whose units were measured, from the tables of their records in order."""
    model = settings.open()
    selection = Selection.from_settings(settings, model.network, arithmetic)
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
    return build_audit(model, selection, options, measured, gathered.evidence(selection.whole))
