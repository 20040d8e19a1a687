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
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.config import Config
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
from attnlaw.checkpoints.quantization.record import (
    DAMAGED,
    CodedWeight,
    Parts,
    bad_part,
    is_floating,
    require_part,
)
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import as_input_error

PLAIN = "Tensor"  # the class of weights that are stored as usual
# The scales of activations say nothing about weights.
ACTIVATIONS = ("act_quant_scale", "act_quant_zero_point", "act_per_tensor_scale")
COLUMNS = "act_pre_scale"
NVFP4, MX = 16, 32  # inputs that share a scale
ELEMENTS = {"float8_e4m3fn": "MXFP8", "float8_e5m2": "MXFP8", "float4_e2m1fn_x2": "MXFP4"}
INTEGERS = ("int8", "int16", "int32", "int64")


@dataclass(frozen=True)
class TorchaoLayout:
    """The storage of one weight of torchao's class `kind`.

    All names of `parts` begin with `start`. `blocks` are the numbers of rows and inputs that share a scale.
    """

    kind: str
    start: str
    shape: tuple[int, ...]
    blocks: tuple[int, int]
    parts: tuple[str, ...]
    swizzled: bool = False

    @property
    def matrix(self) -> tuple[int, int]:
        return self.shape[-2], self.shape[-1]

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """The shape of the scales, assuming that they are not swizzled."""
        groups = (self.shape[-2] // self.blocks[0], self.shape[-1] // self.blocks[1])
        return *self.shape[:-2], *groups


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that torchao coded and flattened."""
    if "tensor_names" not in tensors.texts:
        return
    what = f"{tensors.source}: the header has no valid JSON that describes the tensors of torchao"
    for name, text in tensors.texts.items():
        if "_tensor_data_names" in text:
            with as_input_error(what, DAMAGED, ValueError, RecursionError, with_reason=False):
                stated = json.loads(text)
            if isinstance(stated, dict) and stated.get("_type") != PLAIN:
                yield _coded(tensors, name, stated)


def _coded(tensors: Tensors, name: str, stated: Mapping[str, Any]) -> CodedWeight:
    kind, values, parts = stated.get("_type"), stated.get("_data"), stated.get("_tensor_data_names")
    if not isinstance(kind, str) or kind not in CLASSES:
        raise tensors.error(
            f"{name} is stored as torchao's {kind!r:.80}, which is not supported (expected "
            f"{', '.join(CLASSES)}); use the original weights"
        )
    names = [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []
    if not isinstance(values, dict) or names != parts or {"qdata", "scale"} - set(names):
        raise tensors.error(f"the header does not list the sizes and parts of {name}, a {kind}; {DAMAGED}")
    module, _, last = name.rpartition(".")
    start = f"{module}{'.' if module else ''}_{last}_"
    for part in names:
        if start + part not in tensors.shapes:
            raise tensors.error(
                f"found no tensor {start}{part}, expected it because the header lists it as a part of "
                f"{name}; {DAMAGED}"
            )
    shape = tensors.shapes[f"{start}qdata"]
    if len(shape) not in (2, 3) or 0 in shape:
        raise bad_part(tensors, f"{start}qdata", "a matrix, or a stack of matrices")
    label, layout, decode = CLASSES[kind](
        tensors, TorchaoLayout(kind, start, shape, (1, 1), tuple(names)), values
    )
    _require_known_parts(tensors, layout)
    return CodedWeight(
        name=name,
        shape=layout.shape,
        parts=tuple(start + part for part in names),
        label=f"torchao {label}",
        decode=partial(_decode, layout, decode),
    )


KNOWN_PARTS = {"qdata", "scale", "zero_point", "per_tensor_scale", COLUMNS, *ACTIVATIONS}


def _require_known_parts(tensors: Tensors, layout: TorchaoLayout) -> None:
    for part in layout.parts:
        if part not in KNOWN_PARTS or (part == "per_tensor_scale") > (layout.kind == "NVFP4Tensor"):
            raise tensors.error(
                f"tensor {layout.start}{part} is a part of a {layout.kind}, expected "
                f"{', '.join(sorted(KNOWN_PARTS))}; use the original weights"
            )
    if COLUMNS in layout.parts:
        name = layout.start + COLUMNS
        shape = tensors.shapes[name]
        if shape not in ((layout.shape[-1],), (1, layout.shape[-1])) or not is_floating(tensors, name):
            raise bad_part(tensors, name, f"one number for each of {layout.shape[-1]} inputs")


Reader = Callable[[TorchaoLayout, Parts], Weights]
Kind = tuple[str, TorchaoLayout, Reader]


def _decode(layout: TorchaoLayout, decode: Reader, parts: Parts) -> Weights:
    matrix = decode(layout, parts)
    if COLUMNS in layout.parts:
        matrix *= parts.numbers(layout.start + COLUMNS, shared=True).reshape(1, -1)
    return matrix


def _with_blocks(tensors: Tensors, layout: TorchaoLayout, values: Mapping[str, Any]) -> TorchaoLayout:
    """Return the layout with the blocks that the header states, which must divide the weight exactly."""
    stated, shape = values.get("block_size"), layout.shape
    whole = isinstance(stated, list) and all(type(size) is int and size > 0 for size in stated)
    if isinstance(stated, list) and whole and len(stated) == len(shape):
        *front, rows, inputs = stated
        if set(front) <= {1} and shape[-2] % rows == 0 and shape[-1] % inputs == 0:
            return TorchaoLayout(layout.kind, layout.start, shape, (rows, inputs), layout.parts)
    raise tensors.error(
        f"the file's header gives block_size {stated!r:.80} for {layout.start}qdata, expected sizes that "
        f"divide {list(shape)}; {DAMAGED}"
    )


def _require_scale(tensors: Tensors, layout: TorchaoLayout, part: str, *dtypes: str) -> None:
    """Raise an `InputError` if the scales or the zero points do not have the shape that the blocks give."""
    name, shape = layout.start + part, layout.scale_shape
    if prod(shape) == 1 and tensors.shapes[name] in ((), (1,)):
        shape = tensors.shapes[name]
    require_part(tensors, name, shape, *dtypes, because=f" for blocks of {list(layout.blocks)}")


def _grouping(layout: TorchaoLayout) -> str:
    rows, inputs = layout.blocks
    if layout.blocks == layout.matrix:
        return "one scale"
    if inputs == layout.shape[-1] and rows == 1:
        return "rows"
    return f"groups of {inputs}" if rows == 1 else f"blocks of {rows} x {inputs}"


def _numbers(tensors: Tensors, layout: TorchaoLayout, values: Mapping[str, Any]) -> Kind:
    """Read the classes that store one number an entry."""
    layout = _with_blocks(tensors, layout, values)
    float8 = layout.kind == "Float8Tensor"
    dtypes = ("float8_e4m3fn", "float8_e5m2") if float8 else ("int8",)
    require_part(tensors, f"{layout.start}qdata", layout.shape, *dtypes)
    _require_scale(tensors, layout, "scale")
    if "zero_point" in layout.parts:
        floating = is_floating(tensors, f"{layout.start}zero_point")
        _require_scale(tensors, layout, "zero_point", *(() if floating else INTEGERS))
    elif layout.kind == "IntxUnpackedToInt8Tensor":
        raise tensors.error(f"the header lists no {layout.start}zero_point; {DAMAGED}")
    bits = 8
    if layout.kind == "IntxUnpackedToInt8Tensor":
        target = values.get("target_dtype")
        name = str(target.get("_data") if isinstance(target, dict) else target)
        bits = int(name[3:]) if name in {f"int{width}" for width in range(1, 9)} else 0
        if not bits:
            raise tensors.error(
                f"the file's header gives target_dtype {name!r:.80} for {layout.start}qdata, expected int1 "
                f"to int8; {DAMAGED}"
            )
    return f"{'float8' if float8 else f'{bits}-bit'}, {_grouping(layout)}", layout, _read_numbers


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


def _int4(tensors: Tensors, layout: TorchaoLayout, values: Mapping[str, Any]) -> Kind:
    """Read Int4Tensor."""
    *front, half = layout.shape
    layout = TorchaoLayout(layout.kind, layout.start, (*front, 2 * half), (1, 1), layout.parts)
    layout = _with_blocks(tensors, layout, values)
    stated, group = values.get("shape"), layout.blocks[1]
    if stated != list(layout.shape) or layout.blocks[0] != 1:
        raise tensors.error(
            f"the file's header gives shape {stated!r:.80} and blocks of {list(layout.blocks)} for "
            f"{layout.start}qdata, expected {list(layout.shape)} and blocks of one row; {DAMAGED}"
        )
    require_part(tensors, f"{layout.start}qdata", (*layout.shape[:-1], half), "int8", "uint8")
    outputs, inputs = layout.matrix
    for part in ("scale", "zero_point"):
        require_part(tensors, layout.start + part, (*front[:-1], inputs // group, outputs))
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


def _micro(tensors: Tensors, layout: TorchaoLayout, values: Mapping[str, Any]) -> Kind:
    """Read NVFP4Tensor and MXTensor: small floats with a scale for each group of inputs."""
    nvfp4 = layout.kind == "NVFP4Tensor"
    element = "float4_e2m1fn_x2" if nvfp4 else _element(values.get("elem_dtype"))
    if element not in ELEMENTS:
        raise tensors.error(
            f"{layout.start}qdata has elements of {element!r:.80}, which is not supported (expected "
            f"{', '.join(ELEMENTS)}); use the original weights"
        )
    packed = element.endswith("x2")
    stated, group = values.get("block_size"), NVFP4 if nvfp4 else MX
    shape = (*layout.shape[:-1], layout.shape[-1] * (1 + packed))
    if stated != group or shape[-1] % group:
        raise tensors.error(
            f"the file's header gives block_size {stated!r:.80} for {layout.start}qdata with {shape[-1]} "
            f"inputs, expected whole groups of {group}; {DAMAGED}"
        )
    swizzled = values.get("is_swizzled_scales", False)
    layout = TorchaoLayout(layout.kind, layout.start, shape, (1, group), layout.parts, swizzled is True)
    require_part(tensors, f"{layout.start}qdata", tensors.shapes[f"{layout.start}qdata"], *_stored(element))
    scale_shape = _tiles(layout) if layout.swizzled else layout.scale_shape
    kinds = ("float8_e4m3fn", "uint8") if nvfp4 else ("float8_e8m0fnu", "uint8")
    require_part(tensors, f"{layout.start}scale", scale_shape, *kinds)
    name = f"{layout.start}per_tensor_scale"
    if "per_tensor_scale" in layout.parts and (
        prod(tensors.shapes[name]) != 1 or not is_floating(tensors, name)
    ):
        raise bad_part(tensors, name, "one number")
    label = "NVFP4" if nvfp4 else ELEMENTS[element]
    return f"{label}, groups of {group}", layout, _read_micro


def _element(stated: Any) -> str:
    return str(stated.get("_data") if isinstance(stated, dict) else stated)


def _stored(element: str) -> tuple[str, ...]:
    return ("uint8",) if element.endswith("x2") else (element,)


def _tiles(layout: TorchaoLayout) -> tuple[int, int]:
    """Return the shape of swizzled scales."""
    rows, groups = prod(layout.scale_shape[:-1]), layout.scale_shape[-1]
    return 32 * -(-rows // 128), 16 * -(-groups // 4)


def _read_micro(layout: TorchaoLayout, parts: Parts) -> Weights:
    stored, name = parts.read(f"{layout.start}qdata"), f"{layout.start}scale"
    nvfp4 = layout.kind == "NVFP4Tensor"
    whole = Parts(parts.tensors) if layout.swizzled else parts
    scales = whole.rows(name, from_e4m3 if nvfp4 else exponents)
    if layout.swizzled:
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


CLASSES: dict[str, Callable[[Tensors, TorchaoLayout, Mapping[str, Any]], Kind]] = {
    "Int8Tensor": _numbers,
    "IntxUnpackedToInt8Tensor": _numbers,
    "Float8Tensor": _numbers,
    "Int4Tensor": _int4,
    "NVFP4Tensor": _micro,
    "MXTensor": _micro,
}
