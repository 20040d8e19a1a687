"""Decode quantised weights. `CODES` lists the codes that attnlaw reads; families never learn of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization import (
    aqlm,
    awq,
    bitnet,
    bitsandbytes,
    compressed_tensors,
    entries,
    float4,
    gguf,
    gptq,
    hqq,
    mlx,
    modelopt,
    quanto,
    quark,
    torchao,
)
from attnlaw.checkpoints.quantization.leftover import (
    is_for_activations,
    refuse_announced,
    refuse_unknown,
    refuse_unscaled,
)
from attnlaw.checkpoints.quantization.record import CodedFile, CodedWeight
from attnlaw.checkpoints.tensors import GatheredTensors, Tensors

Find = Callable[[CodedFile], Iterator[CodedWeight]]
# The codes that attnlaw reads, by the names that messages list.
CODES: Mapping[str, Find] = {
    "GPTQ": gptq.find,
    "AWQ": awq.find,
    "compressed-tensors": compressed_tensors.find,
    "NVFP4 and MXFP4": float4.find,
    "float8 and int8": entries.find,
    "bitsandbytes": bitsandbytes.find,
    "ModelOpt": modelopt.find,
    "MLX": mlx.find,
    "torchao": torchao.find,
    "HQQ": hqq.find,
    "Quark": quark.find,
    "quanto": quanto.find,
    "BitNet": bitnet.find,
    "AQLM": aqlm.find,
    "GGUF": gguf.find,
}
# The values of `quant_method` whose weights are in these codes, or in plain numbers.
METHODS = (
    *("gptq", "awq", "auto-round", "intel/auto-round", "compressed-tensors", "bitsandbytes", "fp8"),
    *("fbgemm_fp8", "mxfp4", "nvfp4", "modelopt", "modelopt_fp4", "torchao", "hqq", "quark", "quanto"),
    *("bitnet", "aqlm"),
)
MOST_REMARKS = 4  # the largest number of remarks on a file that differs from its config


class DecodedTensors(GatheredTensors):
    """The tensors of a checkpoint with the `coded` weights under their plain names."""

    def __init__(self, tensors: Tensors, coded: Iterable[CodedWeight]) -> None:
        self.coded = {weight.name: weight for weight in coded}
        hidden = {part for weight in self.coded.values() for part in weight.parts}
        plain = (name for name in tensors.shapes if name not in hidden and not is_for_activations(name))
        super().__init__(tensors.source, {name: (tensors, name) for name in plain}, tensors.metadata)
        self.shapes |= {name: weight.shape for name, weight in self.coded.items()}
        self.texts, self._tensors = tensors.texts, tensors
        remarks = [*dict.fromkeys(weight.remark for weight in self.coded.values() if weight.remark)]
        more = [f"{len(remarks) - MOST_REMARKS} more such remarks"] if len(remarks) > MOST_REMARKS else []
        self.remarks = (*remarks[:MOST_REMARKS], *more)

    def dtype(self, name: str) -> str:
        return self.coded[name].label if name in self.coded else super().dtype(name)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        weight = self.coded.get(name)
        return super().read(name, member) if weight is None else weight.read(self._tensors, member)

    def prefetch(self, name: str, member: int | None = None) -> None:
        if name not in self.coded:
            super().prefetch(name, member)


def decoded(tensors: Tensors, config: Config, unscaled: bool = False) -> Tensors:
    """Return the tensors with the weights of all known codes under their plain names.

    Raise an `InputError` if a tensor of a code would be left out, or if a weight has no scale. `unscaled`
    says to read float8 weights without a scale as they are stored.
    """
    readable, file = ", ".join(CODES), CodedFile(tensors, config)
    refuse_announced(file, readable)
    candidates = (weight for name, find in CODES.items() for weight in _found_by(name, find, file))
    weights = _require_distinct(tensors, modelopt.with_column_factors(file, candidates))
    result = DecodedTensors(tensors, weights) if weights else tensors
    coded = {weight.name for weight in weights}
    refuse_unknown(CodedFile(result, config), METHODS, readable, bool(coded))
    refuse_unscaled(result, coded, unscaled)
    return result


def _found_by(name: str, find: Find, file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of one code. Parts without the axes that it needs are an error."""
    try:
        yield from find(file)
    except (IndexError, TypeError) as error:
        raise file.error(
            f"the parts of a weight in {name} do not have the shapes or settings of that code; download the "
            "file again, and its config.json"
        ) from error


def _require_distinct(tensors: Tensors, weights: Iterable[CodedWeight]) -> list[CodedWeight]:
    coded: dict[str, CodedWeight] = {}
    owners: dict[str, CodedWeight] = {}
    for weight in weights:
        shared = next((part for part in weight.parts if part in owners), None)
        other = owners[shared] if shared else coded.get(weight.name)
        if other is not None:
            raise tensors.error(
                f"tensor {shared or weight.parts[0]} can be read as {other.label} ({other.name}) and as "
                f"{weight.label} ({weight.name}), expected one code; use the original weights"
            )
        if weight.name in tensors.shapes and weight.name not in weight.parts:
            raise tensors.error(
                f"tensors {weight.name} and {weight.parts[0]} ({weight.label}) both store one weight, "
                "expected one of them; use the original weights"
            )
        coded[weight.name] = weight
        owners |= dict.fromkeys(weight.parts, weight)
    return list(coded.values())
