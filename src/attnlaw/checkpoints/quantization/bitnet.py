"""BitNet: weights -1, 0 and 1, four in a byte, with one scale for the matrix.

Row r + j R of the weight is in bits 2j and 2j + 1 of row r of the bytes, which have R rows, as t + 1. The
class of the layer decides what the scale means, and the file does not show it: `bitlinear` divides by it, and
`autobitlinear` multiplies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from attnlaw.checkpoints.quantization.packing import Codes, Weights, by_planes
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts
from attnlaw.core.errors import InputError

DIVIDES = {"bitlinear": True, "autobitlinear": False}


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights that BitNet coded, which only the config.json shows."""
    if file.method != "bitnet":
        return
    kind = file.settings.get("linear_class", "bitlinear")
    if not isinstance(kind, str) or kind not in DIVIDES:
        raise InputError(
            f"{file.config.source}: linear_class is {kind!r:.80}, expected {' or '.join(DIVIDES)}; restore "
            "the config of the model"
        )
    meaning = f"{'divided' if DIVIDES[kind] else 'multiplied'} by the scale ({kind})"
    for name, _ in file.names_with(".weight"):
        if file.dtype(name) == "uint8":
            if len(file.shapes[name]) != 2:
                raise file.bad_part(name, "a matrix of codes")
            file.require(f"{name}_scale", (1,))
            shape = 4 * file.shapes[name][0], file.shapes[name][1]
            decode = partial(_decode, name, shape, DIVIDES[kind])
            yield CodedWeight(name, shape, (name, f"{name}_scale"), f"BitNet 2-bit, {meaning}", decode)


def _decode(name: str, shape: tuple[int, int], divides: bool, parts: Parts) -> Weights:
    scale = parts.numbers(f"{name}_scale")[0]
    if divides and scale == 0:
        raise parts.tensors.error(f"tensor {name}_scale is 0, but weights are divided by it; {DAMAGED}")

    def decode(rows: slice, codes: Codes, out: Weights) -> None:
        if (codes == 3).any():
            raise parts.tensors.error(f"tensor {name} has the code 3, expected 0, 1 and 2; {DAMAGED}")
        np.subtract(codes, np.float32(1), out=out)
        np.divide(out, scale, out=out) if divides else np.multiply(out, scale, out=out)

    return by_planes(parts.read(name), shape, 2, (0, 2, 4, 6), decode)
