"""PyTorch pickles (`.bin .pt .pth .ckpt`), only ever read with `weights_only=True`.

Besides what PyTorch itself takes for plain, `argparse.Namespace` is: Lightning and fairseq keep the arguments
of a training in one. It is a bag of attributes: making one, and filling it, calls nothing that a file could
not call without it. What came out of a pickle is a weight only if it is a `torch.Tensor`, not if it has the
attributes of one: with those of its own choice a bag could pass for an array at any address.
"""

from __future__ import annotations

import pickle
import re
import struct
import warnings
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.formats.fairseq import current_name, fairseq_sizes
from attnlaw.checkpoints.formats.pickle_screen import SuspiciousPickle, screen_file
from attnlaw.checkpoints.formats.tables import plain_entries
from attnlaw.checkpoints.tensors import Tensors, as_numpy
from attnlaw.core.errors import InputError, require_extra

# Where training programs put the weights inside a checkpoint, tried in this order.
NESTED_UNDER = ("state_dict", "model_state_dict", "model", "module", "net", "params")
ALLOWED = (Namespace,)
LOADING = Lock()  # what PyTorch takes for plain is a setting of the whole process
OLDEST_SAFE = "2.10"  # CVE-2025-32434 and CVE-2026-24747 are in older ones
# What `torch.load` raises on files that are cut, damaged, or something else altogether.
DAMAGE = (
    pickle.UnpicklingError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


class TorchFile(Tensors):
    """The tensors of one pickled checkpoint; its pages are read from disk when a tensor is."""

    def __init__(self, path: Path) -> None:
        import torch

        self.source = str(path)
        _require_closed_holes(torch, self.source)
        loaded = _load(path, torch)
        self._tensors, self.metadata = _weights(loaded, torch.Tensor, self.source)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def dtype(self, name: str) -> str:
        return str(self._tensors[name].dtype).removeprefix("torch.")

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        tensor = self._tensors[name]
        self._require_stored(tensor, name)
        return as_numpy(tensor if member is None else tensor[member], self.source, name)

    def _require_stored(self, tensor: Any, name: str) -> None:
        """Strides of zero let a few bytes stand for any number of weights, which would fill the memory."""
        if str(getattr(tensor, "layout", "")) != "torch.strided" or tensor.device.type == "meta":
            return  # refused, or an array, when it is read
        if tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
            raise InputError(
                f"{self.source}: tensor {name} of shape {list(tensor.shape)} repeats the same few numbers; "
                "save it with .contiguous()"
            )


def import_torch(reason: str) -> Any:
    """The torch module, or one line on how to get it."""
    with require_extra(reason, "torch"):
        import torch
    return torch


def _require_closed_holes(torch: Any, source: str) -> None:
    """Refuse a PyTorch whose `weights_only=True` is known to let code in a pickle run."""
    if torch.__version__ < OLDEST_SAFE:  # compared as versions, not as text
        raise InputError(
            f"{source}: a pickled checkpoint is read with PyTorch {OLDEST_SAFE} or newer, and this is "
            f"{torch.__version__}, in which a pickle can run code; pip install --upgrade 'attnlaw[torch]', "
            "or save the weights as safetensors"
        )


def _load(path: Path, torch: Any) -> Any:
    """Unpickle tensors and plain containers only, mapped where the file's layout allows it."""
    try:
        screen_file(path)
    except ValueError as error:
        raise InputError(f"{path}: {_reason(error)}") from error
    for mapped in (True, False):
        try:
            with warnings.catch_warnings(action="ignore"), LOADING, _allow_plain_classes(torch.serialization):
                return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        except PermissionError:
            raise
        except DAMAGE as error:
            # Files written before PyTorch 1.6 cannot be mapped: the second attempt reads them whole.
            if not mapped:
                raise InputError(f"{path}: {_reason(error)}") from error
    raise AssertionError("both attempts return or raise")


def _allow_plain_classes(serialization: Any) -> Any:
    """What is plain besides, for as long as a file is loaded; what the user has allowed stays so."""
    before = serialization.get_safe_globals()
    return serialization.safe_globals([kind for kind in ALLOWED if kind not in before])


def _reason(error: BaseException) -> str:
    """One line for what `torch.load` says in many."""
    text = str(error)
    foreign = re.search(r"GLOBAL (\S+)", text)
    if foreign:
        return (
            f"holds the Python object {foreign.group(1)}, and only plain tensors are loaded from a pickle; "
            "save the model's state_dict (or safetensors) and read that"
        )
    if "TorchScript" in text:
        return "a TorchScript archive, not weights; save the model's state_dict (or safetensors)"
    said = f" ({text})" if isinstance(error, SuspiciousPickle) else ""
    return f"not a complete PyTorch checkpoint of plain tensors{said}; copy, download or save it again"


def _weights(loaded: Any, tensor: type, source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The innermost mapping of names to tensors, and the plain values found beside it."""
    metadata: dict[str, Any] = {}
    rename: Callable[[str], str] = str
    current = loaded
    for _ in range(4):
        if not isinstance(current, Mapping):
            break
        tensors = {str(name): value for name, value in current.items() if isinstance(value, tensor)}
        inside = [key for key in NESTED_UNDER if isinstance(current.get(key), Mapping)]
        if tensors and not inside:
            return {rename(name): value for name, value in tensors.items()}, metadata
        if not inside:
            break
        metadata |= {str(key): sizes for key, value in current.items() if (sizes := plain_entries(value))}
        if sizes := fairseq_sizes(current):
            metadata |= sizes
            rename = current_name
        current = current[inside[0]]
    raise InputError(
        f"{source}: holds no named tensors (looked at the top and under {', '.join(NESTED_UNDER)}); "
        "save the model's state_dict"
    )
