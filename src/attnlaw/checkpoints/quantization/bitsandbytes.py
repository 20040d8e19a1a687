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

from attnlaw.checkpoints.quantization.packing import Weights, by_rows
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts

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


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are stored by bitsandbytes."""
    for name in file.shapes:
        if STATE in name:
            yield _coded_4_bit(file, name)
    for scales, base in file.names_with("SCB"):
        if base.endswith("."):
            yield _coded_int8(file, scales, base)


def _coded_4_bit(file: CodedFile, state_name: str) -> CodedWeight:
    name, _, kind = state_name.partition(STATE)
    state = _read_state(file, state_name, kind)
    if name not in file.shapes:
        raise file.error(f"found no tensor {name} next to {state_name}; {DAMAGED}")
    dtype, expected = file.dtype(name), -(-prod(state.shape) // 2)
    item_size = next((size for bits, size in BYTES.items() if bits in dtype), 1)  # any dtype may hold codes
    if prod(file.shapes[name]) * item_size != expected:
        raise file.bad_part(name, f"{expected} bytes for a weight of {list(state.shape)}")
    file.require(f"{name}.quant_map", (16,))
    parts = [name, state_name, f"{name}.quant_map", f"{name}.absmax"]
    twice = ""
    if state.nested_size is None:
        file.require(f"{name}.absmax", (state.blocks,))
    else:
        file.require(f"{name}.absmax", (state.blocks,), "uint8")
        file.require(f"{name}.nested_quant_map", (256,))
        file.require(f"{name}.nested_absmax", (-(-state.blocks // state.nested_size),))
        parts += [f"{name}.nested_quant_map", f"{name}.nested_absmax"]
        twice = ", double quantisation"
    label = f"bitsandbytes {state.kind.upper()}, blocks of {state.size}{twice}"
    return CodedWeight(name, state.shape, tuple(parts), label, partial(_decode_4_bit, name, state))


def _read_state(file: CodedFile, name: str, kind: str) -> QuantState:
    shape = file.shapes[name]
    if kind not in ("nf4", "fp4"):
        raise file.error(
            f"tensor {name} names the type {kind!r:.40}, expected nf4 or fp4; use the original weights"
        )
    if len(shape) != 1 or shape[0] > MOST_STATE or file.dtype(name) != "uint8":
        raise file.bad_part(name, f"at most {MOST_STATE} bytes of JSON")
    try:
        values: Any = json.loads(file.tensors.read(name).tobytes())
    except (ValueError, RecursionError) as error:
        raise file.error(f"tensor {name} is not JSON; {DAMAGED}") from error
    values = values if isinstance(values, dict) else {}
    sizes, size, nested = values.get("shape"), values.get("blocksize"), values.get("nested_blocksize")
    offset = values.get("nested_offset", 0.0)
    problem = ""
    if not isinstance(sizes, list) or len(sizes) != 2 or not all(_is_size(part, 2**48) for part in sizes):
        problem = f"the shape {sizes!r:.80}, expected two whole numbers, the sizes of a matrix"
    elif not _is_size(size, MOST_BLOCK) or size % 2:
        problem = f"the blocksize {size!r:.80}, expected an even number from 2 to {MOST_BLOCK}"
    elif nested is not None and not _is_size(nested, MOST_NESTED):
        problem = f"the nested_blocksize {nested!r:.80}, expected 1 or more"
    elif type(offset) not in (int, float) or not abs(offset) <= MOST_OFFSET:
        problem = f"the nested_offset {offset!r:.80}, expected a number"
    elif values.get("quant_type", kind) != kind:
        problem = f"the type {values['quant_type']!r:.40}, expected {kind}"
    if problem:
        raise file.error(f"tensor {name} states {problem}; {DAMAGED}")
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


def _coded_int8(file: CodedFile, scales: str, base: str) -> CodedWeight:
    name, order = f"{base}weight", f"{base}weight_format"
    if name not in file.shapes:
        raise file.error(f"found no tensor {name} next to {scales}; {DAMAGED}")
    shape = file.shapes[name]
    if len(shape) != 2 or file.dtype(name) != "int8":
        raise file.bad_part(name, f"an int8 matrix, because it belongs to {scales}")
    file.require(scales, shape[:1])
    if order in file.shapes:
        file.require(order, (), "uint8", "int")
        if number := int(file.tensors.read(order)):
            raise file.error(
                f"tensor {order} is {number} (weights in the order of a GPU's tensor cores), expected 0; "
                "save the model again with a newer bitsandbytes, or use the original weights"
            )

    def decode(parts: Parts) -> Weights:
        codes, largest = parts.read(name), parts.numbers(scales)

        def fill(rows: slice, out: Weights) -> None:
            out[:] = codes[rows]
            out *= largest[rows, None]
            out *= np.float32(1 / 127)

        return by_rows((shape[0], shape[1]), fill)

    parts = file.stored(base, "weight", "SCB", "weight_format")
    return CodedWeight(name, shape, parts, "bitsandbytes int8, rows", decode)
