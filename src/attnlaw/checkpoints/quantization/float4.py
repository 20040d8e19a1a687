"""4-bit floats (e2m1), two in each byte, with a scale for 16 inputs (NVFP4) or 32 inputs (MXFP4).

| writer | codes | scales | W |
|---|---|---|---|
| compressed-tensors, NVFP4 | `X_packed` uint8 | `X_scale` e4m3, `X_global_scale` | value (scale / global) |
| ModelOpt, NVFP4 | `X` uint8 | `X_scale` e4m3, `X_scale_2` | value (scale scale_2) |
| compressed-tensors, MXFP4 | `X_packed` uint8 | `X_scale` e8m0 | value scale |
| Quark, ModelOpt, MXFP4 | `X` uint8 | `X_scale` e8m0 | value scale |
| DeepSeek-V4, experts | `X` int8 | `B.scale` e8m0 | value scale |
| gpt-oss | `X_blocks` uint8 (..., 16) | `X_scales` e8m0 | value scale, transposed |

`B` is the name of a weight without its last word. An e8m0 scale is the exponent of a power of two in a byte,
which many files store as uint8. Stacks of experts have one more axis in front.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.packing import (
    Weights,
    by_rows,
    exponents,
    from_float4,
    from_float8,
    scale_groups,
)
from attnlaw.checkpoints.quantization.record import CodedWeight, Parts, bad_part, names_with, require_part
from attnlaw.checkpoints.tensors import Tensors

NVFP4, MXFP4 = 16, 32  # inputs that share a scale
E4M3, EXPONENTS = "float8_e4m3fn", ("uint8", "float8_e8m0fnu")


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are stored in 4-bit floats."""
    for codes, name in names_with(tensors, "_packed"):
        if tensors.dtype(codes) == "uint8":
            yield _packed(tensors, name)
    for codes, name in names_with(tensors, "_blocks"):
        if tensors.dtype(codes) == "uint8" and f"{name}_scales" in tensors.shapes:
            yield _blocks(tensors, name)
    for name, shape in tensors.shapes.items():
        if len(shape) in (2, 3) and tensors.dtype(name) in ("uint8", "int8"):
            weight = _plain(tensors, name)
            if weight is not None:
                yield weight


def _packed(tensors: Tensors, name: str) -> CodedWeight:
    """Return a weight of compressed-tensors."""
    codes, scale, whole = f"{name}_packed", f"{name}_scale", f"{name}_global_scale"
    *stack, rows, columns = tensors.shapes[codes] if len(tensors.shapes[codes]) in (2, 3) else (0, 0)
    scales = tensors.shapes.get(scale, (0,))[-1:]
    inputs = 2 * columns
    if 24 * sum(scales) == columns > 0 and tensors.dtype(scale) in EXPONENTS:
        raise tensors.error(
            f"tensor {codes} has 6-bit floats (MXFP6), which attnlaw does not read; use the original weights"
        )
    if whole in tensors.shapes:
        require_part(tensors, scale, (*stack, rows, inputs // NVFP4), E4M3)
        require_part(tensors, whole, (*stack, 1))
        size = NVFP4
    else:
        _refuse_e5m3(tensors, scale, inputs)
        _refuse_missing(tensors, scale, whole)
        require_part(tensors, scale, (*stack, rows, inputs // MXFP4), *EXPONENTS)
        size = MXFP4
    if not inputs or inputs % size:
        raise bad_part(tensors, codes, f"rows of whole groups of {size} inputs")
    parts = (codes, scale, whole) if size == NVFP4 else (codes, scale)
    return _coded(name, (*stack, rows, inputs), parts, size, divides=True)


def _refuse_e5m3(tensors: Tensors, scale: str, inputs: int) -> None:
    shape = tensors.shapes.get(scale, ())
    if shape and tensors.dtype(scale) == "uint8" and NVFP4 * shape[-1] == inputs:
        raise tensors.error(
            f"tensor {scale} has AutoRound's scales of 5 bits of exponent (e5m3), which attnlaw does not "
            "read; use the original weights"
        )


def _refuse_missing(tensors: Tensors, scale: str, whole: str) -> None:
    """Raise an `InputError` if the scales are those of NVFP4, whose second scale is missing."""
    if scale in tensors.shapes and tensors.dtype(scale) == E4M3:
        raise tensors.error(
            f"found no tensor {whole}, the second scale of NVFP4 next to {scale}; download the file again, "
            "or use the original weights"
        )


def _plain(tensors: Tensors, name: str) -> CodedWeight | None:
    """Return the weight whose codes have its plain name, or None if they are not 4-bit floats."""
    *stack, rows, columns = tensors.shapes[name]
    inputs, second = 2 * columns, f"{name}_scale_2"
    for scale in (f"{name}_scale", f"{name}_scale_inv", f"{name.rpartition('.')[0]}.scale"):
        shape, dtype = tensors.shapes.get(scale, ()), tensors.dtype(scale) if scale in tensors.shapes else ""
        if shape[:-1] != (*stack, rows) or not columns:
            continue
        if dtype == E4M3 and NVFP4 * shape[-1] == inputs:
            _refuse_missing(tensors, scale, second) if second not in tensors.shapes else None
            scalar = (*stack, 1) if len(tensors.shapes[second]) > len(stack) else (*stack,)
            require_part(tensors, second, scalar)
            return _coded(name, (*stack, rows, inputs), (name, scale, second), NVFP4, divides=False)
        if dtype in EXPONENTS and MXFP4 * shape[-1] == inputs:
            return _coded(name, (*stack, rows, inputs), (name, scale), MXFP4, divides=False)
        if tensors.dtype(name) == "uint8":
            _refuse_e5m3(tensors, scale, inputs)
    return None


def _coded(
    name: str, shape: tuple[int, ...], parts: tuple[str, ...], size: int, divides: bool
) -> CodedWeight:
    label = f"{'NVFP4' if size == NVFP4 else 'MXFP4'}, groups of {size}"
    decode = partial(_decode, parts, (shape[-2], shape[-1]), size, divides)
    return CodedWeight(name, shape, parts, label, decode)


def _decode(
    names: tuple[str, ...], shape: tuple[int, int], size: int, divides: bool, parts: Parts
) -> Weights:
    codes = parts.read(names[0])
    whole = parts.numbers(names[2]).reshape(()) if size == NVFP4 else None

    def convert(stored: NDArray[Any]) -> Weights:
        if whole is None:
            return exponents(stored)
        with np.errstate(all="ignore"):  # what is not finite is an error
            return from_float8(stored) / whole if divides else from_float8(stored) * whole

    scales = parts.rows(names[1], convert)

    def decode(rows: slice, out: Weights) -> None:
        from_float4(codes[rows], out)
        scale_groups(out, scales[rows], size)

    return by_rows(shape, decode)


def _blocks(tensors: Tensors, name: str) -> CodedWeight:
    """Return a stack of gpt-oss, which the model stores transposed: (experts, inputs, outputs)."""
    codes, scales = f"{name}_blocks", f"{name}_scales"
    shape = tensors.shapes[codes]
    if len(shape) != 4 or shape[-1] != MXFP4 // 2 or 0 in shape:
        raise bad_part(tensors, codes, "uint8 of shape [experts, outputs, inputs / 32, 16]")
    experts, outputs, groups, _ = shape
    require_part(tensors, scales, (experts, outputs, groups), *EXPONENTS)
    decode = partial(_decode_transposed, (codes, scales), (outputs, groups * MXFP4))
    label = f"MXFP4, groups of {MXFP4}"
    return CodedWeight(name, (experts, groups * MXFP4, outputs), (codes, scales), label, decode)


def _decode_transposed(names: tuple[str, str], shape: tuple[int, int], parts: Parts) -> Weights:
    codes = parts.read(names[0]).reshape(shape[0], shape[1] // 2)
    scales = parts.rows(names[1], exponents)

    def decode(rows: slice, out: Weights) -> None:
        from_float4(codes[rows], out)
        scale_groups(out, scales[rows], MXFP4)

    return by_rows(shape, decode).T
