"""bitsandbytes: 4-bit codes in blocks of the flattened weight, and int8 rows.

| tensor of 4-bit weights | dtype | shape |
|---|---|---|
| `X` | any: the bytes count | two codes in a byte, the high nibble first |
| `X.quant_map` | float | (16), the values of the codes |
| `X.absmax` | float; uint8 if quantised again | (blocks) |
| `X.nested_quant_map`, `X.nested_absmax` | float | (256), (blocks / nested block size) |
| `X.quant_state.bitsandbytes__nf4` or `__fp4` | uint8 | JSON with the shape and the sizes of blocks |

W = quant_map[code] a[position // block size], where a is `absmax`, or nested_quant_map[absmax] nested_absmax
+ nested_offset. Blocks run on over the ends of rows.

int8: W = (q SCB[o]) / 127, where `B.SCB` has the largest entry of each row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

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
)
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError

STATE = ".quant_state.bitsandbytes__"
MOST_OFFSET = 1e30  # also rejects NaN
MOST_STATE, MOST_BLOCK, MOST_NESTED = 4096, 4096, 2**20  # bytes, weights and blocks; larger ones do not exist
BYTES = {"64": 8, "32": 4, "16": 2, "8": 1}


@dataclass(frozen=True)
class QuantState:
    """The `quant_state` of a weight. `nested_size` is None if the scales are stored as floats."""

    kind: str
    shape: tuple[int, int]
    size: int
    nested_size: int | None
    offset: float

    @property
    def blocks(self) -> int:
        return -(-prod(self.shape) // self.size)


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are stored by bitsandbytes."""
    for name in tensors.shapes:
        if STATE in name:
            yield _coded_4_bit(tensors, name)
    for scales, base in names_with(tensors, "SCB"):
        if base.endswith("."):
            yield _coded_int8(tensors, scales, base)


def _coded_4_bit(tensors: Tensors, state_name: str) -> CodedWeight:
    name, _, kind = state_name.partition(STATE)
    state = _read_state(tensors, state_name, kind)
    if name not in tensors.shapes:
        raise tensors.error(f"found no tensor {name} next to {state_name}; {DAMAGED}")
    stored = prod(tensors.shapes[name]) * _item_size(tensors, name)
    if stored != -(-prod(state.shape) // 2):
        raise bad_part(
            tensors, name, f"{-(-prod(state.shape) // 2)} bytes for a weight of {list(state.shape)}"
        )
    require_part(tensors, f"{name}.quant_map", (16,))
    parts = [name, state_name, f"{name}.quant_map", f"{name}.absmax"]
    if state.nested_size is None:
        require_part(tensors, f"{name}.absmax", (state.blocks,))
    else:
        require_part(tensors, f"{name}.absmax", (state.blocks,), "uint8")
        require_part(tensors, f"{name}.nested_quant_map", (256,))
        require_part(tensors, f"{name}.nested_absmax", (-(-state.blocks // state.nested_size),))
        parts += [f"{name}.nested_quant_map", f"{name}.nested_absmax"]
    twice = "" if state.nested_size is None else ", double quantisation"
    label = f"bitsandbytes {state.kind.upper()}, blocks of {state.size}{twice}"
    return CodedWeight(name, state.shape, tuple(parts), label, partial(_decode_4_bit, name, state))


def _item_size(tensors: Tensors, name: str) -> int:
    """Return the number of bytes of an entry. Codes may be stored as any dtype."""
    dtype = tensors.dtype(name)
    return next((size for bits, size in BYTES.items() if bits in dtype), 1)


def _read_state(tensors: Tensors, name: str, kind: str) -> QuantState:
    what = f"{tensors.source}: tensor {name}"
    shape = tensors.shapes[name]
    if kind not in ("nf4", "fp4"):
        raise InputError(f"{what} names the type {kind!r:.40}, expected nf4 or fp4; use the original weights")
    if len(shape) != 1 or shape[0] > MOST_STATE or tensors.dtype(name) != "uint8":
        raise bad_part(tensors, name, f"at most {MOST_STATE} bytes of JSON")
    try:
        values = json.loads(tensors.read(name).tobytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON; {DAMAGED}") from error
    return _checked_state(values if isinstance(values, dict) else {}, kind, what)


def _checked_state(values: dict[str, Any], kind: str, what: str) -> QuantState:
    sizes, size, nested = values.get("shape"), values.get("blocksize"), values.get("nested_blocksize")
    offset = values.get("nested_offset", 0.0)
    if not isinstance(sizes, list) or len(sizes) != 2 or not all(_is_size(part, 2**48) for part in sizes):
        raise InputError(
            f"{what} states the shape {sizes!r:.80}, expected two whole numbers, the sizes "
            f"of a matrix; {DAMAGED}"
        )
    if size is None or not _is_size(size, MOST_BLOCK) or size % 2:
        raise InputError(
            f"{what} states the blocksize {size!r:.80}, expected an even number from 2 to "
            f"{MOST_BLOCK}; {DAMAGED}"
        )
    if nested is not None and not _is_size(nested, MOST_NESTED):
        raise InputError(f"{what} states the nested_blocksize {nested!r:.80}, expected 1 or more; {DAMAGED}")
    if type(offset) not in (int, float) or not abs(offset) <= MOST_OFFSET:
        raise InputError(f"{what} states the nested_offset {offset!r:.80}, expected a number; {DAMAGED}")
    if values.get("quant_type", kind) != kind:
        raise InputError(f"{what} states the type {values['quant_type']!r:.40}, expected {kind}; {DAMAGED}")
    return QuantState(kind, (sizes[0], sizes[1]), size, nested, float(offset))


def _is_size(value: Any, most: int) -> bool:
    return type(value) is int and 0 < value <= most


def _decode_4_bit(name: str, state: QuantState, parts: Parts) -> Weights:
    values = parts.numbers(f"{name}.quant_map")
    # The two values in each of the 256 bytes, high nibble first, as eight bytes that are copied at once.
    pairs = np.stack([np.repeat(values, 16), np.tile(values, 16)], axis=1).view(np.uint64)[:, 0]
    codes = np.ascontiguousarray(parts.read(name)).reshape(-1).view(np.uint8)
    if state.nested_size is None:
        largest = parts.numbers(f"{name}.absmax")
    else:
        nested = parts.numbers(f"{name}.nested_absmax")[np.arange(state.blocks) // state.nested_size]
        largest = parts.numbers(f"{name}.nested_quant_map")[parts.read(f"{name}.absmax")] * nested
        largest += np.float32(state.offset)
    half, count = state.size // 2, prod(state.shape)

    def decode(blocks: slice, out: Weights) -> None:
        stored = codes[blocks.start * half : blocks.stop * half]
        flat = out.reshape(-1)
        np.take(pairs, stored, out=flat[: 2 * len(stored)].view(np.uint64), mode="clip")
        flat[2 * len(stored) :] = 0  # beyond the end of the weight, if its last block is cut
        out *= largest[blocks, None]

    blocks = by_rows((state.blocks, state.size), decode)
    return blocks.reshape(-1)[:count].reshape(state.shape)


def _coded_int8(tensors: Tensors, scales: str, base: str) -> CodedWeight:
    name, order = f"{base}weight", f"{base}weight_format"
    if name not in tensors.shapes:
        raise tensors.error(f"found no tensor {name} next to {scales}; {DAMAGED}")
    shape = tensors.shapes[name]
    if len(shape) != 2 or tensors.dtype(name) != "int8":
        raise bad_part(tensors, name, f"an int8 matrix, because it belongs to {scales}")
    require_part(tensors, scales, (shape[0],))
    parts = [name, scales]
    if order in tensors.shapes:
        require_part(tensors, order, (), "uint8", "int")
        if number := int(tensors.read(order)):
            raise tensors.error(
                f"tensor {order} is {number} (weights in the order of a GPU's tensor cores), expected 0; "
                "save the model again with a newer bitsandbytes, or use the original weights"
            )
        parts.append(order)
    decode = partial(_decode_int8, name, scales)
    return CodedWeight(name, (shape[0], shape[1]), tuple(parts), "bitsandbytes int8, rows", decode)


def _decode_int8(name: str, scales: str, parts: Parts) -> Weights:
    codes, largest = parts.read(name), parts.numbers(scales)

    def decode(rows: slice, out: Weights) -> None:
        out[:] = codes[rows]
        out *= largest[rows, None]
        out *= np.float32(1 / 127)

    return by_rows((codes.shape[0], codes.shape[1]), decode)
