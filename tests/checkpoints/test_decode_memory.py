"""What opening and decoding take: bytes that are read, and memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints.decode_memory import CONFIGS, measure
from checkpoints.quantization.fixtures import FOLDER, NAMES

from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.tensors import UnchangedFile

MOST_READ, MOST_TOTAL = 256, 4096  # bytes: a shape, a state, one row of zero points


@pytest.mark.parametrize("name", NAMES)
def test_opening_a_coded_model_reads_no_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    read = UnchangedFile.read

    def counted(self: UnchangedFile, offset: int, count: int, tensor: str) -> Any:
        counts.append(count)
        return read(self, offset, count, tensor)

    monkeypatch.setattr(UnchangedFile, "read", counted)
    model = open_model(FOLDER / name)
    assert max(counts, default=0) <= MOST_READ
    assert sum(counts) <= MOST_TOTAL
    weight = next(name for name, shape in model.tensors.shapes.items() if len(shape) > 1)
    assert isinstance(model.tensors.read(weight), np.ndarray)
    assert sum(counts) > MOST_READ  # reading is counted


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("code", CONFIGS)
def test_decoding_takes_the_matrix_its_parts_and_16_megabytes(code: str, tmp_path: Path) -> None:
    assert measure(code, tmp_path) < 16 * 2**20
