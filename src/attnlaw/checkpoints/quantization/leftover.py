"""Reject what attnlaw would read wrongly: tensors of unknown codes, and codes without scales."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from attnlaw.checkpoints.quantization.packing import FLOAT8
from attnlaw.checkpoints.quantization.record import CodedFile
from attnlaw.checkpoints.tensors import Tensors

# Scales of activations and of the cache of keys and values. No weight contains them.
ACTIVATIONS = re.compile(
    r"(^|_)(input|output|act|activation|prob|q|k|v|kv|query|key|value)(_cache|_proj|_global)*"
    r"_(scale|global_scale|zero_point|amax|offset)(_inv|_2)?$"
)
# Last words of the names of tensors that only quantised checkpoints have.
CODE_WORDS = re.compile(
    r"(qweight|qzeros|g_idx|SCB|trellis|q_weight|q_groups|Qidxs|SU|SV|W_q|codebooks|codes|centroids|qdata|"
    r"_data|absmax|quant_map|\w*(_packed|_qdata|_zero_point|_blocks)|bitsandbytes__\w+)$"
)
GPU_ORDER = "it stores weights in the order of a GPU's tensor cores"
# Codes that attnlaw knows and does not read: by `quant_method`, or by the last word of a tensor.
REASONS: Mapping[str, str] = {
    "exl2": "it stores weights with different numbers of bits, in an order made for GPUs",
    "exl3": "it stores weights with a trellis code, in a rotated basis",
    "quip": "it stores weights as points of a lattice, in a rotated basis",
    "quip_sharp": "it stores weights as points of a lattice, in a rotated basis",
    "vptq": "it stores weights as vectors of several codebooks, and outliers separately",
    "spqr": "it stores outliers in a separate sparse matrix",
    "higgs": "it stores weights in a rotated basis",
    "fp_quant": "it stores weights in a rotated basis",
    "sinq": "it has two kinds of scales, for rows and for columns",
    "eetq": GPU_ORDER,
    "marlin": GPU_ORDER,
}
REASON_WORDS = {"trellis": "exl3", "q_weight": "exl2", "Qidxs": "quip", "centroids": "vptq"}
# Tensors that only say that other tensors of the file have scales.
MARKERS = ("scaled_fp8",)
INTEGERS = ("int", "uint")
UNSCALED = "if the file really has no scale, pass --unscaled"


def refuse_announced(file: CodedFile, readable: str) -> None:
    """Raise an `InputError` for a code that attnlaw knows and does not read, before anything is decoded."""
    values = file.settings
    words = {name.rpartition(".")[2]: name for name in file.shapes}
    by_word = next((kind for word, kind in REASON_WORDS.items() if word in words), "")
    formats = (str(values.get(key)).lower() for key in ("checkpoint_format", "format"))
    is_marlin = values.get("is_marlin_format") or any(name.startswith("marlin") for name in formats)
    kinds = file.method, "marlin" if is_marlin else "", by_word
    if (kind := next((kind for kind in kinds if kind in REASONS), None)) is not None:
        tensor = next(_code_tensors(file.tensors), None)
        place = f" (tensor {tensor})" if tensor else ""
        raise file.error(
            f"quant_method {kind}{place} is not supported: {REASONS[kind]}; attnlaw reads {readable}; use "
            "the original weights"
        )
    if values.get("transform_config"):
        raise file.error(
            f"transform_config in {file.config.source} says that weights are in a rotated basis, which "
            "attnlaw does not read; use the original weights"
        )
    sparse = values.get("sparsity_config")
    if isinstance(sparse, Mapping) and sparse.get("format") not in (None, "dense"):
        raise file.error(
            f"sparsity_config in {file.config.source} says that weights are stored as a sparse matrix "
            f"({sparse.get('format')!r:.40}), which attnlaw does not read; use the original weights"
        )


def refuse_unknown(file: CodedFile, methods: Collection[str], readable: str, has_codes: bool) -> None:
    """Raise an `InputError` for a code among the decoded tensors that is unknown or that lacks a part."""
    method, left = file.method, next(_code_tensors(file.tensors), None)
    if left and method in methods:
        raise file.error(
            f"tensor {left} is a part of a quantised weight, but other parts of this weight are missing, or "
            f"attnlaw does not know its format (it reads {readable}); download the file again, or use the "
            "original weights"
        )
    if left or (file.settings and method not in methods and not has_codes):
        place = f"tensor {left}" if left else f"quantization_config in {file.config.source}"
        raise file.error(
            f"quant_method {method or 'without a name'} ({place}) is not supported; attnlaw reads "
            f"{readable}; use the original weights"
        )


def _code_tensors(tensors: Tensors) -> Iterator[str]:
    return (name for name in tensors.shapes if CODE_WORDS.match(name.rpartition(".")[2]))


def is_for_activations(name: str) -> bool:
    """Return whether a tensor belongs to activations, such as `mlp.input_scale`, and not to a weight."""
    return ACTIVATIONS.search(name.rpartition(".")[2]) is not None


def refuse_unscaled(tensors: Tensors, coded: Collection[str], unscaled: bool) -> None:
    """Raise an `InputError` for a tensor of a weight if no code has used the tensor."""
    for name in tensors.shapes:
        if name in coded or is_for_activations(name) or name.endswith(MARKERS):
            continue
        base, _, word = name.rpartition(".")
        if not word.endswith("bias") and (owner := _owner(tensors, coded, name, base, "scale" in word)):
            raise tensors.error(
                f"tensor {name} belongs to the weight {owner}, but attnlaw does not know what it means; use "
                "the original weights, and report the file in an issue"
            )
    for name, shape in tensors.shapes.items():
        base, _, word = name.rpartition(".")
        dtype = "" if name in coded else tensors.dtype(name)
        if dtype in FLOAT8 and not unscaled and not name.endswith(MARKERS):
            raise tensors.error(
                f"tensor {name} is {dtype} and has no scale, expected {name}_scale, {name}_scale_inv or "
                f"{base}.scale; download the file again, or {UNSCALED}"
            )
        if word == "weight" and len(shape) > 1 and dtype.startswith(INTEGERS):
            raise tensors.error(
                f"tensor {name} holds integers ({dtype}) instead of a weight, but no scales that attnlaw "
                "knows; use the original weights"
            )


def _owner(tensors: Tensors, coded: Collection[str], name: str, base: str, is_scale: bool) -> str | None:
    """Return the weight in whose module a tensor is, if that is coded or the tensor is a scale."""
    ends = [hit.start() for hit in re.finditer(r"[._]", name)][-8:]
    for weight in (f"{base}.weight", *(name[:end] for end in ends)):
        is_matrix = weight != name and len(tensors.shapes.get(weight, ())) > 1
        if weight in coded or (is_scale and is_matrix):
            return weight
    return None
