"""AQLM: a tile of p outputs and g inputs is a sum of K vectors, one from each codebook, times a scale.

| tensor | dtype | shape |
|---|---|---|
| `codes` | signed integers, to be taken mod 2^b | (out / p, in / g, K) |
| `codebooks` | float | (K, 2^b, p, g) |
| `scales` | float | (out / p, 1, 1, 1) |
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnlaw.checkpoints.quantization.packing import Weights, by_rows
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts

MOST_BITS = 16
STATED = ("num_codebooks", "nbits_per_codebook", "out_group_size", "in_group_size")


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that AQLM coded."""
    for name, base in file.names_with("codes"):
        if base.endswith(".") and file.stored(base, "codebooks", "scales"):
            yield _coded(file, name, base)


def _coded(file: CodedFile, name: str, base: str) -> CodedWeight:
    shape, books = file.shapes[name], file.shape(f"{base}codebooks")
    if len(shape) != 3 or 0 in shape or not file.dtype(name).startswith("int"):
        raise file.bad_part(name, "integers of shape [outputs / p, inputs / g, codebooks]")
    tiles, groups, count = shape
    size, height, width = books[1:] if len(books) == 4 else (0, 0, 0)
    bits = int(size).bit_length() - 1
    file.require(f"{base}codebooks", (count, max(2**bits, 2) if size else 0, height, width))
    if not 1 <= bits <= MOST_BITS or not height or not width:
        raise file.bad_part(f"{base}codebooks", f"[{count}, 2^bits, p, g] for 1 to {MOST_BITS} bits")
    file.require(f"{base}scales", (tiles, 1, 1, 1))
    for key, seen in zip(STATED, (count, bits, height, width), strict=True):
        if (stated := file.whole_number(key)) not in (None, seen):
            raise file.error(
                f"tensor {base}codebooks has shape {list(books)}, so {key} is {seen}, but "
                f"{file.config.source} states {stated}; restore the config of the model"
            )

    def decode(parts: Parts) -> Weights:
        codes = parts.read(name)
        if codes.min() < -(2 ** (bits - 1)) or codes.max() >= 2 ** (bits - 1):
            raise file.error(
                f"tensor {name} has codes from {codes.min()} to {codes.max()}, expected signed integers of "
                f"{bits} bits; {DAMAGED}"
            )
        vectors, scales = parts.numbers(f"{base}codebooks"), parts.numbers(f"{base}scales")

        def fill(rows: slice, out: Weights) -> None:
            at = slice(rows.start // height, rows.stop // height)
            indices = codes[at].astype(np.int64) & (2**bits - 1)
            total = vectors[0][indices[..., 0]]
            for number in range(1, count):
                total += vectors[number][indices[..., number]]
            total *= scales[at]
            out[:] = total.swapaxes(1, 2).reshape(out.shape)

        return by_rows((tiles * height, groups * width), fill, multiple=height)

    bits_per_weight = count * bits / (height * width)
    return CodedWeight(
        name=f"{base}weight",
        shape=(tiles * height, groups * width),
        parts=(name, f"{base}codebooks", f"{base}scales"),
        label=f"AQLM {bits_per_weight:.3g}-bit, {count} x {2**bits} vectors of {height * width}",
        decode=decode,
    )
