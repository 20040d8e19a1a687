"""GGUF: the file format decodes the blocks of a tensor. `B.scale`, if there is one, multiplies the weight.

llama.cpp stores such a scale next to weights of type NVFP4, whose blocks have only a narrow range, and next
to those of BitNet. The experts of a stack may have one each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from attnlaw.checkpoints.quantization.packing import Weights
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts

TYPES = re.compile(r"(I|T)?Q[0-9]\w*|MXFP4|NVFP4")  # names of types that numpy does not have
TWO_SCALES = "NVFP4"


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a GGUF file that have a scale. The file format decodes all others."""
    kinds = {name: kind for name in file.shapes if TYPES.fullmatch(kind := file.dtype(name))}
    scales = {name: f"{name.removesuffix('weight')}scale" for name in kinds if name.endswith(".weight")}
    scales = {name: scale for name, scale in scales.items() if scale in file.shapes}
    needed = any(kinds[name] == TWO_SCALES for name in scales)
    for name, kind in kinds.items():
        if name in scales:
            shape, scale = file.shapes[name], scales[name]
            file.require(scale, shape[:1] if len(shape) == 3 and file.shapes[scale] != (1,) else (1,))
            decode = partial(_decode, name, scale)
            yield CodedWeight(name, shape, (name, scale), f"{kind}, with a second scale", decode)
        elif needed and kind == TWO_SCALES:
            raise file.error(
                f"tensor {name} has no scale, but another tensor has one, {min(scales)}; {DAMAGED}"
            )


def _decode(name: str, scale: str, parts: Parts) -> Weights:
    matrix: Weights = parts.read(name)
    matrix *= parts.numbers(scale, shared=parts.tensors.shapes[scale] == (1,)).reshape(())
    return matrix
