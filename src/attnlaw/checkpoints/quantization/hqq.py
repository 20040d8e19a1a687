"""HQQ: `W_q` has the codes, and the tensors next to it say how they are packed.

The weight is first reshaped to a matrix of groups: its rows are the groups if `axis` is 1, its columns if
`axis` is 0. Row r + j R of that matrix is in row r of `W_q`, which has R rows, and j = 0 takes the highest
bits. The zero points are not integers: W = (q - zero) scale, reshaped to `shape`.

| `packing` | codes in a word | bits of a code |
|---|---|---|
| 8bit_u8 | 1 in a byte | 8; also for 5 and 6 bits |
| 4bit_u8 | 2 in a byte | 4 |
| 3bit_32 | 10 in an int32, from bit 27 down | 3; the last rows only fill the words |
| 2bit_u8 | 4 in a byte | 2; also for 1.58 bits |
| 1bit_u8 | 8 in a byte | 1 |
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from attnlaw.checkpoints.quantization.packing import Codes, Weights, by_planes
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts

MOST_SMALL = 64  # entries of a tensor that describes a code
# bits, dtype of a word, lowest bits of the codes, numbers of bits that are packed so
PACKINGS: dict[str, tuple[int, Any, tuple[int, ...], tuple[float, ...]]] = {
    "8bit_u8": (8, np.uint8, (0,), (8, 6, 5)),
    "4bit_u8": (4, np.uint8, (4, 0), (4,)),
    "3bit_32": (3, np.int32, tuple(range(27, -1, -3)), (3,)),
    "2bit_u8": (2, np.uint8, (6, 4, 2, 0), (2, 1.58)),
    "1bit_u8": (1, np.uint8, tuple(range(7, -1, -1)), (1,)),
}
PARTS = (
    *("W_q", "scale", "zero", "shape", "axis", "packing", "nbits", "group_size", "view_as_float"),
    *("unpack_view_dtype", "quant_scale", "quant_zero", "compute_dtype", "offload_meta"),
    *("encoded_state_dict", "stores_quant_config", "channel_wise", "optimize", "round_zero"),
)


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that HQQ coded."""
    for name, base in file.names_with("W_q"):
        if base.endswith("."):
            yield _coded(file, name, base)


def _coded(file: CodedFile, name: str, base: str) -> CodedWeight:
    packing = bytes(_small(file, f"{base}packing", "uint8").ravel()).decode("ascii", "replace")
    if packing not in PACKINGS:
        raise file.error(
            f"tensor {base}packing is {packing!r:.80}, which is not supported (expected "
            f"{', '.join(PACKINGS)}); use the original weights"
        )
    bits, word, shifts, widths = PACKINGS[packing]
    shape = tuple(_small(file, f"{base}shape", "int").ravel().tolist())
    axis, size = (_number(file, base + part) for part in ("axis", "group_size"))
    if len(shape) != 2 or min(shape) < 1 or axis not in (0, 1) or size < 1 or prod(shape) % size:
        raise file.error(
            f"tensor {name} has shape {list(shape)}, axis {axis:g} and groups of {size:g}, expected a matrix "
            f"whose axis 0 or 1 divides into whole groups; {DAMAGED}"
        )
    groups = prod(shape) // int(size)
    codes_shape = (groups, int(size)) if axis else (int(size), groups)
    _require_codes(file, name, codes_shape, packing)
    scale, zero = f"{base}scale", f"{base}zero"
    for part in (scale, zero):
        file.require(part, (groups, 1) if axis else (1, groups))
    stated = _number(file, f"{base}nbits")
    width = next((width for width in widths if abs(width - stated) < 1e-3), None)
    if width is None:
        raise file.error(
            f"tensor {base}nbits is {stated:g}, expected {' or '.join(map(str, widths))} for the packing "
            f"{packing}; {DAMAGED}"
        )

    def decode(parts: Parts) -> Weights:
        words = np.ascontiguousarray(parts.read(name)).view(word)
        by_row = file.shapes[scale] == (codes_shape[0], 1)
        factors, zeros = (parts.rows(part) if by_row else parts.numbers(part) for part in (scale, zero))

        def fill(rows: slice, codes: Codes, out: Weights) -> None:
            at = rows if by_row else slice(None)
            np.subtract(codes, zeros[at], out=out, dtype=np.float32)
            out *= factors[at]

        return by_planes(words, codes_shape, bits, shifts, fill).reshape(shape)

    label = f"HQQ {width}-bit, groups of {size:g} along axis {axis:g}"
    return CodedWeight(f"{base}weight", shape, file.stored(base, *PARTS), label, decode)


def _require_codes(file: CodedFile, name: str, codes: tuple[int, int], packing: str) -> None:
    """Raise an `InputError` if the words, which may have a floating-point type, do not hold the codes."""
    _, word, shifts, _ = PACKINGS[packing]
    rows = -(-codes[0] // len(shifts))
    if codes[0] % len(shifts) and packing != "3bit_32":
        raise file.bad_part(name, f"whole integers for {codes[0]} rows of codes")
    size = np.dtype(word).itemsize
    stored = {"float32": 4, "float16": 2, "bfloat16": 2}.get(file.dtype(name), 0)
    if stored and codes[1] * size % stored == 0:
        file.require(name, (rows, codes[1] * size // stored), file.dtype(name))
    else:
        file.require(name, (rows, codes[1]), np.dtype(word).name)


def _small(file: CodedFile, name: str, *dtypes: str) -> Any:
    if name not in file.shapes:
        raise file.error(f"found no tensor {name}, expected it next to W_q; {DAMAGED}")
    if prod(file.shapes[name]) > MOST_SMALL or not file.dtype(name).startswith(dtypes):
        raise file.bad_part(name, f"a few numbers ({' or '.join(dtypes)})")
    return file.tensors.read(name)


def _number(file: CodedFile, name: str) -> float:
    number = _small(file, name, "int", "uint", "float")
    if number.size != 1 or not np.isfinite(number).all():
        raise file.bad_part(name, "one number")
    return float(number.reshape(()))
