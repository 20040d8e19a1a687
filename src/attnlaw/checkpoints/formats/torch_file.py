"""PyTorch pickles (`.bin .pt .pth .ckpt`), only ever read with `weights_only=True`."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.tensors import Tensors
from attnlaw.errors import InputError

# Where training programs put the weights inside a checkpoint, tried in this order.
NESTED_UNDER = ("state_dict", "model_state_dict", "model", "module", "net", "params")


class TorchFile(Tensors):
    """The tensors of one pickled checkpoint; its pages are read from disk when a tensor is."""

    def __init__(self, path: Path) -> None:
        self.source = str(path)
        loaded = _load(path, import_torch(f"{path}: a pickled checkpoint"))
        self._tensors, self.metadata = _weights(loaded, self.source)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def read(self, name: str) -> NDArray[Any]:
        return as_numpy(self._tensors[name])


def import_torch(reason: str) -> Any:
    """The torch module, or one line on how to get it."""
    try:
        import torch
    except ImportError as error:
        raise InputError(f"{reason} needs PyTorch; install it with: pip install 'attnlaw[torch]'") from error
    return torch


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor or array that can be a weight."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def as_numpy(tensor: Any) -> NDArray[Any]:
    """A torch tensor (or array) as a numpy array of the same precision; bfloat16 keeps its bits."""
    if isinstance(tensor, np.ndarray):
        return tensor
    tensor = tensor.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    narrow = {
        "bfloat16": ("int16", ml_dtypes.bfloat16),
        "float8_e4m3fn": ("int8", ml_dtypes.float8_e4m3fn),
        "float8_e5m2": ("int8", ml_dtypes.float8_e5m2),
    }
    if name in narrow:
        import torch

        bits, dtype = narrow[name]
        raw: NDArray[Any] = tensor.contiguous().view(getattr(torch, bits)).numpy()
        return raw.view(dtype)
    array: NDArray[Any] = tensor.numpy()
    return array


def _load(path: Path, torch: Any) -> Any:
    """Unpickle tensors and plain containers only, mapped where the file's layout allows it."""
    refused = (
        f"{path}: not a checkpoint of plain tensors, and nothing else is loaded from a pickle; "
        "save the model's state_dict (or safetensors) and read that"
    )
    broken = f"{path}: not a complete PyTorch checkpoint; copy or download it again"
    for mapped in (True, False):
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        except pickle.UnpicklingError as error:
            raise InputError(refused if _looks_like_pickle(path) else broken) from error
        except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, TypeError) as error:
            # Files written before PyTorch 1.6 cannot be mapped: the second attempt reads them whole.
            if not mapped:
                raise InputError(broken) from error
    raise AssertionError("both attempts return or raise")


def _looks_like_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


def _weights(loaded: Any, source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The innermost mapping of names to tensors, and the plain values found beside it."""
    metadata: dict[str, Any] = {}
    current = loaded
    for _ in range(4):
        if not isinstance(current, Mapping):
            break
        tensors = {str(name): value for name, value in current.items() if is_tensor(value)}
        inside = [key for key in NESTED_UNDER if isinstance(current.get(key), Mapping)]
        if tensors and not inside:
            return tensors, metadata
        if not inside:
            break
        metadata |= {str(key): value for key, value in current.items() if isinstance(value, Mapping)}
        current = current[inside[0]]
    raise InputError(
        f"{source}: holds no named tensors (looked at the top and under {', '.join(NESTED_UNDER)}); "
        "save the model's state_dict"
    )
