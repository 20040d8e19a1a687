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
from math import prod

import numpy as np

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.packing import Codes, Weights, by_planes, by_rows, from_float8
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts

SHIFTS = {4: (0, 4), 2: (0, 2, 4, 6)}


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that quanto coded."""
    for scale, name in file.names_with("._scale"):
        # The scales of activations are not used.
        unused = file.stored(name.rpartition(".")[0], ".input_scale", ".output_scale")
        if f"{name}._data" in file.shapes:
            yield _plain(file, name, f"{name}._data", scale, unused)
        elif f"{name}._data._data" in file.shapes:
            yield _packed(file, name, f"{name}._data._data", scale, unused)
        else:
            raise file.error(f"found no tensor {name}._data, expected it with {scale}; {DAMAGED}")


def _plain(file: CodedFile, name: str, data: str, scale: str, unused: tuple[str, ...]) -> CodedWeight:
    shape, dtype = file.shapes[data], file.dtype(data)
    if len(shape) != 2 or not dtype.startswith(("int8", "float8")):
        raise file.bad_part(data, "a matrix of int8 or float8")
    for other in file.stored(name, "._shift", "._data._data"):
        raise file.bad_part(other, f"no such tensor next to {data}")
    single = prod(file.shapes[scale]) == 1
    file.require(scale, file.shapes[scale] if single else (shape[0], 1))

    def decode(parts: Parts) -> Weights:
        stored = parts.read(data)
        factors = np.broadcast_to(parts.numbers(scale).reshape(-1, 1), (shape[0], 1))

        def fill(rows: slice, out: Weights) -> None:
            codes = stored[rows] if stored.dtype == np.int8 else from_float8(stored[rows])
            np.multiply(codes, factors[rows], out=out, dtype=np.float32)

        return by_rows((shape[0], shape[1]), fill)

    label = f"quanto {'8-bit' if dtype == 'int8' else 'float8'}, {'one scale' if single else 'rows'}"
    return CodedWeight(name, shape, (data, scale, *unused), label, decode)


def _packed(file: CodedFile, name: str, data: str, scale: str, unused: tuple[str, ...]) -> CodedWeight:
    shift, stored, rows = f"{name}._shift", file.shapes[data], (file.shapes[scale] or (0,))[0]
    widths = [bits for bits in SHIFTS if len(stored) == 2 and stored[0] == -(-rows * bits // 8)]
    if len(widths) != 1 or not stored[1]:
        raise file.bad_part(data, f"2-bit or 4-bit codes for all {rows} rows of {scale}")
    (bits,), size = widths, stored[1]
    table = file.config.values.get("quanto_qmap")
    entry = table.get(name.rpartition(".")[0]) if isinstance(table, Mapping) else None
    stated = entry.get("weights") if isinstance(entry, Mapping) else None
    if stated not in (None, f"qint{bits}"):
        raise file.error(
            f"tensor {data} has the shape of {bits}-bit codes, but quanto_qmap.json calls them "
            f"{stated!r:.40}; {DAMAGED}"
        )
    file.require(data, stored, "uint8")
    file.require(scale, (rows, 1))
    floating = shift in file.shapes and file.is_floating(shift)
    file.require(shift, (rows, 1), *([] if floating else ["int8", "uint8"]))
    shape = _weight_shape(file, name, rows * size)
    if shape[1] % size:
        raise file.bad_part(data, f"groups that divide the {shape[1]} inputs of {name}")

    def decode(parts: Parts) -> Weights:
        factors, shifts = parts.rows(scale), parts.rows(shift)

        def fill(at: slice, codes: Codes, out: Weights) -> None:
            out[:] = codes
            if not floating:
                out -= shifts[at]
            out *= factors[at]
            if floating:
                out -= shifts[at]

        return by_planes(parts.read(data), (rows, size), bits, SHIFTS[bits], fill).reshape(shape)

    label = f"quanto {bits}-bit, groups of {size}"
    return CodedWeight(name, shape, (data, scale, shift, *unused), label, decode)


def _weight_shape(file: CodedFile, name: str, count: int) -> tuple[int, int]:
    """Return (outputs, inputs) of a weight with `count` entries, by the name of its module."""
    module = name.split(".")[-2:][0]
    fitting = {shape for shape in _shapes(file.config).get(module, ()) if prod(shape) == count}
    if len(fitting) != 1:
        raise file.error(
            f"tensor {name} has {count} entries, but the sizes in {file.config.source} do not determine its "
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
