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

from attnlaw.checkpoints.quantization.packing import (
    Weights,
    by_rows,
    exponents,
    from_float4,
    from_float8,
    scale_groups,
)
from attnlaw.checkpoints.quantization.record import CodedFile, CodedWeight, Parts

NVFP4, MXFP4 = 16, 32  # inputs that share a scale
E4M3, EXPONENTS = "float8_e4m3fn", ("uint8", "float8_e8m0fnu")


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are stored in 4-bit floats."""
    for codes, name in file.names_with("_packed"):
        if file.dtype(codes) == "uint8":
            yield _packed(file, name)
    for codes, name in file.names_with("_blocks"):
        if file.dtype(codes) == "uint8" and f"{name}_scales" in file.shapes:
            yield _blocks(file, name)
    for name, shape in file.shapes.items():
        if len(shape) in (2, 3) and file.dtype(name) in ("uint8", "int8"):
            weight = _plain(file, name)
            if weight is not None:
                yield weight


def _packed(file: CodedFile, name: str) -> CodedWeight:
    codes, scale, whole = f"{name}_packed", f"{name}_scale", f"{name}_global_scale"
    *stack, rows, columns = file.shapes[codes] if len(file.shapes[codes]) in (2, 3) else (0, 0)
    inputs, size = 2 * columns, NVFP4 if whole in file.shapes else MXFP4
    if 24 * sum(file.shape(scale)[-1:]) == columns > 0 and file.dtype(scale) in EXPONENTS:
        raise file.error(
            f"tensor {codes} has 6-bit floats (MXFP6), which attnlaw does not read; use the original weights"
        )
    if size == NVFP4:
        file.require(scale, (*stack, rows, inputs // NVFP4), E4M3)
        file.require(whole, (*stack, 1))
    else:
        _refuse_e5m3(file, scale, inputs)
        _refuse_missing(file, scale, whole)
        file.require(scale, (*stack, rows, inputs // MXFP4), *EXPONENTS)
    if not inputs or inputs % size:
        raise file.bad_part(codes, f"rows of whole groups of {size} inputs")
    parts = (codes, scale, whole) if size == NVFP4 else (codes, scale)
    return _coded(name, (*stack, rows, inputs), parts, divides=True)


def _refuse_e5m3(file: CodedFile, scale: str, inputs: int) -> None:
    shape = file.shape(scale)
    if shape and file.dtype(scale) == "uint8" and NVFP4 * shape[-1] == inputs:
        raise file.error(
            f"tensor {scale} has AutoRound's scales of 5 bits of exponent (e5m3), which attnlaw does not "
            "read; use the original weights"
        )


def _refuse_missing(file: CodedFile, scale: str, whole: str) -> None:
    if scale in file.shapes and file.dtype(scale) == E4M3:
        raise file.error(
            f"found no tensor {whole}, the second scale of NVFP4 next to {scale}; download the file again, "
            "or use the original weights"
        )


def _plain(file: CodedFile, name: str) -> CodedWeight | None:
    """Return the weight whose codes have its plain name, or None if they are not 4-bit floats."""
    *stack, rows, columns = file.shapes[name]
    inputs, second = 2 * columns, f"{name}_scale_2"
    for scale in (f"{name}_scale", f"{name}_scale_inv", f"{name.rpartition('.')[0]}.scale"):
        shape, dtype = file.shape(scale), file.dtype(scale) if scale in file.shapes else ""
        if shape[:-1] != (*stack, rows) or not columns:
            continue
        if dtype == E4M3 and NVFP4 * shape[-1] == inputs:
            if second not in file.shapes:
                _refuse_missing(file, scale, second)
            file.require(second, (*stack, 1) if len(file.shapes[second]) > len(stack) else stack)
            return _coded(name, (*stack, rows, inputs), (name, scale, second), divides=False)
        if dtype in EXPONENTS and MXFP4 * shape[-1] == inputs:
            return _coded(name, (*stack, rows, inputs), (name, scale), divides=False)
        if file.dtype(name) == "uint8":
            _refuse_e5m3(file, scale, inputs)
    return None


def _blocks(file: CodedFile, name: str) -> CodedWeight:
    """Return a stack of gpt-oss, which the model stores transposed: (experts, inputs, outputs)."""
    codes, scales = parts = f"{name}_blocks", f"{name}_scales"
    shape = file.shapes[codes]
    if len(shape) != 4 or shape[-1] != MXFP4 // 2 or 0 in shape:
        raise file.bad_part(codes, "uint8 of shape [experts, outputs, inputs / 32, 16]")
    experts, outputs, groups, _ = shape
    file.require(scales, (experts, outputs, groups), *EXPONENTS)
    decode = partial(_decode, parts, (outputs, groups * MXFP4), False)

    def transposed(stored: Parts) -> Weights:
        return decode(stored).T

    label = f"MXFP4, groups of {MXFP4}"
    return CodedWeight(name, (experts, groups * MXFP4, outputs), parts, label, transposed)


def _coded(name: str, shape: tuple[int, ...], parts: tuple[str, ...], divides: bool) -> CodedWeight:
    label = f"NVFP4, groups of {NVFP4}" if len(parts) == 3 else f"MXFP4, groups of {MXFP4}"
    return CodedWeight(name, shape, parts, label, partial(_decode, parts, (shape[-2], shape[-1]), divides))


def _decode(names: tuple[str, ...], shape: tuple[int, int], divides: bool, parts: Parts) -> Weights:
    codes = parts.read(names[0]).reshape(shape[0], shape[1] // 2)
    whole = parts.numbers(names[2]).reshape(()) if len(names) == 3 else None

    def convert(stored: NDArray[Any]) -> Weights:
        if whole is None:
            return exponents(stored)
        with np.errstate(all="ignore"):  # what is not finite is an error
            return from_float8(stored) / whole if divides else from_float8(stored) * whole

    scales = parts.rows(names[1], convert)

    def decode(rows: slice, out: Weights) -> None:
        from_float4(codes[rows], out)
        scale_groups(out, scales[rows], MXFP4 if whole is None else NVFP4)

    return by_rows(shape, decode)
