"""AWQ: 4-bit codes with a zero point for each group of inputs, in three layouts.

| layout | `qweight` | `qzeros` | `scales` |
|---|---|---|---|
| gemm | int32 (inputs, outputs / 8) | int32 (groups, outputs / 8) | (groups, outputs) |
| gemv | int32 (outputs, inputs / 8) | int32 (outputs, n) | (outputs, 8 n) |
| gemv_fast | int16 (outputs / 4, inputs) | float (8 n, outputs) | (8 n, outputs) |

W[o, i] = s[g, o] (q[i, o] - z[g, o]) with g = i // group size. In gemv_fast, W = s q + `qzeros`. In both gemv
layouts, 8 n is the number of groups, rounded up; the scales of the other groups are zero.

AWQ multiplies the columns of most matrices before it rounds them, and divides the norm before them by the
same factors. The decoded matrix contains these factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.packing import (
    Weights,
    affine,
    by_rows,
    cut_groups,
    scale_groups,
    unpack,
    unpack_columns,
)
from attnlaw.checkpoints.quantization.record import (
    DAMAGED,
    CodedWeight,
    Parts,
    bad_part,
    gives_groups,
    group_size,
    method_of,
    names_with,
    quantization_config,
    require_part,
    stated_group_size,
)
from attnlaw.checkpoints.tensors import Tensors

NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)  # column c of the eight columns of a word is in this nibble


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are stored by AWQ."""
    for _, base in names_with(tensors, "qweight"):
        layout = layout_of(tensors, config, base)
        if layout is None:
            continue
        if method_of(config) == "gptq":
            raise tensors.error(
                f"tensor {base}qweight of shape {list(tensors.shapes[f'{base}qweight'])} is that of AWQ, but "
                f"quant_method in {config.source} is gptq; correct quant_method"
            )
        yield LAYOUTS[layout](tensors, config, base)


def layout_of(tensors: Tensors, config: Config, base: str) -> str | None:
    """Return the layout of a matrix by its shapes, or None if the shapes do not fit AWQ."""
    shape, scales = tensors.shapes[f"{base}qweight"], tensors.shapes.get(f"{base}scales", ())
    dtype = tensors.dtype(f"{base}qweight")
    if len(shape) != 2 or len(scales) != 2:
        return None
    if dtype == "int16":
        return "gemv_fast"
    if dtype == "int32" and scales[1] == 8 * shape[1]:
        return "gemm"
    # Few inputs could make gemv look like GPTQ with groups of 8 inputs.
    is_gemv = dtype == "int32" and scales[0] == shape[0] and scales[1] % 8 == 0
    stated = str(quantization_config(config).get("version", "")).lower()
    return "gemv" if is_gemv and (stated == "gemv" or scales[1] != shape[1]) else None


def _gemm(tensors: Tensors, config: Config, base: str) -> CodedWeight:
    inputs, columns = tensors.shapes[f"{base}qweight"]
    groups = tensors.shapes[f"{base}scales"][0]
    require_part(tensors, f"{base}qzeros", (groups, columns), "int32")
    require_part(tensors, f"{base}scales", (groups, 8 * columns))
    size, remark = group_size(tensors, config, f"{base}scales", inputs, groups, bits=4)
    label = f"AWQ 4-bit, groups of {size}"
    return _coded(base, (8 * columns, inputs), label, partial(_decode_gemm, base, size), remark)


def _decode_gemm(base: str, size: int, parts: Parts) -> Weights:
    words, zeros = parts.read(f"{base}qweight"), unpack_columns(parts.read(f"{base}qzeros"), NIBBLES)
    scales = parts.rows(f"{base}scales", transposed=True)

    def decode(rows: slice, out: Weights) -> None:
        codes = unpack_columns(words[:, rows.start // 8 : rows.stop // 8], NIBBLES)
        affine(codes, out, zeros[rows], scales[rows], size)

    return by_rows((8 * words.shape[1], len(words)), decode, multiple=8)


def _gemv(tensors: Tensors, config: Config, base: str) -> CodedWeight:
    outputs, words = tensors.shapes[f"{base}qweight"]
    padded = tensors.shapes[f"{base}scales"][1]
    require_part(tensors, f"{base}qzeros", (outputs, padded // 8), "int32")
    require_part(tensors, f"{base}scales", (outputs, padded))
    size = _padded_size(tensors, config, base, 8 * words, padded)
    label = f"AWQ 4-bit, groups of {size} (gemv)"
    return _coded(base, (outputs, 8 * words), label, partial(_decode_gemv, base, size))


def _decode_gemv(base: str, size: int, parts: Parts) -> Weights:
    words = parts.read(f"{base}qweight")
    inputs = 8 * words.shape[1]
    groups = -(-inputs // size)
    padded = parts.numbers(f"{base}scales")
    scales = _without_padding(parts, base, padded, groups)
    zeros = unpack(parts.read(f"{base}qzeros"), 4, groups)

    def decode(rows: slice, out: Weights) -> None:
        affine(unpack(words[rows], 4, inputs), out, zeros[rows], scales[rows], size)

    return by_rows((len(words), inputs), decode)


def _gemv_fast(tensors: Tensors, config: Config, base: str) -> CodedWeight:
    quarter, inputs = tensors.shapes[f"{base}qweight"]
    outputs, padded = 4 * quarter, tensors.shapes[f"{base}scales"][0]
    if inputs % 64:
        raise bad_part(tensors, f"{base}qweight", "a multiple of 64 inputs")
    for part in ("qzeros", "scales"):
        require_part(tensors, f"{base}{part}", (padded, outputs))
    size = _padded_size(tensors, config, base, inputs, padded)
    label = f"AWQ 4-bit, groups of {size} (gemv_fast)"
    return _coded(base, (outputs, inputs), label, partial(_decode_gemv_fast, base, size))


def _decode_gemv_fast(base: str, size: int, parts: Parts) -> Weights:
    words = parts.read(f"{base}qweight")
    inputs = words.shape[1]
    groups = -(-inputs // size)
    scales = _without_padding(parts, base, np.ascontiguousarray(parts.numbers(f"{base}scales").T), groups)
    offsets = np.ascontiguousarray(parts.numbers(f"{base}qzeros").T)[:, :groups]

    def decode(rows: slice, out: Weights) -> None:
        nibbles = unpack(words[rows.start // 4 : rows.stop // 4], 4, 4 * inputs)
        outputs = nibbles.reshape(-1, inputs // 64, 4, 64).transpose(0, 2, 1, 3)
        inner = outputs.reshape(-1, inputs // 32, 4, 2, 4).transpose(0, 1, 2, 4, 3)
        out[:] = inner.reshape(-1, inputs // 32, 4, 4, 2).transpose(0, 1, 3, 2, 4).reshape(out.shape)
        scale_groups(out, scales[rows], size)
        for view, part in cut_groups(out, size):
            view += offsets[rows, part, None]

    return by_rows((4 * len(words), inputs), decode, multiple=4)


def _padded_size(tensors: Tensors, config: Config, base: str, inputs: int, padded: int) -> int:
    """Return the group size that the config states, if the padded scales have room for its groups."""
    size = stated_group_size(config) or inputs
    if padded % 8 or -(-inputs // size) > padded or not gives_groups(inputs, size, -(-inputs // size)):
        expected = f"room for {-(-inputs // size)} groups of {size} (group_size in {config.source})"
        raise bad_part(tensors, f"{base}scales", expected)
    return size


def _without_padding(parts: Parts, base: str, scales: Weights, groups: int) -> Weights:
    """Return the scales of the first groups. Raise an `InputError` if the others are not padding."""
    used = np.any(scales, axis=0)
    if used[groups:].any() or not used[:groups].all():
        raise parts.tensors.error(
            f"tensor {base}scales has scales for {int(used.sum())} groups, but the group_size of config.json "
            f"gives {groups}; correct group_size, or {DAMAGED}"
        )
    return scales[:, :groups]


LAYOUTS = {"gemm": _gemm, "gemv": _gemv, "gemv_fast": _gemv_fast}


def _coded(
    base: str, shape: tuple[int, int], label: str, decode: Callable[[Parts], Weights], remark: str = ""
) -> CodedWeight:
    parts = tuple(base + part for part in ("qweight", "qzeros", "scales"))
    return CodedWeight(f"{base}weight", shape, parts, label, decode, remark)
