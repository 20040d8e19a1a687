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

from collections.abc import Iterator

import numpy as np

from attnlaw.checkpoints.quantization.packing import (
    Weights,
    affine,
    by_rows,
    cut_groups,
    scale_groups,
    unpack,
    unpack_columns,
)
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts, gives_groups

NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)  # column c of the eight columns of a word is in this nibble


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are stored by AWQ."""
    for _, base in file.names_with("qweight"):
        layout = layout_of(file, base)
        if layout is None:
            continue
        if file.method == "gptq":
            raise file.error(
                f"tensor {base}qweight of shape {list(file.shapes[f'{base}qweight'])} is that of AWQ, but "
                f"quant_method in {file.config.source} is gptq; correct quant_method"
            )
        yield LAYOUTS[layout](file, base)


def layout_of(file: CodedFile, base: str) -> str | None:
    """Return the layout of a matrix by its shapes, or None if the shapes do not fit AWQ."""
    shape, scales = file.shapes[f"{base}qweight"], file.shape(f"{base}scales")
    dtype = file.dtype(f"{base}qweight")
    if len(shape) != 2 or len(scales) != 2:
        return None
    if dtype == "int16":
        return "gemv_fast"
    if dtype == "int32" and scales[1] == 8 * shape[1]:
        return "gemm"
    # Few inputs could make gemv look like GPTQ with groups of 8 inputs.
    is_gemv = dtype == "int32" and scales[0] == shape[0] and scales[1] % 8 == 0
    stated = str(file.settings.get("version", "")).lower()
    return "gemv" if is_gemv and (stated == "gemv" or scales[1] != shape[1]) else None


def _gemm(file: CodedFile, base: str) -> CodedWeight:
    qweight, qzeros, scales = parts = _parts(base)
    inputs, columns = file.shapes[qweight]
    groups = file.shapes[scales][0]
    file.require(qzeros, (groups, columns), "int32")
    file.require(scales, (groups, 8 * columns))
    size, remark = file.group_size(scales, inputs, groups, bits=4)

    def decode(stored: Parts) -> Weights:
        words, zeros = stored.read(qweight), unpack_columns(stored.read(qzeros), NIBBLES)
        factors = stored.rows(scales, transposed=True)

        def fill(rows: slice, out: Weights) -> None:
            codes = unpack_columns(words[:, rows.start // 8 : rows.stop // 8], NIBBLES)
            affine(codes, out, zeros[rows], factors[rows], size)

        return by_rows((8 * columns, inputs), fill, multiple=8)

    label = f"AWQ 4-bit, groups of {size}"
    return CodedWeight(f"{base}weight", (8 * columns, inputs), parts, label, decode, remark)


def _gemv(file: CodedFile, base: str) -> CodedWeight:
    qweight, qzeros, scales = parts = _parts(base)
    outputs, inputs = file.shapes[qweight][0], 8 * file.shapes[qweight][1]
    padded = file.shapes[scales][1]
    file.require(qzeros, (outputs, padded // 8), "int32")
    file.require(scales, (outputs, padded))
    size, groups = _padded_groups(file, scales, inputs, padded)

    def decode(stored: Parts) -> Weights:
        words = stored.read(qweight)
        factors = _without_padding(stored, scales, stored.numbers(scales), groups)
        zeros = unpack(stored.read(qzeros), 4, groups)

        def fill(rows: slice, out: Weights) -> None:
            affine(unpack(words[rows], 4, inputs), out, zeros[rows], factors[rows], size)

        return by_rows((outputs, inputs), fill)

    label = f"AWQ 4-bit, groups of {size} (gemv)"
    return CodedWeight(f"{base}weight", (outputs, inputs), parts, label, decode)


def _gemv_fast(file: CodedFile, base: str) -> CodedWeight:
    qweight, qzeros, scales = parts = _parts(base)
    outputs, inputs = 4 * file.shapes[qweight][0], file.shapes[qweight][1]
    padded = file.shapes[scales][0]
    if inputs % 64:
        raise file.bad_part(qweight, "a multiple of 64 inputs")
    file.require(qzeros, (padded, outputs))
    file.require(scales, (padded, outputs))
    size, groups = _padded_groups(file, scales, inputs, padded)

    def decode(stored: Parts) -> Weights:
        words = stored.read(qweight)
        transposed = np.ascontiguousarray(stored.numbers(scales).T)
        factors = _without_padding(stored, scales, transposed, groups)
        offsets = np.ascontiguousarray(stored.numbers(qzeros).T)[:, :groups]

        def fill(rows: slice, out: Weights) -> None:
            nibbles = unpack(words[rows.start // 4 : rows.stop // 4], 4, 4 * inputs)
            by_output = nibbles.reshape(-1, inputs // 64, 4, 64).transpose(0, 2, 1, 3)
            inner = by_output.reshape(-1, inputs // 32, 4, 2, 4).transpose(0, 1, 2, 4, 3)
            out[:] = inner.reshape(-1, inputs // 32, 4, 4, 2).transpose(0, 1, 3, 2, 4).reshape(out.shape)
            scale_groups(out, factors[rows], size)
            for view, part in cut_groups(out, size):
                view += offsets[rows, part, None]

        return by_rows((outputs, inputs), fill, multiple=4)

    label = f"AWQ 4-bit, groups of {size} (gemv_fast)"
    return CodedWeight(f"{base}weight", (outputs, inputs), parts, label, decode)


LAYOUTS = {"gemm": _gemm, "gemv": _gemv, "gemv_fast": _gemv_fast}


def _parts(base: str) -> tuple[str, str, str]:
    return f"{base}qweight", f"{base}qzeros", f"{base}scales"


def _padded_groups(file: CodedFile, scales: str, inputs: int, padded: int) -> tuple[int, int]:
    """Return the group size that the config states, and its groups, for which the scales must have room."""
    size = file.stated_group_size or inputs
    groups = -(-inputs // size)
    if padded % 8 or groups > padded or not gives_groups(inputs, size, groups):
        expected = f"room for {groups} groups of {size} (group_size in {file.config.source})"
        raise file.bad_part(scales, expected)
    return size, groups


def _without_padding(stored: Parts, name: str, scales: Weights, groups: int) -> Weights:
    """Return the scales of the first groups. Raise an `InputError` if the others are not padding."""
    used = np.any(scales, axis=0)
    if used[groups:].any() or not used[:groups].all():
        raise stored.tensors.error(
            f"tensor {name} has scales for {int(used.sum())} groups, but the group_size of config.json "
            f"gives {groups}; correct group_size, or {DAMAGED}"
        )
    return scales[:, :groups]
