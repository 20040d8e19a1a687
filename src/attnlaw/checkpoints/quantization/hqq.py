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
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.packing import Codes, Weights, by_planes
from attnlaw.checkpoints.quantization.record import (
    DAMAGED,
    CodedWeight,
    Parts,
    bad_part,
    is_floating,
    names_with,
    require_part,
    stored_parts,
)
from attnlaw.checkpoints.tensors import Tensors

MOST_SMALL = 64  # entries of a tensor that describes a code
# bits, dtype of a word, lowest bits of the codes, numbers of bits that are packed so
PACKINGS: dict[str, tuple[int, Any, tuple[int, ...], tuple[float, ...]]] = {
    "8bit_u8": (8, np.uint8, (0,), (8, 6, 5)),
    "4bit_u8": (4, np.uint8, (4, 0), (4,)),
    "3bit_32": (3, np.int32, tuple(range(27, -1, -3)), (3,)),
    "2bit_u8": (2, np.uint8, (6, 4, 2, 0), (2, 1.58)),
    "1bit_u8": (1, np.uint8, tuple(range(7, -1, -1)), (1,)),
}
NUMBERS = ("scale", "zero")
DESCRIPTIONS = (
    *("shape", "axis", "packing", "nbits", "group_size", "view_as_float", "unpack_view_dtype"),
    *("quant_scale", "quant_zero", "compute_dtype", "offload_meta", "encoded_state_dict"),
    *("stores_quant_config", "channel_wise", "optimize", "round_zero"),
)


@dataclass(frozen=True)
class HqqLayout:
    """The storage of one matrix. `codes` is the shape of the matrix of groups."""

    base: str
    packing: str
    shape: tuple[int, int]
    codes: tuple[int, int]


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that HQQ coded."""
    for _, base in names_with(tensors, ".W_q"):
        yield _coded(tensors, f"{base}.")


def _coded(tensors: Tensors, base: str) -> CodedWeight:
    packing = bytes(_small(tensors, f"{base}packing", "uint8").ravel()).decode("ascii", "replace")
    if packing not in PACKINGS:
        raise tensors.error(
            f"tensor {base}packing is {packing!r:.80}, which is not supported (expected "
            f"{', '.join(PACKINGS)}); use the original weights"
        )
    widths = PACKINGS[packing][3]
    shape = tuple(_small(tensors, f"{base}shape", "int").ravel().tolist())
    axis, size = (_number(tensors, base + part) for part in ("axis", "group_size"))
    if len(shape) != 2 or min(shape) < 1 or axis not in (0, 1) or size < 1 or prod(shape) % size:
        raise tensors.error(
            f"tensor {base}W_q has shape {list(shape)}, axis {axis:g} and groups of {size:g}, expected a "
            f"matrix whose axis 0 or 1 divides into whole groups; {DAMAGED}"
        )
    groups = prod(shape) // int(size)
    codes = (groups, int(size)) if axis else (int(size), groups)
    _require_codes(tensors, f"{base}W_q", codes, packing)
    for part in NUMBERS:
        require_part(tensors, base + part, (groups, 1) if axis else (1, groups))
    stated = _number(tensors, f"{base}nbits")
    width = next((width for width in widths if abs(width - stated) < 1e-3), None)
    if width is None:
        raise tensors.error(
            f"tensor {base}nbits is {stated:g}, expected {' or '.join(map(str, widths))} for the packing "
            f"{packing}; {DAMAGED}"
        )
    layout = HqqLayout(base, packing, (shape[0], shape[1]), codes)
    return CodedWeight(
        name=f"{base}weight",
        shape=shape,
        parts=tuple(stored_parts(tensors, base, ("W_q", *NUMBERS, *DESCRIPTIONS)).values()),
        label=f"HQQ {width}-bit, groups of {size:g} along axis {axis:g}",
        decode=partial(_decode, layout),
    )


def _require_codes(tensors: Tensors, name: str, codes: tuple[int, int], packing: str) -> None:
    """Raise an `InputError` if the words, which may have a floating-point type, do not hold the codes."""
    _, word, shifts, _ = PACKINGS[packing]
    rows = -(-codes[0] // len(shifts))
    if codes[0] % len(shifts) and packing != "3bit_32":
        raise bad_part(tensors, name, f"whole integers for {codes[0]} rows of codes")
    size = np.dtype(word).itemsize
    stored = {"float32": 4, "float16": 2, "bfloat16": 2}.get(tensors.dtype(name), 0)
    if stored and is_floating(tensors, name) and codes[1] * size % stored == 0:
        require_part(tensors, name, (rows, codes[1] * size // stored), tensors.dtype(name))
    else:
        require_part(tensors, name, (rows, codes[1]), np.dtype(word).name)


def _small(tensors: Tensors, name: str, *dtypes: str) -> Any:
    """Return a small tensor that describes a code."""
    if name not in tensors.shapes:
        raise tensors.error(f"found no tensor {name}, expected it next to W_q; {DAMAGED}")
    if prod(tensors.shapes[name]) > MOST_SMALL or not tensors.dtype(name).startswith(dtypes):
        raise bad_part(tensors, name, f"a few numbers ({' or '.join(dtypes)})")
    return tensors.read(name)


def _number(tensors: Tensors, name: str) -> float:
    number = _small(tensors, name, "int", "uint", "float")
    if number.size != 1 or not np.isfinite(number).all():
        raise bad_part(tensors, name, "one number")
    return float(number.reshape(()))


def _decode(layout: HqqLayout, parts: Parts) -> Weights:
    bits, word, shifts, _ = PACKINGS[layout.packing]
    words = np.ascontiguousarray(parts.read(f"{layout.base}W_q")).view(word)
    names = [layout.base + part for part in NUMBERS]
    by_row = parts.tensors.shapes[names[0]] == (layout.codes[0], 1)
    scale, zero = (parts.rows(name) if by_row else parts.numbers(name) for name in names)

    def decode(rows: slice, codes: Codes, out: Weights) -> None:
        at = rows if by_row else slice(None)
        np.subtract(codes, zero[at], out=out, dtype=np.float32)
        out *= scale[at]

    return by_planes(words, layout.codes, bits, shifts, decode).reshape(layout.shape)
