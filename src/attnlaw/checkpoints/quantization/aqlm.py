"""AQLM: a tile of p outputs and g inputs is a sum of K vectors, one from each codebook, times a scale.

| tensor | dtype | shape |
|---|---|---|
| `codes` | signed integers, to be taken mod 2^b | (out / p, in / g, K) |
| `codebooks` | float | (K, 2^b, p, g) |
| `scales` | float | (out / p, 1, 1, 1) |
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.packing import Weights, by_rows
from attnlaw.checkpoints.quantization.record import (
    DAMAGED,
    CodedWeight,
    Parts,
    bad_part,
    names_with,
    require_part,
    whole_number,
)
from attnlaw.checkpoints.tensors import Tensors

MOST_BITS = 16
STATED = ("num_codebooks", "nbits_per_codebook", "out_group_size", "in_group_size")


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that AQLM coded."""
    for name, base in names_with(tensors, ".codes"):
        if f"{base}.codebooks" in tensors.shapes or f"{base}.scales" in tensors.shapes:
            yield _coded(tensors, config, name, f"{base}.")


def _coded(tensors: Tensors, config: Config, name: str, base: str) -> CodedWeight:
    shape, books = tensors.shapes[name], tensors.shapes.get(f"{base}codebooks", ())
    if len(shape) != 3 or 0 in shape or not tensors.dtype(name).startswith("int"):
        raise bad_part(tensors, name, "integers of shape [outputs / p, inputs / g, codebooks]")
    tiles, groups, count = shape
    size, height, width = books[1:] if len(books) == 4 else (0, 0, 0)
    bits = int(size).bit_length() - 1
    require_part(tensors, f"{base}codebooks", (count, max(2**bits, 2) if size else 0, height, width))
    if not 1 <= bits <= MOST_BITS or not height or not width:
        raise bad_part(tensors, f"{base}codebooks", f"[{count}, 2^bits, p, g] for 1 to {MOST_BITS} bits")
    require_part(tensors, f"{base}scales", (tiles, 1, 1, 1))
    for key, seen in zip(STATED, (count, bits, height, width), strict=True):
        if (stated := whole_number(config, key)) not in (None, seen):
            raise tensors.error(
                f"tensor {base}codebooks has shape {list(books)}, so {key} is {seen}, but {config.source} "
                f"states {stated}; restore the config of the model"
            )
    bits_per_weight = count * bits / (height * width)
    return CodedWeight(
        name=f"{base}weight",
        shape=(tiles * height, groups * width),
        parts=tuple(base + part for part in ("codes", "codebooks", "scales")),
        label=f"AQLM {bits_per_weight:.3g}-bit, {count} x {2**bits} vectors of {height * width}",
        decode=partial(_decode, base, (tiles, groups), (height, width), bits),
    )


def _decode(base: str, tiles: tuple[int, int], tile: tuple[int, int], bits: int, parts: Parts) -> Weights:
    codes = parts.read(f"{base}codes")
    if codes.min() < -(2 ** (bits - 1)) or codes.max() >= 2 ** (bits - 1):
        raise parts.tensors.error(
            f"tensor {base}codes has codes from {codes.min()} to {codes.max()}, expected signed integers of "
            f"{bits} bits; {DAMAGED}"
        )
    books, scales = parts.numbers(f"{base}codebooks"), parts.numbers(f"{base}scales")
    height, width = tile

    def decode(rows: slice, out: Weights) -> None:
        at = slice(rows.start // height, rows.stop // height)
        indices = codes[at].astype(np.int64) & (2**bits - 1)
        vectors = books[0][indices[..., 0]]
        for number in range(1, len(books)):
            vectors += books[number][indices[..., number]]
        vectors *= scales[at]
        out[:] = vectors.swapaxes(1, 2).reshape(out.shape)

    return by_rows((tiles[0] * height, tiles[1] * width), decode, multiple=height)
