"""quanto: `X._scale`, and one code an entry in `X._data`, or packed codes in `X._data._data` with `X._shift`.

| code | stored | W |
|---|---|---|
| qint8, qfloat8 | `X._data` int8 or float8 (out, in), `X._scale` (out, 1) or one number | s q |
| qint4, qint2 | `X._data._data` uint8 (R, group), `X._scale` and `X._shift` (rows, 1) | s q - shift |

The packed codes are a matrix of groups, and each of its rows has a scale. Row r + j R is in row r of the
bytes, which have R rows, and j = 0 takes the lowest bits. The rows of that matrix are the weight, cut into
groups. The file does not store the shape of the weight, so the sizes in config.json are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod

import numpy as np

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.packing import Codes, Weights, by_planes, by_rows, from_float8
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

SHIFTS = {4: (0, 4), 2: (0, 2, 4, 6)}
ACTIVATIONS = ("input_scale", "output_scale")
ENDINGS = ("._scale", "._shift", "._data", "._data._data")


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that quanto coded."""
    for _, name in names_with(tensors, "._scale"):
        parts = stored_parts(tensors, name, ENDINGS)
        if "._data" in parts:
            weight = _plain(tensors, name)
        elif "._data._data" in parts:
            weight = _packed(tensors, config, name)
        else:
            raise tensors.error(f"found no tensor {name}._data, expected it with {name}._scale; {DAMAGED}")
        yield weight


def _parts(tensors: Tensors, name: str, *endings: str) -> tuple[str, ...]:
    """Return the parts of a weight, with the scales of activations, which are not used."""
    base = name.rpartition(".")[0]
    unused = stored_parts(tensors, f"{base}.", ACTIVATIONS).values()
    return *(name + ending for ending in endings), *unused


def _plain(tensors: Tensors, name: str) -> CodedWeight:
    shape = tensors.shapes[f"{name}._data"]
    if len(shape) != 2 or not tensors.dtype(f"{name}._data").startswith(("int8", "float8")):
        raise bad_part(tensors, f"{name}._data", "a matrix of int8 or float8")
    for ending in ("._shift", "._data._data"):
        if name + ending in tensors.shapes:
            raise bad_part(tensors, name + ending, f"no such tensor next to {name}._data")
    single = prod(tensors.shapes[f"{name}._scale"]) == 1
    scale_shape = tensors.shapes[f"{name}._scale"] if single else (shape[0], 1)
    require_part(tensors, f"{name}._scale", scale_shape)
    kind = "8-bit" if tensors.dtype(f"{name}._data") == "int8" else "float8"
    return CodedWeight(
        name=name,
        shape=shape,
        parts=_parts(tensors, name, "._data", "._scale"),
        label=f"quanto {kind}, {'one scale' if single else 'rows'}",
        decode=partial(_decode_plain, name, (shape[0], shape[1])),
    )


def _decode_plain(name: str, shape: tuple[int, int], parts: Parts) -> Weights:
    stored = parts.read(f"{name}._data")
    scale = np.broadcast_to(parts.numbers(f"{name}._scale").reshape(-1, 1), (shape[0], 1))

    def decode(rows: slice, out: Weights) -> None:
        codes = stored[rows] if stored.dtype == np.int8 else from_float8(stored[rows])
        np.multiply(codes, scale[rows], out=out, dtype=np.float32)

    return by_rows(shape, decode)


def _packed(tensors: Tensors, config: Config, name: str) -> CodedWeight:
    data, scale, shift = (name + ending for ending in ("._data._data", "._scale", "._shift"))
    stored, rows = tensors.shapes[data], (tensors.shapes[scale] or (0,))[0]
    widths = [bits for bits in SHIFTS if len(stored) == 2 and stored[0] == -(-rows * bits // 8)]
    if len(widths) != 1 or not stored[1]:
        raise bad_part(tensors, data, f"2-bit or 4-bit codes for all {rows} rows of {scale}")
    (bits,) = widths
    _require_stated(tensors, config, name, bits)
    require_part(tensors, data, stored, "uint8")
    require_part(tensors, scale, (rows, 1))
    floating = shift in tensors.shapes and is_floating(tensors, shift)
    require_part(tensors, shift, (rows, 1), *([] if floating else ["int8", "uint8"]))
    shape = _weight_shape(tensors, config, name, rows * stored[1])
    if shape[1] % stored[1]:
        raise bad_part(tensors, data, f"groups that divide the {shape[1]} inputs of {name}")
    return CodedWeight(
        name=name,
        shape=shape,
        parts=_parts(tensors, name, "._data._data", "._scale", "._shift"),
        label=f"quanto {bits}-bit, groups of {stored[1]}",
        decode=partial(_decode_packed, name, bits, (rows, stored[1]), shape),
    )


def _require_stated(tensors: Tensors, config: Config, name: str, bits: int) -> None:
    """Raise an `InputError` if quanto_qmap.json names another width than the shapes show."""
    table = config.values.get("quanto_qmap")
    entry = table.get(name.rpartition(".")[0]) if isinstance(table, Mapping) else None
    stated = entry.get("weights") if isinstance(entry, Mapping) else None
    if stated not in (None, f"qint{bits}"):
        raise tensors.error(
            f"tensor {name}._data._data has the shape of {bits}-bit codes, but quanto_qmap.json calls them "
            f"{stated!r:.40}; {DAMAGED}"
        )


def _decode_packed(
    name: str, bits: int, codes: tuple[int, int], shape: tuple[int, int], parts: Parts
) -> Weights:
    scale, shift = parts.rows(f"{name}._scale"), parts.rows(f"{name}._shift")
    integer = np.issubdtype(shift.stored.dtype, np.integer)

    def decode(rows: slice, codes: Codes, out: Weights) -> None:
        out[:] = codes
        if integer:
            out -= shift[rows]
        out *= scale[rows]
        if not integer:
            out -= shift[rows]

    return by_planes(parts.read(f"{name}._data._data"), codes, bits, SHIFTS[bits], decode).reshape(shape)


def _weight_shape(tensors: Tensors, config: Config, name: str, count: int) -> tuple[int, int]:
    """Return (outputs, inputs) of a weight with `count` entries, by the name of its module."""
    module = name.split(".")[-2:][0]
    fitting = {shape for shape in _shapes(config).get(module, ()) if prod(shape) == count}
    if len(fitting) != 1:
        raise tensors.error(
            f"tensor {name} has {count} entries, but the sizes in {config.source} do not determine its "
            "shape; add the config.json of the model, or use the original weights"
        )
    return fitting.pop()


def _shapes(config: Config) -> dict[str, list[tuple[int, int]]]:
    """Return the possible shapes of the weights of a decoder layer, by the names of their modules."""
    hidden = config.size("hidden_size", "n_embd", "d_model") or 0
    heads = config.size("num_attention_heads", "n_head") or 1
    head = config.size("head_dim") or hidden // heads
    queries, keys = heads * head, (config.size("num_key_value_heads") or heads) * head
    inner = [config.size(key) for key in ("intermediate_size", "ffn_dim", "n_inner", "moe_intermediate_size")]
    wide = [size for size in {*inner, 4 * hidden if inner == [None] * 4 else None} if size]
    shapes = {
        "q_proj": [(queries, hidden)],
        "k_proj v_proj": [(keys, hidden)],
        "qkv_proj": [(queries + 2 * keys, hidden)],
        "o_proj out_proj": [(hidden, queries)],
        "gate_proj up_proj fc1 w1 w3": [(size, hidden) for size in wide],
        "gate_up_proj": [(2 * size, hidden) for size in wide],
        "down_proj fc2 w2": [(hidden, size) for size in wide],
        "lm_head": [(config.size("vocab_size") or 0, hidden)],
    }
    return {module: fitting for modules, fitting in shapes.items() for module in modules.split()}
