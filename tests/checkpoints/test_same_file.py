"""A file that changes between two tensors is refused: half of one step and half of the next is no network."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoints.test_gguf import write_gguf
from checkpoints.test_onnx import small_graph
from safetensors.numpy import save_file

from attnlaw.checkpoints.formats.gguf_file import GgufFile
from attnlaw.checkpoints.formats.onnx_file import OnnxFile
from attnlaw.checkpoints.formats.safetensors_file import SafetensorsFile
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError

STEP = np.arange(16, dtype=np.float32).reshape(4, 4)
Opened = tuple[Tensors, Path, str]


def safetensors(folder: Path) -> Opened:
    save_file({"w": STEP}, folder / "m.safetensors")
    return SafetensorsFile(folder / "m.safetensors"), folder / "m.safetensors", "w"


def gguf(folder: Path) -> Opened:
    path = write_gguf(folder / "m.gguf", {"w": STEP}, {})
    return GgufFile(path), path, "w"


def onnx(folder: Path) -> Opened:
    (folder / "m.onnx").write_bytes(small_graph(location="data.bin").SerializeToString())
    (folder / "data.bin").write_bytes(STEP.tobytes())
    return OnnxFile(folder / "m.onnx"), folder / "data.bin", "onnx::MatMul_0"


def renamed(path: Path, data: bytes) -> None:
    """As a training job saves: a new file takes the old one's name, here with its time of change, too."""
    then = path.stat().st_mtime_ns
    new = path.with_name("new")
    new.write_bytes(data)
    os.utime(new, ns=(then, then))
    new.replace(path)


def rewritten(path: Path, data: bytes) -> None:
    then = path.stat().st_mtime_ns
    path.write_bytes(data)
    os.utime(path, ns=(then + 1000, then + 1000))


def cut(path: Path, data: bytes) -> None:
    path.write_bytes(data[:-8])


@pytest.mark.parametrize("change", [renamed, rewritten, cut])
@pytest.mark.parametrize("opened", [safetensors, gguf, onnx])
def test_a_file_that_changes_is_refused(
    tmp_path: Path, opened: Callable[[Path], Opened], change: Callable[[Path, bytes], None]
) -> None:
    tensors, path, name = opened(tmp_path)
    assert np.array_equal(tensors.read(name), STEP)
    data = path.read_bytes()
    change(path, data.replace(STEP.tobytes(), (2 * STEP).tobytes()))
    with pytest.raises(InputError) as caught:
        tensors.read(name)
    assert f"{path.name}: this file changed while attnlaw read it; run the command again" in str(caught.value)
