"""One code an entry: a float8 or int8 weight `X` with scales next to it, W = (q - z) s.

The scale is called `X_scale_inv`, `X_scale`, `B.scale`, `B.qscale_weight` or `B.scale_weight`, where `B` is
the name of the weight without its last word. The zero point `X_zero_point` has the shape of the scale.

| shape of the scale, for a weight (out, in) | one scale for |
|---|---|
| (), (1) or (1, 1) | the matrix |
| (out) or (out, 1) | each row |
| (1, in) | each column |
| (ceil(out / b), ceil(in / c)) | each block of b x c: `weight_block_size`, or 128 x 128 |
| (out / b, 1, in / c, 1) | each block of b x c (ModelOpt) |
| (out, groups) | each group of inputs of a row, which `X_g_idx` may order |

Stacks of experts have one more axis in front. Scales in uint8 or e8m0 are exponents of powers of two.
`weight_scale_inv` is a factor in DeepSeek's files, like the other names. It is a divisor if the config says
`weight_scale_semantics: inverse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.quantization.compressed_tensors import weight_schemes
from attnlaw.checkpoints.quantization.packing import (
    FLOAT8,
    Weights,
    by_rows,
    cut_groups,
    exponents,
    from_float8,
)
from attnlaw.checkpoints.quantization.record import (
    DAMAGED,
    CodedFile,
    CodedWeight,
    Parts,
    Rows,
    as_float32,
    gives_groups,
    group_order,
)
from attnlaw.core.errors import InputError

BLOCK = (128, 128)  # DeepSeek's, unless the config states another
EXPONENTS = ("uint8", "float8_e8m0fnu")
INT8 = "int8"


@dataclass(frozen=True)
class Grid:
    """Blocks of `rows` x `columns` entries of a matrix that share a scale, and `words` for the label."""

    rows: int
    columns: int
    words: str


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are stored with one code for each entry."""
    for name, shape in file.shapes.items():
        dtype, base = file.dtype(name), name.rpartition(".")[0]
        if dtype != INT8 and dtype not in FLOAT8:
            continue
        words = ("scale", "qscale_weight", "scale_weight")
        scales = (f"{name}_scale_inv", f"{name}_scale", *(f"{base}.{word}" for word in words))
        scale = next((scale for scale in scales if scale in file.shapes), None)
        if scale and 1 <= len(shape) <= 3 and 0 not in shape and not _is_float4(file, name, scale):
            yield _coded(file, name, scale)


def _is_float4(file: CodedFile, name: str, scale: str) -> bool:
    """Return whether int8 bytes are pairs of 4-bit floats, which have exponents as scales."""
    is_pair = file.dtype(name) == INT8 and file.dtype(scale) in EXPONENTS
    if is_pair and 16 * file.shapes[scale][-1] != file.shapes[name][-1]:
        raise file.bad_part(scale, f"one exponent for every 32 inputs of {name} {list(file.shapes[name])}")
    return is_pair


def _coded(file: CodedFile, name: str, scale: str) -> CodedWeight:
    full, dtype = file.shapes[name], file.dtype(name)
    stack, (outputs, inputs) = full[:-2], (1, *full)[-2:]
    if not file.is_floating(scale) and file.dtype(scale) not in EXPONENTS:
        raise file.bad_part(scale, "floating-point numbers, or exponents in uint8")
    grid, shared = _grid(file, name, scale, stack, (outputs, inputs))
    zeros, order = f"{name}_zero_point", f"{name}_g_idx"
    if zeros in file.shapes:
        file.require(zeros, file.shapes[scale], INT8, dtype, "float", "bfloat16")
    else:
        _require_symmetric(file, name, zeros)
    if order in file.shapes:
        file.require(order, (*stack, inputs), "int32", "int64")
    apply = np.divide if _divides(file, scale) else np.multiply

    def decode(parts: Parts) -> Weights:
        def block_rows(part: str, convert: Callable[[NDArray[Any]], Weights]) -> Rows:
            stored = np.asarray(parts.read(part, shared))
            shaped = stored.reshape(-(-outputs // grid.rows), -(-inputs // grid.columns))
            return Rows(shaped, convert, parts.tensors.source, part)

        codes = parts.read(name).reshape(outputs, inputs)
        scales = block_rows(scale, _as_scales)
        points = block_rows(zeros, _as_numbers) if zeros in file.shapes else None
        group_of = None
        if order in file.shapes:
            group_of = group_order(parts, order, scales.stored.shape[1], grid.columns)

        def fill(rows: slice, out: Weights) -> None:
            if codes.dtype == np.int8:
                out[:] = codes[rows]
            else:
                np.take(FLOAT8[codes.dtype.name], codes[rows].view(np.uint8), out=out, mode="clip")
            first = rows.start // grid.rows
            blocks = slice(first, -(-rows.stop // grid.rows))
            block = np.arange(rows.start, rows.stop) // grid.rows - first
            factors, offsets = scales[blocks][block], None if points is None else points[blocks][block]
            if group_of is not None:
                if offsets is not None:
                    out -= offsets[:, group_of]
                apply(out, factors[:, group_of], out=out)
                return
            for view, groups in cut_groups(out, min(grid.columns, inputs)):
                if offsets is not None:
                    view -= offsets[:, groups, None]
                apply(view, factors[:, groups, None], out=view)

        with np.errstate(divide="ignore", invalid="ignore"):  # readers check the weights
            matrix = by_rows((outputs, inputs), fill)
        return matrix.reshape(-1) if len(full) == 1 else matrix

    parts = (name, scale, *file.stored(name, "_zero_point", "_g_idx"))
    label = f"{'int8' if dtype == INT8 else dtype.replace('_', ' ')}, {grid.words}"
    return CodedWeight(name, full, parts, label, decode)


def _as_scales(stored: NDArray[Any]) -> Weights:
    return exponents(stored) if stored.dtype.name in EXPONENTS else _as_numbers(stored)


def _as_numbers(stored: NDArray[Any]) -> Weights:
    return from_float8(stored) if stored.dtype.name in FLOAT8 else as_float32(stored)


def _require_symmetric(file: CodedFile, name: str, zeros: str) -> None:
    kind = "int" if file.dtype(name) == INT8 else "float"
    schemes = [table for table in weight_schemes(file) if table.get("type", kind) == kind]
    if schemes and all(table.get("symmetric") is False for table in schemes):
        raise file.error(
            f"found no tensor {zeros}, expected it because symmetric is false in {file.config.source}; "
            f"{DAMAGED}"
        )


def _divides(file: CodedFile, scale: str) -> bool:
    meaning = file.settings.get("weight_scale_semantics")
    if meaning not in (None, "inverse"):
        raise InputError(
            f"{file.config.source}: weight_scale_semantics is {meaning!r:.40}, expected inverse or no such "
            "key; use the original weights"
        )
    return meaning == "inverse" and scale.endswith("_inv")


def _grid(
    file: CodedFile, name: str, scale: str, stack: tuple[int, ...], shape: tuple[int, int]
) -> tuple[Grid, bool]:
    """Return which entries share a scale, and whether all members of a stack share their scales."""
    stored = file.shapes[scale]
    if len(file.shapes[name]) == 1:
        if stored in ((), (1,)):
            return Grid(*shape, "one scale"), False
    elif stack and stored in ((), (1,)) and stack != (1,):
        return Grid(*shape, "one scale"), True
    elif stored[: len(stack)] == stack:
        grid = _matrix_grid(file, stored[len(stack) :], shape)
        if grid is not None:
            return grid, False
    blocks = [f"one for each block of {height} x {width}" for height, width in _blocks(file)]
    stated = [*blocks, *(f"one for each group of {size}" for size in _group_sizes(file))]
    raise file.bad_part(
        scale,
        f"one number, one for each row or column, or {' or '.join(stated) or 'one for each group'} for the "
        f"weight {name} of shape {list(file.shapes[name])} ({file.config.source})",
        "restore the model's config.json, or use the original weights",
    )


def _matrix_grid(file: CodedFile, stored: tuple[int, ...], shape: tuple[int, int]) -> Grid | None:
    """Return the grid of one matrix by the shape of its scales, or None if none fits."""
    rows, columns = shape
    strategies = {table.get("strategy") for table in weight_schemes(file)}
    if not strategies or strategies - {"group"}:
        if stored in ((), (1,), (1, 1)):
            return Grid(rows, columns, "one scale")
        if stored in ((rows,), (rows, 1)):
            return Grid(1, columns, "rows")
        if stored == (1, columns):
            return Grid(rows, 1, "columns")
    if len(stored) == 4:
        counts = stored[::2]
        if stored[1::2] != (1, 1) or 0 in counts or rows % counts[0] or columns % counts[1]:
            return None
        height, width = rows // counts[0], columns // counts[1]
        return Grid(height, width, f"blocks of {height} x {width}")
    if len(stored) != 2:
        return None
    for height, width in _blocks(file):
        if _are_blocks(rows, height, stored[0]) and _are_blocks(columns, width, stored[1]):
            height, width = min(height, rows), min(width, columns)
            return Grid(height, width, f"blocks of {height} x {width}")
    sizes = _group_sizes(file)
    if stored[0] == rows and stored[1]:
        stated = [size for size in sizes if gives_groups(columns, size, stored[1])]
        if not sizes and "weight_block_size" not in file.settings and columns % stored[1] == 0:
            stated = [columns // stored[1]]
        if stated:
            return Grid(1, stated[0], f"groups of {stated[0]}")
    return None


def _are_blocks(size: int, block: int, count: int) -> bool:
    """Return whether blocks are so many. The last may be cut, above all if the others have a usual size."""
    usual = block & (block - 1) == 0 or count == 1
    return gives_groups(size, block, count) or (usual and -(-size // block) == count)


def _blocks(file: CodedFile) -> list[tuple[int, int]]:
    """Return the blocks that the config states, or DeepSeek's if it states neither blocks nor groups."""
    structures = (table.get("block_structure") for table in weight_schemes(file))
    stated = [file.settings.get("weight_block_size"), *structures]
    blocks = [block for size in stated if (block := _as_block(size)) is not None]
    return blocks if any(stated) or _group_sizes(file) else [BLOCK]


def _as_block(size: Any) -> tuple[int, int] | None:
    if isinstance(size, str):  # as in compressed-tensors' recipes: "128x128"
        size = [int(part) if part.isdigit() and len(part) < 10 else 0 for part in size.split("x")]
    whole = isinstance(size, list) and len(size) == 2 and all(type(part) is int and part > 0 for part in size)
    return (size[0], size[1]) if whole else None


def _group_sizes(file: CodedFile) -> list[int]:
    tables: list[Mapping[str, Any]] = [*weight_schemes(file), file.settings]
    sizes = (table.get("group_size") for table in tables)
    return [size for size in sizes if type(size) is int and size > 0]
