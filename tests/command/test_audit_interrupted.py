"""`attnlaw audit --out DIR` that is interrupted: the same command measures only what is missing."""

from __future__ import annotations

import errno
import inspect
import os
import shutil
import signal
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
import pytest
from command.in_process import Ended, invoke
from safetensors.numpy import load_file, save_file

from attnlaw.analysis.audit import unfinished
from attnlaw.analysis.audit.unfinished import keep_units
from attnlaw.checkpoints.model import Model
from attnlaw.spectra import measure
from attnlaw.spectra.measure import Unit
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.verbs.audit import AuditSettings

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"
MATRICES = 40
KEPT = "all finished matrices are kept; run the same command to continue"
FILES = ("matrices.parquet", "spectra.parquet", "layers.parquet", "findings.parquet", "summary.json")


class Measured:
    """A record of each matrix that is measured. After `stop_after` units, somebody presses Ctrl-C."""

    def __init__(self, measure_unit: Callable[[Model, Unit], list[Spectrum]]) -> None:
        self.matrices: Counter[str] = Counter()
        self.stop_after: int | None = None
        self._measure_unit, self._lock, self._units = measure_unit, Lock(), 0

    def __call__(self, model: Model, unit: Unit) -> list[Spectrum]:
        spectra = self._measure_unit(model, unit)
        with self._lock:
            self._units += 1
            self.matrices.update(f"{model.name} {unit.location} {member}" for member in range(len(spectra)))
            if self._units == self.stop_after:
                os.kill(os.getpid(), signal.SIGINT)
        return spectra


@pytest.fixture(name="measured")
def _measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    measured = Measured(measure._spectra)
    monkeypatch.setattr(measure, "_spectra", measured)
    return measured


def audit(*words: object, status: int = 0) -> Ended:
    return invoke("audit", *words, "--no-laws", "--jobs", 2, status=status)


def copy(folder: Path, change: Callable[[dict[str, Any]], object] = lambda tensors: None) -> Path:
    """Copy the tiny decoder, with `change` applied to its tensors."""
    folder.mkdir()
    shutil.copy(TINY / "config.json", folder)
    tensors = load_file(TINY / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_no_matrix_is_measured_twice(tmp_path: Path, measured: Measured) -> None:
    plain, out = tmp_path / "plain", tmp_path / "out"
    shown = audit(TINY, "--out", plain).stdout
    assert len(measured.matrices) == MATRICES
    measured.matrices.clear()
    measured._units, measured.stop_after = 0, 5
    stopped = audit(TINY, "--out", out, status=130)
    assert stopped.stderr.splitlines() == [KEPT, "attnlaw: stopped"]
    first = measured.matrices.copy()
    assert 5 <= len(first) < MATRICES
    resumed = audit(TINY, "--out", out)
    assert resumed.stdout == shown
    assert (
        resumed.stderr.splitlines()[0]
        == f"{len(first)} of {MATRICES} matrices are known from the last run and not measured again"
    )
    assert len(measured.matrices) == MATRICES
    assert set(measured.matrices.values()) == {1}  # the number of matrices measured twice is 0
    for name in FILES:
        assert (out / name).read_bytes() == (plain / name).read_bytes()
    assert not (out / "unfinished").exists()


@pytest.mark.slow
def test_of_several_models_the_finished_one_is_kept_too(tmp_path: Path, measured: Measured) -> None:
    other = copy(tmp_path / "other")
    measured.stop_after = 20  # of 16 units in each model
    words = (TINY, other, "--out", tmp_path / "out")
    audit(*words, status=130)
    audit(*words)
    assert len(measured.matrices) == 2 * MATRICES
    assert set(measured.matrices.values()) == {1}
    assert not (tmp_path / "out" / "unfinished").exists()


@pytest.mark.slow
def test_another_choice_of_matrices_uses_what_is_kept(tmp_path: Path, measured: Measured) -> None:
    measured.stop_after = 12
    audit(TINY, "--out", tmp_path, status=130)
    audit(TINY, "--out", tmp_path, "--only", "ffn")
    assert set(measured.matrices.values()) == {1}
    audit(TINY, "--out", tmp_path, "--precision", "double", "--only", "ffn")
    assert set(measured.matrices.values()) == {1, 2}  # nothing is kept once the results are saved


@pytest.mark.slow
def test_a_changed_checkpoint_is_measured_anew(tmp_path: Path, measured: Measured) -> None:
    model = copy(tmp_path / "model")
    measured.stop_after = 5
    audit(model, "--out", tmp_path / "out", status=130)
    copy(
        tmp_path / "again",
        lambda tensors: tensors.update({"transformer.wpe.weight": np.ones((64, 128), "f4")}),
    )
    (tmp_path / "again" / "model.safetensors").replace(model / "model.safetensors")
    first = len(measured.matrices)
    audit(model, "--out", tmp_path / "out")
    assert sum(measured.matrices.values()) == first + MATRICES


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-100], lambda data: data[:200] + b"x" * 64 + data[264:]]
)
def test_a_damaged_entry_is_measured_again(
    tmp_path: Path, measured: Measured, spoil: Callable[[bytes], bytes]
) -> None:
    plain, out = tmp_path / "plain", tmp_path / "out"
    audit(TINY, "--out", plain)
    measured._units, measured.stop_after = 0, 5
    audit(TINY, "--out", out, status=130)
    (kept,) = (out / "unfinished").iterdir()
    kept.write_bytes(spoil(kept.read_bytes()))
    audit(TINY, "--out", out)
    assert (out / "matrices.parquet").read_bytes() == (plain / "matrices.parquet").read_bytes()


def test_nothing_is_left_of_a_model_that_cannot_be_measured(tmp_path: Path, measured: Measured) -> None:
    name = "transformer.h.3.mlp.c_proj.weight"
    damaged = copy(tmp_path / "damaged", lambda tensors: tensors[name].fill(np.nan))
    failed = audit(damaged, "--out", tmp_path / "out", status=1)
    assert name in failed.stderr
    assert measured.matrices
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_full_disk_keeps_nothing_and_does_not_stop_the_audit(
    tmp_path: Path, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept units of the first run go, so that the results have their space."""
    measured.stop_after = 5
    audit(TINY, "--out", tmp_path, status=130)
    monkeypatch.setattr(unfinished, "HEADER", FullDisk(unfinished.HEADER))
    assert "cannot be written" not in audit(TINY, "--out", tmp_path).stderr
    assert pl.read_parquet(tmp_path / "matrices.parquet").height == MATRICES
    assert not (tmp_path / "unfinished").exists()


class FullDisk:
    """The header of an entry, which cannot be written any more."""

    def __init__(self, header: struct.Struct) -> None:
        self.size, self.unpack, self._pack = header.size, header.unpack, header.pack

    def pack(self, length: int, digest: bytes) -> bytes:
        if inspect.stack()[1].function == "_append":
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._pack(length, digest)


@pytest.mark.slow
def test_a_link_in_place_of_kept_units_is_refused(tmp_path: Path, measured: Measured) -> None:
    measured.stop_after = 5
    audit(TINY, "--out", tmp_path, status=130)
    (kept,) = (tmp_path / "unfinished").iterdir()
    target = kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(target)
    before = target.read_bytes()
    assert f"{kept}: cannot be written" in audit(TINY, "--out", tmp_path, status=1).stderr
    kept.unlink()
    kept.parent.rmdir()
    (tmp_path / "far").mkdir()
    kept.parent.symlink_to(tmp_path / "far")
    assert "a link to another directory" in audit(TINY, "--out", tmp_path, status=1).stderr
    assert target.read_bytes() == before
    assert not [*(tmp_path / "far").iterdir()]


def test_two_audits_of_one_model_do_not_share_a_directory(tmp_path: Path) -> None:
    with keep_units(tmp_path, AuditSettings(model=str(TINY))):
        refused = audit(TINY, "--out", tmp_path, status=1)
    assert f"{tmp_path}: another audit of this model uses this directory" in refused.stderr
    assert refused.stderr.count("\n") == 1
