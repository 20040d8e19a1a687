"""The file formats of checkpoints. Each has a reader, a subclass of `Tensors`, and an entry in `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from attnlaw.checkpoints.formats.gguf_file import MAGIC
from attnlaw.checkpoints.formats.gguf_parts import open_gguf
from attnlaw.checkpoints.formats.onnx_file import OnnxFile
from attnlaw.checkpoints.formats.safetensors_file import SafetensorsFile, is_safetensors
from attnlaw.checkpoints.formats.torch_file import TorchFile
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import require_extra

FIRST_BYTES = 32  # what `Format.begins` sees


@dataclass(frozen=True)
class Format:
    """A file format.

    Args:
        endings: endings of file names, with the dot.
        extra: the extra of attnlaw that installs the reader's dependencies, or None if it has none.
        in_directory: patterns of the files to look for in a directory, best first.
        on_hub: groups of patterns, best first. attnlaw downloads the first group that a repository has.
        begins: whether the first bytes of a file belong to this format. attnlaw calls this function if the
            ending is unknown: Ollama stores GGUF files as `sha256-...`. This test never recognises a pickle.
    """

    endings: tuple[str, ...]
    reader: Callable[[Path], Tensors]
    extra: str | None = None
    in_directory: tuple[str, ...] = ()
    on_hub: tuple[tuple[str, ...], ...] = ()
    begins: Callable[[bytes], bool] | None = None

    def open(self, path: Path) -> Tensors:
        ending = path.suffix if path.suffix in self.endings else self.endings[0]
        with require_extra(f"{path}: a {ending} file", self.extra) if self.extra else nullcontext():
            return self.reader(path)


# Best first. Optimizer states and training arguments match none of the patterns.
FORMATS = [
    Format(
        (".safetensors",),
        SafetensorsFile,
        begins=is_safetensors,
        in_directory=(
            *("model.safetensors", "model.safetensors.index.json"),
            *("*.safetensors.index.json", "*.safetensors"),
        ),
        on_hub=(
            ("model*.safetensors", "model.safetensors.index.json"),
            ("adapter_model.safetensors", "adapter_config.json"),
            ("*.safetensors", "*.safetensors.index.json"),
        ),
    ),
    Format(
        (".bin", ".pt", ".pth", ".ckpt"),
        TorchFile,
        extra="torch",
        in_directory=(
            *("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model*.bin"),
            *("consolidated.00.pth", "*.pt", "*.pth", "*.ckpt"),
        ),
        on_hub=(("pytorch_model*.bin", "pytorch_model.bin.index.json"), ("consolidated.*.pth",)),
    ),
    Format(
        (".gguf",), open_gguf, "gguf", in_directory=("*.gguf",), begins=lambda data: data.startswith(MAGIC)
    ),
    Format((".onnx",), OnnxFile, "onnx", in_directory=("*.onnx",)),
]
