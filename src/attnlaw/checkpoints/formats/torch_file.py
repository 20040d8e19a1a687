"""Read PyTorch pickles (`.bin .pt .pth .ckpt`), only with `weights_only=True`.

`argparse.Namespace` is allowed too, because Lightning and fairseq keep the training arguments in one. Filling
it calls nothing that a file could not call without it. A value counts as a weight only if it is a
`torch.Tensor`: a Namespace with the attributes of a tensor could pass for an array at any address.

If the weights are nested in the file (under `state_dict`, `model`, ...), the plain entries of the tables next
to them become `metadata`, which counts if there is no config.json. The training arguments of fairseq (`args`,
or `cfg` with a table `model`) begin with `encoder_` and `decoder_`. In `metadata`, each side becomes a table
without that prefix.
"""

from __future__ import annotations

import pickle
import re
import struct
import warnings
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.formats.pickle_screen import SuspiciousPickle, screen_file
from attnlaw.checkpoints.tensors import InMemoryTensors
from attnlaw.core.errors import InputError, require_extra

PLAIN = (str, int, float, bool, type(None))
SIDES = ("encoder", "decoder")
FAIRSEQ, SOUND = "fairseq", "fairseq_wav2vec2"  # values of `model_type` in the files of the families
OLD_NORM = (".emb_layer_norm.", ".layernorm_embedding.")  # names in older and newer versions of fairseq
# Where training programs put the weights inside a checkpoint, tried in this order.
NESTED_UNDER = ("state_dict", "model_state_dict", "model", "module", "net", "params")
ALLOWED = (Namespace,)
LOADING = Lock()  # PyTorch's list of plain classes belongs to the whole process
OLDEST_SAFE = "2.10"  # older versions have CVE-2025-32434 and CVE-2026-24747
# Errors of `torch.load` for files that are cut, damaged, or not checkpoints at all.
DAMAGE = (
    *(pickle.UnpicklingError, struct.error, EOFError, MemoryError, OSError, RuntimeError),
    *(ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError),
)


class TorchFile(InMemoryTensors):
    """The tensors of one pickled checkpoint, mapped if the file is not from before PyTorch 1.6."""

    def __init__(self, path: Path) -> None:
        import torch

        _require_closed_holes(torch, str(path))
        tensors, metadata = _weights(_load(path, torch), torch.Tensor, str(path))
        for name, tensor in tensors.items():
            # The screen rejects what can set these, so this is a second lock.
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or vars(tensor) or tensor.is_nested:
                raise InputError(
                    f"{path}: tensor {name} is a {type(tensor).__name__}, expected a plain tensor; save "
                    "tensor.detach().clone() instead"
                )
        super().__init__(tensors, str(path))
        self.metadata = metadata

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        self._require_stored(self._tensors[name], name)
        return super().read(name, member)

    def _require_stored(self, tensor: Any, name: str) -> None:
        """Raise an `InputError` if a tensor has more entries than its storage, as with strides of zero."""
        if str(getattr(tensor, "layout", "")) != "torch.strided" or tensor.device.type == "meta":
            return  # `as_numpy` rejects it
        if tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
            raise self.error(
                f"tensor {name} of shape {list(tensor.shape)} is an expanded view of a few numbers; save "
                "tensor.contiguous() instead"
            )


def import_torch(reason: str) -> Any:
    """Return the torch module. If torch is missing, raise an `InputError` that says how to install torch."""
    with require_extra(reason, "torch"):
        import torch
    return torch


def _require_closed_holes(torch: Any, source: str) -> None:
    """Raise an `InputError` if this PyTorch can run code from a pickle despite `weights_only=True`."""
    if torch.__version__ < OLDEST_SAFE:  # `TorchVersion` compares versions, not text
        raise InputError(
            f"{source}: a pickled checkpoint needs PyTorch {OLDEST_SAFE} or newer, because a pickle can run "
            f"code in older versions (this is {torch.__version__}); pip install --upgrade 'attnlaw[torch]', "
            "or save the weights as safetensors"
        )


def _load(path: Path, torch: Any) -> Any:
    try:
        mapped = screen_file(path)
        with warnings.catch_warnings(action="ignore"), LOADING, _allow_plain_classes(torch.serialization):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except PermissionError:
        raise
    except DAMAGE as error:
        raise InputError(f"{path}: {_reason(error)}") from error


def _allow_plain_classes(serialization: Any) -> Any:
    before = serialization.get_safe_globals()
    return serialization.safe_globals([kind for kind in ALLOWED if kind not in before])


def _reason(error: BaseException) -> str:
    text = str(error)
    foreign = re.search(r"GLOBAL (\S+)", text)
    if foreign:
        return (
            f"it contains the Python object {foreign.group(1)}, but attnlaw only loads plain tensors from "
            "a pickle; save the model's state_dict, or save as safetensors"
        )
    if "TorchScript" in text:
        return (
            "this is a TorchScript archive and not a file of weights; save the model's state_dict, or "
            "save as safetensors"
        )
    detail = f" ({text})" if isinstance(error, SuspiciousPickle) else ""
    return (
        f"this is not a complete PyTorch checkpoint of plain tensors{detail}; copy, download or save it again"
    )


def _weights(loaded: Any, tensor: type, source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tensors by name, and the metadata found next to them, at most three levels down."""
    metadata: dict[str, Any] = {}
    renamed = ("", "")
    current = loaded
    for _ in range(4):
        if not isinstance(current, Mapping):
            break
        tensors = {str(name): value for name, value in current.items() if isinstance(value, tensor)}
        inside = [key for key in NESTED_UNDER if isinstance(current.get(key), Mapping)]
        if tensors and not inside:
            return {name.replace(*renamed): value for name, value in tensors.items()}, metadata
        if not inside:
            break
        for key, value in current.items():
            if plain := {key: entry for key, entry in table_of(value).items() if isinstance(entry, PLAIN)}:
                metadata[str(key)] = plain
        if sizes := fairseq_sizes(current):
            metadata |= sizes
            renamed = OLD_NORM
        current = current[inside[0]]
    raise InputError(
        f"{source}: this file holds no named tensors (attnlaw looked at the top and under "
        f"{', '.join(NESTED_UNDER)}); save the model's state_dict"
    )


def table_of(value: Any) -> Mapping[str, Any]:
    entries = vars(value) if isinstance(value, Namespace) else value
    return {str(key): entry for key, entry in entries.items()} if isinstance(entries, Mapping) else {}


def fairseq_sizes(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in a fairseq checkpoint as a config, or an empty dict for other checkpoints.

    >>> arguments = Namespace(encoder_embed_dim=8, encoder_attention_heads=2, encoder_normalize_before=True)
    >>> fairseq_sizes({"args": arguments, "model": {}})["encoder"]
    {'embed_dim': 8, 'attention_heads': 2, 'normalize_before': True, 'norm_first': True}
    """
    arguments = _arguments(checkpoint)
    if not any(f"{side}_embed_dim" in arguments for side in SIDES):
        return {}
    sides = {side: _side(arguments, side) for side in SIDES}
    first = any(side["norm_first"] for side in sides.values())
    kind = SOUND if "conv_feature_layers" in arguments else FAIRSEQ
    plain = {key: value for key, value in arguments.items() if isinstance(value, str)}
    return {**plain, **sides, "norm_first": first, "model_type": kind}


def _arguments(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of the model, or of the inner model if a wav2vec model was fine-tuned."""
    arguments = table_of(checkpoint.get("args")) or table_of(table_of(checkpoint.get("cfg")).get("model"))
    inner = table_of(arguments.get("w2v_args"))
    return table_of(inner.get("model")) or inner or arguments


def _side(arguments: Mapping[str, Any], side: str) -> dict[str, Any]:
    """Return the arguments of the encoder or decoder without its prefix, and `norm_first`."""
    start = f"{side}_"
    sizes = {key.removeprefix(start): value for key, value in arguments.items() if key.startswith(start)}
    both = {"activation_fn": arguments["activation_fn"]} if "activation_fn" in arguments else {}
    first = bool(sizes.get("normalize_before") or arguments.get("layer_norm_first"))
    return {**sizes, **both, "norm_first": first}
