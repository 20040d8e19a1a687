"""float8 weights with separate scales: a weight `X` is worth `X * X_scale` (or `X * X_scale_inv`).

| shape of the scale, for a weight (out, in) | written by |
|---|---|
| one number | per-tensor quantisation |
| (out,) or (out, 1) | per-channel quantisation (compressed-tensors, FBGEMM) |
| (ceil(out / b), ceil(in / b)) | blocks, b = 128 unless `weight_block_size` differs (DeepSeek-V3) |

DeepSeek's `weight_scale_inv` is the inverse of the factor used for encoding, so readers multiply by it as by
the others. Scales of other names or kinds (exponents stored as integers, a second scale for the whole tensor)
are not supported and raise an error, because the weights without them are other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.tensors import Tensors, require_real
from attnlaw.core.errors import InputError

SUFFIXES = ("_scale_inv", "_scale")
BLOCK = 128
MOST_PARTS = 16  # dots and underscores that are tried as the end of the weight's name


def with_scales(tensors: Tensors, config: Config) -> Tensors:
    """Return the tensors with every float8 weight multiplied by its scale, if it has one."""
    if not any("scale" in name for name in tensors.shapes):
        return tensors
    weights = {name for name in tensors.shapes if tensors.dtype(name).startswith("float8")}
    pairs = ((name, name + suffix) for name in weights for suffix in SUFFIXES)
    scales = {name: scale for name, scale in pairs if scale in tensors.shapes}
    _refuse_others(tensors, weights, scales)
    return ScaledTensors(tensors, scales, _blocks(config)) if scales else tensors


def _refuse_others(tensors: Tensors, weights: set[str], scales: Mapping[str, str]) -> None:
    """Raise an `InputError` if a float8 weight has a scale that would not be used."""
    used = set(scales.values())
    for name in tensors.shapes:
        if "scale" not in name or name in used:
            continue
        ends = [hit.start() for hit in re.finditer(r"[._]", name[: name.rindex("scale")])]
        for weight in (name[:end] for end in ends[-MOST_PARTS:]):
            if weight in weights:
                raise InputError(
                    f"{tensors.source}: {name} stands beside the float8 weight {weight}, expected one of "
                    f"{', '.join(SUFFIXES)} alone; dequantise the checkpoint, or use the original weights"
                )


class ScaledTensors(Tensors):
    """Tensors whose float8 weights are multiplied by their scales, in float64, when they are read."""

    def __init__(self, tensors: Tensors, scales: dict[str, str], blocks: tuple[int, int]) -> None:
        hidden = set(scales.values())
        self.source, self.metadata = tensors.source, tensors.metadata
        self.shapes = {name: shape for name, shape in tensors.shapes.items() if name not in hidden}
        self._tensors, self._scales, self._blocks = tensors, scales, blocks

    def dtype(self, name: str) -> str:
        stored = self._tensors.dtype(name)
        return f"{stored} with scales" if name in self._scales else stored

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        stored = self._tensors.read(name, member)
        if name not in self._scales:
            return stored
        scale_name = self._scales[name]
        whole = len(self._tensors.shapes[scale_name]) < 3  # one scale for all members of a stack
        scale = self._tensors.read(scale_name, None if whole else member)
        real = require_real(scale, self.source, scale_name).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # readers check that weights are finite
            return stored.astype(np.float64) * self._spread(real, stored.shape, scale_name)

    def prefetch(self, name: str, member: int | None = None) -> None:
        self._tensors.prefetch(name, member)

    def _spread(self, scale: NDArray[np.float64], shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
        """Return the scale of every entry, as an array that broadcasts to the weight."""
        if scale.size == 1:
            return scale.reshape(())
        if scale.shape in ((shape[0],), (shape[0], 1)):
            return scale.reshape(-1, 1)
        sides = list(zip(shape, self._blocks, strict=True))
        if scale.shape == tuple(-(-size // block) for size, block in sides):
            rows, columns = (np.arange(size) // min(block, size) for size, block in sides)
            spread: NDArray[np.float64] = scale[np.ix_(rows, columns)]
            return spread
        raise InputError(
            f"{self.source}: scale {name} has shape {list(scale.shape)} for a weight of shape {list(shape)}, "
            f"expected one number, one for each row, or blocks of {self._blocks[0]} x {self._blocks[1]}; "
            "dequantise the checkpoint, or use the original weights"
        )


def _blocks(config: Config) -> tuple[int, int]:
    """Return the numbers of rows and columns of a block: `weight_block_size` in the config, or 128 x 128."""
    declared = config.values.get("quantization_config")
    size = declared.get("weight_block_size") if isinstance(declared, dict) else None
    if isinstance(size, list) and len(size) == 2 and all(isinstance(part, int) and part > 0 for part in size):
        return size[0], size[1]
    return BLOCK, BLOCK
