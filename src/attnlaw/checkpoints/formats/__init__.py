"""The table of formats. A format is a file here, a subclass of `Tensors`, and a line of `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import require_extra


@dataclass(frozen=True)
class Format:
    """Files of some endings, and who reads them.

    `reader` is "module:class", imported when such a file is opened; `extra` is the extra of attnlaw that
    brings the packages it needs. `in_directory` are patterns of the files looked for in a directory, best
    first; `on_hub` are groups of patterns, best first: a repository's files of one group are fetched.
    """

    endings: tuple[str, ...]
    reader: str
    extra: str | None = None
    in_directory: tuple[str, ...] = ()
    on_hub: tuple[tuple[str, ...], ...] = ()

    def open(self, path: Path) -> Tensors:
        """The tensors of one file."""
        module, _, name = self.reader.partition(":")
        with require_extra(f"{path}: a {path.suffix} file", self.extra) if self.extra else nullcontext():
            reader: Callable[[Path], Tensors] = getattr(import_module(module), name)
            tensors: Tensors = reader(path)
        return tensors


# Best first. Optimizer states and training arguments match none of the patterns.
FORMATS = [
    Format(
        (".safetensors",),
        "attnlaw.checkpoints.formats.safetensors_file:SafetensorsFile",
        in_directory=(
            "model.safetensors",
            "model.safetensors.index.json",
            "*.safetensors.index.json",
            "*.safetensors",
        ),
        on_hub=(
            ("model*.safetensors", "model.safetensors.index.json"),
            ("adapter_model.safetensors", "adapter_config.json"),
            ("*.safetensors", "*.safetensors.index.json"),
        ),
    ),
    Format(
        (".bin", ".pt", ".pth", ".ckpt"),
        "attnlaw.checkpoints.formats.torch_file:TorchFile",
        extra="torch",
        in_directory=(
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
            "pytorch_model*.bin",
            "consolidated.00.pth",
            "*.pt",
            "*.pth",
            "*.ckpt",
        ),
        on_hub=(("pytorch_model*.bin", "pytorch_model.bin.index.json"), ("consolidated.*.pth",)),
    ),
    Format((".gguf",), "attnlaw.checkpoints.formats.gguf_file:GgufFile", "gguf", in_directory=("*.gguf",)),
    Format((".onnx",), "attnlaw.checkpoints.formats.onnx_file:OnnxFile", "onnx", in_directory=("*.onnx",)),
]
