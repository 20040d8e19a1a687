"""torchao: a weight `P.weight` is stored as `P._weight_qdata`, `P._weight_scale` and other flattened parts.

The header of the safetensors file has a JSON text for each weight. It names the class of the tensor, its
sizes and its parts.

| class | `qdata` | W |
|---|---|---|
| Int8Tensor, IntxUnpackedToInt8Tensor, Float8Tensor | int8 or float8 (out, in) | (q - z) s by blocks |
| Int4Tensor | int8 (out, in / 2), two's complement | q s + z, with s and z (in / g, out) |
| NVFP4Tensor | uint8 (out, in / 2) | e2m1 value of q, times s and a scale of the tensor |
| MXTensor | float8, or uint8 (out, in / 2) | value of q, times 2^(s - 127) |

Low nibbles come first. The scales of the last two may be *swizzled*: tiles of 128 rows and 4 groups are
stored as 32 x 16 numbers. `act_pre_scale` multiplies the columns, because it multiplies the activations.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.quantization.packing import (
    Weights,
    affine,
    by_rows,
    exponents,
    from_e4m3,
    from_float4,
    from_float8,
    scale_groups,
    signed,
    unpack,
)
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts
from attnlaw.core.errors import InputError, as_input_error

PLAIN = "Tensor"  # the class of weights that are stored as usual
COLUMNS = "act_pre_scale"
# The scales of activations say nothing about weights.
ACTIVATIONS = ("act_quant_scale", "act_quant_zero_point", "act_per_tensor_scale")
KNOWN_PARTS = {"qdata", "scale", "zero_point", "per_tensor_scale", COLUMNS, *ACTIVATIONS}
NVFP4, MX = 16, 32  # inputs that share a scale
ELEMENTS = {"float8_e4m3fn": "MXFP8", "float8_e5m2": "MXFP8", "float4_e2m1fn_x2": "MXFP4"}
INTEGERS = ("int8", "int16", "int32", "int64")


@dataclass(frozen=True)
class TorchaoLayout:
    """The storage of one weight of torchao's class `kind`, with the `values` in the file's header.

    All names of `parts` begin with `start`. `blocks` are the numbers of rows and inputs that share a scale.
    """

    kind: str
    start: str
    shape: tuple[int, ...]
    parts: tuple[str, ...]
    values: Mapping[str, Any]
    blocks: tuple[int, int] = (1, 1)

    @property
    def matrix(self) -> tuple[int, int]:
        return self.shape[-2], self.shape[-1]

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """The shape of the scales, assuming that they are not swizzled."""
        groups = (self.shape[-2] // self.blocks[0], self.shape[-1] // self.blocks[1])
        return *self.shape[:-2], *groups

    def stated_type(self, key: str) -> str:
        stated = self.values.get(key)
        return str(stated.get("_data") if isinstance(stated, dict) else stated)


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that torchao coded and flattened."""
    if "tensor_names" not in file.tensors.texts:
        return
    what = f"{file.tensors.source}: the header has no valid JSON that describes the tensors of torchao"
    for name, text in file.tensors.texts.items():
        if "_tensor_data_names" in text:
            with as_input_error(what, DAMAGED, ValueError, RecursionError, with_reason=False):
                stated = json.loads(text)
            if isinstance(stated, dict) and stated.get("_type") != PLAIN:
                yield _coded(file, name, stated)


def _coded(file: CodedFile, name: str, stated: Mapping[str, Any]) -> CodedWeight:
    kind, values, parts = stated.get("_type"), stated.get("_data"), stated.get("_tensor_data_names")
    if not isinstance(kind, str) or kind not in CLASSES:
        raise file.error(
            f"{name} is stored as torchao's {kind!r:.80}, which is not supported (expected "
            f"{', '.join(CLASSES)}); use the original weights"
        )
    names = [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
    if not isinstance(values, dict) or names != parts or {"qdata", "scale"} - set(names):
        raise file.error(f"the header does not list the sizes and parts of {name}, a {kind}; {DAMAGED}")
    module, _, last = name.rpartition(".")
    start = f"{module}{'.' if module else ''}_{last}_"
    for part in names:
        if start + part not in file.shapes:
            raise file.error(
                f"found no tensor {start}{part}, expected it because the header lists it as a part of "
                f"{name}; {DAMAGED}"
            )
    shape = file.shapes[f"{start}qdata"]
    if len(shape) not in (2, 3) or 0 in shape:
        raise file.bad_part(f"{start}qdata", "a matrix, or a stack of matrices")
    label, layout, read = CLASSES[kind](file, TorchaoLayout(kind, start, shape, tuple(names), values))
    for part in names:
        if part not in KNOWN_PARTS or (part == "per_tensor_scale") > (kind == "NVFP4Tensor"):
            raise file.error(
                f"tensor {start}{part} is a part of a {kind}, expected {', '.join(sorted(KNOWN_PARTS))}; use "
                "the original weights"
            )
    columns, inputs = start + COLUMNS, layout.shape[-1]
    if COLUMNS in names and (
        file.shapes[columns] not in ((inputs,), (1, inputs)) or not file.is_floating(columns)
    ):
        raise file.bad_part(columns, f"one number for each of {inputs} inputs")

    def decode(stored: Parts) -> Weights:
        matrix = read(layout, stored)
        if COLUMNS in names:
            matrix *= stored.numbers(columns, shared=True).reshape(1, -1)
        return matrix

    stored_names = tuple(start + part for part in names)
    return CodedWeight(name, layout.shape, stored_names, f"torchao {label}", decode)


Reader = Callable[[TorchaoLayout, Parts], Weights]
Kind = tuple[str, TorchaoLayout, Reader]


def _with_blocks(file: CodedFile, layout: TorchaoLayout) -> TorchaoLayout:
    """Return the layout with the blocks that the header states, which must divide the weight exactly."""
    stated, shape = layout.values.get("block_size"), layout.shape
    whole = isinstance(stated, list) and all(type(size) is int and size > 0 for size in stated)
    if isinstance(stated, list) and whole and len(stated) == len(shape):
        *front, rows, inputs = stated
        if set(front) <= {1} and shape[-2] % rows == 0 and shape[-1] % inputs == 0:
            return replace(layout, blocks=(rows, inputs))
    raise _bad_header(file, layout, f"block_size {stated!r:.80}", f"sizes that divide {list(shape)}")


def _bad_header(
    file: CodedFile, layout: TorchaoLayout, stated: str, expected: str, where: str = ""
) -> InputError:
    return file.error(
        f"the file's header gives {stated} for {layout.start}qdata{where}, expected {expected}; {DAMAGED}"
    )


def _require_scale(file: CodedFile, layout: TorchaoLayout, part: str, *dtypes: str) -> None:
    name, shape = layout.start + part, layout.scale_shape
    if prod(shape) == 1 and file.shapes[name] in ((), (1,)):
        shape = file.shapes[name]
    file.require(name, shape, *dtypes, because=f" for blocks of {list(layout.blocks)}")


def _grouping(layout: TorchaoLayout) -> str:
    rows, inputs = layout.blocks
    if layout.blocks == layout.matrix:
        return "one scale"
    if inputs == layout.shape[-1] and rows == 1:
        return "rows"
    return f"groups of {inputs}" if rows == 1 else f"blocks of {rows} x {inputs}"


def _numbers(file: CodedFile, layout: TorchaoLayout) -> Kind:
    layout = _with_blocks(file, layout)
    float8, unpacked = layout.kind == "Float8Tensor", layout.kind == "IntxUnpackedToInt8Tensor"
    dtypes = ("float8_e4m3fn", "float8_e5m2") if float8 else ("int8",)
    file.require(f"{layout.start}qdata", layout.shape, *dtypes)
    _require_scale(file, layout, "scale")
    if "zero_point" in layout.parts:
        floating = file.is_floating(f"{layout.start}zero_point")
        _require_scale(file, layout, "zero_point", *(() if floating else INTEGERS))
    elif unpacked:
        raise file.error(f"the header lists no {layout.start}zero_point; {DAMAGED}")
    width = "float8" if float8 else "8-bit"
    if unpacked:
        name = layout.stated_type("target_dtype")
        if name not in {f"int{bits}" for bits in range(1, 9)}:
            raise _bad_header(file, layout, f"target_dtype {name!r:.80}", "int1 to int8")
        width = f"{name[3:]}-bit"
    return f"{width}, {_grouping(layout)}", layout, _read_numbers


def _read_numbers(layout: TorchaoLayout, parts: Parts) -> Weights:
    stored = parts.read(f"{layout.start}qdata")
    scales = _spread(layout, parts, "scale")
    zeros = _spread(layout, parts, "zero_point") if "zero_point" in layout.parts else None

    def decode(rows: slice, out: Weights) -> None:
        codes = from_float8(stored[rows]) if stored.dtype != np.int8 else stored[rows]
        affine(codes, out, None if zeros is None else zeros(rows), scales(rows), layout.blocks[1])

    return by_rows(layout.matrix, decode)


def _spread(layout: TorchaoLayout, parts: Parts, part: str) -> Callable[[slice], Weights]:
    """Return a function that gives the scales or the zero points (rows, groups) of some rows."""
    height, width = layout.blocks
    table = parts.rows(layout.start + part)
    grid = layout.shape[-2] // height, layout.shape[-1] // width
    table = replace(table, stored=table.stored.reshape(grid))

    def rows_of(rows: slice) -> Weights:
        blocks = np.arange(rows.start, rows.stop) // height
        numbers: Weights = table[blocks[0] : blocks[-1] + 1][blocks - blocks[0]]
        return numbers

    return rows_of


def _int4(file: CodedFile, layout: TorchaoLayout) -> Kind:
    *front, half = layout.shape
    layout = _with_blocks(file, replace(layout, shape=(*front, 2 * half)))
    stated, group = layout.values.get("shape"), layout.blocks[1]
    if stated != list(layout.shape) or layout.blocks[0] != 1:
        given = f"shape {stated!r:.80} and blocks of {list(layout.blocks)}"
        raise _bad_header(file, layout, given, f"{list(layout.shape)} and blocks of one row")
    file.require(f"{layout.start}qdata", (*front, half), "int8", "uint8")
    outputs, inputs = layout.matrix
    for part in ("scale", "zero_point"):
        file.require(layout.start + part, (*front[:-1], inputs // group, outputs))
    return f"4-bit, groups of {group}", layout, _read_int4


def _read_int4(layout: TorchaoLayout, parts: Parts) -> Weights:
    stored = parts.read(f"{layout.start}qdata")
    scales, zeros = (parts.rows(layout.start + part, transposed=True) for part in ("scale", "zero_point"))

    def decode(rows: slice, out: Weights) -> None:
        out[:] = signed(unpack(stored[rows], 4, out.shape[1]), 4)
        view = out.reshape(len(out), -1, layout.blocks[1])
        view *= scales[rows][:, :, None]
        view += zeros[rows][:, :, None]

    return by_rows(layout.matrix, decode)


def _micro(file: CodedFile, layout: TorchaoLayout) -> Kind:
    nvfp4, codes = layout.kind == "NVFP4Tensor", f"{layout.start}qdata"
    element = "float4_e2m1fn_x2" if nvfp4 else layout.stated_type("elem_dtype")
    if element not in ELEMENTS:
        raise file.error(
            f"{codes} has elements of {element!r:.80}, which is not supported (expected "
            f"{', '.join(ELEMENTS)}); use the original weights"
        )
    packed = element.endswith("x2")
    stated, group = layout.values.get("block_size"), NVFP4 if nvfp4 else MX
    shape = (*layout.shape[:-1], layout.shape[-1] * (1 + packed))
    if stated != group or shape[-1] % group:
        where = f" with {shape[-1]} inputs"
        raise _bad_header(file, layout, f"block_size {stated!r:.80}", f"whole groups of {group}", where)
    layout = replace(layout, shape=shape, blocks=(1, group))
    file.require(codes, file.shapes[codes], "uint8" if packed else element)
    scale_shape = layout.scale_shape
    if _is_swizzled(layout):
        rows, groups = prod(scale_shape[:-1]), scale_shape[-1]
        scale_shape = 32 * -(-rows // 128), 16 * -(-groups // 4)
    file.require(f"{layout.start}scale", scale_shape, "float8_e4m3fn" if nvfp4 else "float8_e8m0fnu", "uint8")
    name = f"{layout.start}per_tensor_scale"
    if "per_tensor_scale" in layout.parts and (prod(file.shapes[name]) != 1 or not file.is_floating(name)):
        raise file.bad_part(name, "one number")
    return f"{'NVFP4' if nvfp4 else ELEMENTS[element]}, groups of {group}", layout, _read_micro


def _is_swizzled(layout: TorchaoLayout) -> bool:
    return layout.values.get("is_swizzled_scales") is True


def _read_micro(layout: TorchaoLayout, parts: Parts) -> Weights:
    stored, name = parts.read(f"{layout.start}qdata"), f"{layout.start}scale"
    swizzled = _is_swizzled(layout)
    whole = Parts(parts.tensors) if swizzled else parts
    scales = whole.rows(name, from_e4m3 if layout.kind == "NVFP4Tensor" else exponents)
    if swizzled:
        outputs = layout.shape[-2]
        start = outputs * (parts.member or 0)
        scales = replace(scales, stored=_unswizzled(layout, scales.stored)[start : start + outputs])
    second = np.ones((), np.float32)
    if "per_tensor_scale" in layout.parts:
        second = parts.numbers(f"{layout.start}per_tensor_scale", shared=True).reshape(())

    def decode(rows: slice, out: Weights) -> None:
        if stored.dtype == np.uint8:
            from_float4(stored[rows], out)
        else:
            out[:] = from_float8(stored[rows])
        scale_groups(out, scales[rows] * second, layout.blocks[1])

    return by_rows(layout.matrix, decode)


def _unswizzled(layout: TorchaoLayout, stored: NDArray[Any]) -> NDArray[Any]:
    """Return the scales (rows, groups) of all matrices from their tiles."""
    rows, columns = stored.shape[0] // 32, stored.shape[1] // 16
    tiles = stored.reshape(rows, columns, 32, 4, 4).transpose(0, 3, 2, 1, 4)
    padded = tiles.reshape(128 * rows, 4 * columns)
    return padded[: prod(layout.scale_shape[:-1]), : layout.scale_shape[-1]]


CLASSES: dict[str, Callable[[CodedFile, TorchaoLayout], Kind]] = {
    "Int8Tensor": _numbers,
    "IntxUnpackedToInt8Tensor": _numbers,
    "Float8Tensor": _numbers,
    "Int4Tensor": _int4,
    "NVFP4Tensor": _micro,
    "MXTensor": _micro,
}
