"""Decode quantised weights. `CODES` lists the codes that attnlaw reads.

Families see the plain name, the shape and the numbers of a weight. They never learn that it was coded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization import awq, bitsandbytes, compressed_tensors, float4, gptq, mlx
from attnlaw.checkpoints.quantization.record import Code, CodedWeight
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError

CODES: tuple[Code, ...] = (gptq, awq, compressed_tensors, float4, bitsandbytes, mlx)


class DecodedTensors(Tensors):
    """The tensors of a checkpoint with the coded weights under their plain names.

    Attributes:
        coded: the coded weights by name.
    """

    def __init__(self, tensors: Tensors, coded: Iterable[CodedWeight]) -> None:
        self.source, self.metadata = tensors.source, tensors.metadata
        self.coded = {weight.name: weight for weight in coded}
        hidden = {part for weight in self.coded.values() for part in weight.parts}
        self.shapes = {name: shape for name, shape in tensors.shapes.items() if name not in hidden}
        self.shapes |= {name: weight.shape for name, weight in self.coded.items()}
        self._tensors = tensors

    def dtype(self, name: str) -> str:
        return self.coded[name].label if name in self.coded else self._tensors.dtype(name)

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        if name in self.coded:
            return self.coded[name].read(self._tensors, member)
        return self._tensors.read(name, member)

    def prefetch(self, name: str, member: int | None = None) -> None:
        if name not in self.coded:
            self._tensors.prefetch(name, member)


def decoded(tensors: Tensors, config: Config) -> Tensors:
    """Return the tensors with the weights of all known codes under their plain names."""
    coded: dict[str, CodedWeight] = {}
    owners: dict[str, str] = {}
    for weight in (weight for code in CODES for weight in code.find(tensors, config)):
        for part in weight.parts:
            if part in owners:
                raise InputError(
                    f"{tensors.source}: tensor {part} belongs to {owners[part]} and to {weight.name} "
                    f"({weight.label}), expected one weight; use the original weights"
                )
            owners[part] = weight.name
        stored_plain = weight.name in tensors.shapes and weight.name not in weight.parts
        if weight.name in coded or stored_plain:
            other = coded[weight.name].label if weight.name in coded else f"tensor {weight.name}"
            raise InputError(
                f"{tensors.source}: {other} and {weight.label} ({weight.parts[0]}) both store {weight.name}, "
                "expected one of them; use the original weights"
            )
        coded[weight.name] = weight
    return DecodedTensors(tensors, coded.values()) if coded else tensors
