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
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.config import Config
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
    CodedWeight,
    Parts,
    Rows,
    as_float32,
    bad_part,
    gives_groups,
    group_order,
    is_floating,
    quantization_config,
    require_part,
)
from attnlaw.checkpoints.tensors import Tensors
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


@dataclass(frozen=True)
class EntryLayout:
    """The storage of one matrix: the names of its parts, and the blocks that share a scale.

    `divides` means that weights are divided by their scales, and `shared` that all members of a stack have
    the same scales.
    """

    name: str
    shape: tuple[int, int]
    scale: str
    grid: Grid
    zeros: str | None
    order: str | None
    divides: bool
    shared: bool


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are stored with one code for each entry."""
    for name, shape in tensors.shapes.items():
        dtype = tensors.dtype(name)
        if dtype != INT8 and dtype not in FLOAT8:
            continue
        scale = next((scale for scale in scale_names(name) if scale in tensors.shapes), None)
        if (
            scale is not None
            and 1 <= len(shape) <= 3
            and 0 not in shape
            and not _is_float4(tensors, name, scale)
        ):
            yield _coded(tensors, config, name, scale)


def scale_names(name: str) -> Iterator[str]:
    """Yield the names that the scale of a weight may have."""
    yield from (f"{name}_scale_inv", f"{name}_scale")
    base = name.rpartition(".")[0]
    yield from (f"{base}.{word}" for word in ("scale", "qscale_weight", "scale_weight"))


def _is_float4(tensors: Tensors, name: str, scale: str) -> bool:
    """Return whether int8 bytes are pairs of 4-bit floats, which have exponents as scales."""
    is_pair = tensors.dtype(name) == INT8 and tensors.dtype(scale) in EXPONENTS
    if is_pair and 16 * tensors.shapes[scale][-1] != tensors.shapes[name][-1]:
        raise bad_part(
            tensors, scale, f"one exponent for every 32 inputs of {name} {list(tensors.shapes[name])}"
        )
    return is_pair


def _coded(tensors: Tensors, config: Config, name: str, scale: str) -> CodedWeight:
    full = tensors.shapes[name]
    stack, shape = full[:-2], (1, *full)[-2:]
    if not is_floating(tensors, scale) and tensors.dtype(scale) not in EXPONENTS:
        raise bad_part(tensors, scale, "floating-point numbers, or exponents in uint8")
    grid, shared = _grid(tensors, config, name, scale, stack, (shape[0], shape[1]))
    zeros, order = f"{name}_zero_point", f"{name}_g_idx"
    if zeros in tensors.shapes:
        codes = (INT8, tensors.dtype(name), "float", "bfloat16")
        require_part(tensors, zeros, tensors.shapes[scale], *codes)
    elif any(table.get("symmetric") is False for table in weight_schemes(config)):
        _require_symmetric(tensors, config, name, zeros)
    if order in tensors.shapes:
        require_part(tensors, order, (*stack, shape[1]), "int32", "int64")
    parts = tuple(part for part in (name, scale, zeros, order) if part in tensors.shapes)
    layout = EntryLayout(
        name=name,
        shape=(shape[0], shape[1]),
        scale=scale,
        grid=grid,
        zeros=zeros if zeros in parts else None,
        order=order if order in parts else None,
        divides=_divides(config, scale),
        shared=shared,
    )
    dtype = tensors.dtype(name)
    kind = "int8" if dtype == INT8 else dtype.replace("_", " ")
    return CodedWeight(name, full, parts, f"{kind}, {grid.words}", partial(_decode, layout, len(full)))


def _require_symmetric(tensors: Tensors, config: Config, name: str, zeros: str) -> None:
    """Raise an `InputError` if the config says that weights of this type have zero points."""
    kind = "int" if tensors.dtype(name) == INT8 else "float"
    schemes = [table for table in weight_schemes(config) if table.get("type", kind) == kind]
    if schemes and all(table.get("symmetric") is False for table in schemes):
        raise tensors.error(
            f"found no tensor {zeros}, expected it because symmetric is false in {config.source}; {DAMAGED}"
        )


def _divides(config: Config, scale: str) -> bool:
    """Return whether the config says that `weight_scale_inv` is a divisor."""
    meaning = quantization_config(config).get("weight_scale_semantics")
    if meaning not in (None, "inverse"):
        raise InputError(
            f"{config.source}: weight_scale_semantics is {meaning!r:.40}, expected inverse or no such key; "
            "use the original weights"
        )
    return meaning == "inverse" and scale.endswith("_inv")


def _grid(
    tensors: Tensors, config: Config, name: str, scale: str, stack: tuple[int, ...], shape: tuple[int, int]
) -> tuple[Grid, bool]:
    """Return which entries share a scale, and whether all members of a stack share their scales."""
    stored = tensors.shapes[scale]
    if len(tensors.shapes[name]) == 1:
        if stored in ((), (1,)):
            return Grid(*shape, "one scale"), False
    elif stack and stored in ((), (1,)) and stack != (1,):
        return Grid(*shape, "one scale"), True
    elif stored[: len(stack)] == stack:
        grid = _matrix_grid(config, stored[len(stack) :], shape)
        if grid is not None:
            return grid, False
    raise bad_part(
        tensors,
        scale,
        f"one number, one for each row or column, or {' or '.join(_stated_blocks(config))} for the weight "
        f"{name} of shape {list(tensors.shapes[name])} ({config.source})",
        "restore the model's config.json, or use the original weights",
    )


def _matrix_grid(config: Config, stored: tuple[int, ...], shape: tuple[int, int]) -> Grid | None:
    """Return the grid of one matrix by the shape of its scales, or None if none fits."""
    rows, columns = shape
    strategies = {table.get("strategy") for table in weight_schemes(config)}
    if not strategies or strategies - {"group"}:
        if stored in ((), (1,), (1, 1)):
            return Grid(rows, columns, "one scale")
        if stored in ((rows,), (rows, 1)):
            return Grid(1, columns, "rows")
        if stored == (1, columns):
            return Grid(rows, 1, "columns")
    if len(stored) == 4:
        if stored[1] == stored[3] == 1 and all(
            count and size % count == 0 for size, count in zip(shape, stored[::2], strict=True)
        ):
            height, width = rows // stored[0], columns // stored[2]
            return Grid(height, width, f"blocks of {height} x {width}")
        return None
    if len(stored) != 2:
        return None
    for height, width in _blocks(config):
        if _are_blocks(rows, height, stored[0]) and _are_blocks(columns, width, stored[1]):
            height, width = min(height, rows), min(width, columns)
            return Grid(height, width, f"blocks of {height} x {width}")
    sizes = _group_sizes(config)
    if stored[0] == rows and stored[1]:
        stated = [size for size in sizes if gives_groups(columns, size, stored[1])]
        if not sizes and "weight_block_size" not in quantization_config(config) and columns % stored[1] == 0:
            stated = [columns // stored[1]]
        if stated:
            return Grid(1, stated[0], f"groups of {stated[0]}")
    return None


def _are_blocks(size: int, block: int, count: int) -> bool:
    """Return whether blocks are so many. The last may be cut, above all if the others have a usual size."""
    usual = block & (block - 1) == 0 or count == 1
    return gives_groups(size, block, count) or (usual and -(-size // block) == count)


def _blocks(config: Config) -> list[tuple[int, int]]:
    """Return the blocks that the config states, or DeepSeek's if it states neither blocks nor groups."""
    values = quantization_config(config)
    stated = [
        values.get("weight_block_size"),
        *(table.get("block_structure") for table in weight_schemes(config)),
    ]
    blocks = [block for size in stated if (block := _as_block(size)) is not None]
    return blocks if any(stated) or _group_sizes(config) else [BLOCK]


def _as_block(size: Any) -> tuple[int, int] | None:
    if isinstance(size, str):  # as in compressed-tensors' recipes: "128x128"
        size = [int(part) if part.isdigit() and len(part) < 10 else 0 for part in size.split("x")]
    whole = isinstance(size, list) and len(size) == 2 and all(type(part) is int and part > 0 for part in size)
    return (size[0], size[1]) if whole else None


def _group_sizes(config: Config) -> list[int]:
    tables: list[Mapping[str, Any]] = [*weight_schemes(config), quantization_config(config)]
    sizes = (table.get("group_size") for table in tables)
    return [size for size in sizes if type(size) is int and size > 0]


def _stated_blocks(config: Config) -> list[str]:
    blocks = [f"one for each block of {height} x {width}" for height, width in _blocks(config)]
    return [*blocks, *(f"one for each group of {size}" for size in _group_sizes(config))] or [
        "one for each group"
    ]


def _decode(layout: EntryLayout, axes: int, parts: Parts) -> Weights:
    codes = parts.read(layout.name).reshape(layout.shape)
    scales = _rows(layout, parts, layout.scale, _as_scales)
    zeros = None if layout.zeros is None else _rows(layout, parts, layout.zeros, _as_numbers)
    grid, inputs, apply = layout.grid, layout.shape[1], np.divide if layout.divides else np.multiply
    order = None
    if layout.order is not None:
        order = group_order(parts, layout.order, scales.stored.shape[1], grid.columns)

    def decode(rows: slice, out: Weights) -> None:
        if codes.dtype == np.int8:
            out[:] = codes[rows]
        else:
            np.take(FLOAT8[codes.dtype.name], codes[rows].view(np.uint8), out=out, mode="clip")
        first = rows.start // grid.rows
        blocks = slice(first, -(-rows.stop // grid.rows))
        block = np.arange(rows.start, rows.stop) // grid.rows - first
        factors, offsets = scales[blocks][block], None if zeros is None else zeros[blocks][block]
        if order is not None:
            if offsets is not None:
                out -= offsets[:, order]
            apply(out, factors[:, order], out=out)
            return
        for view, groups in cut_groups(out, min(grid.columns, inputs)):
            if offsets is not None:
                view -= offsets[:, groups, None]
            apply(view, factors[:, groups, None], out=view)

    with np.errstate(divide="ignore", invalid="ignore"):  # readers check the weights
        matrix = by_rows(layout.shape, decode)
    return matrix.reshape(-1) if axes == 1 else matrix


def _rows(layout: EntryLayout, parts: Parts, name: str, convert: Callable[[NDArray[Any]], Weights]) -> Rows:
    """Return scales or zero points as a matrix with one entry for each block."""
    stored = np.asarray(parts.read_all(name) if layout.shared else parts.read(name))
    (rows, columns), grid = layout.shape, layout.grid
    shaped = stored.reshape(-(-rows // grid.rows), -(-columns // grid.columns))
    return Rows(shaped, convert, parts.tensors.source, name)


def _as_scales(stored: NDArray[Any]) -> Weights:
    return exponents(stored) if stored.dtype.name in EXPONENTS else _as_numbers(stored)


def _as_numbers(stored: NDArray[Any]) -> Weights:
    return from_float8(stored) if stored.dtype.name in FLOAT8 else as_float32(stored)
