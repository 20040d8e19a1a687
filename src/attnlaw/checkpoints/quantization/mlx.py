"""MLX: `X.weight` is a stream of codes in uint32 words along the rows, and groups of inputs share a scale.

| mode | bits | `scales`, for groups of | `biases` | W |
|---|---|---|---|---|
| affine | 2, 3, 4, 5, 6, 8 | floats, 64 unless stated | floats | s q + bias |
| mxfp4 | 4 | e8m0 bytes, 32 | none | e2m1 value of q, times s |
| nvfp4 | 4 | e4m3 bytes, 16 | none | e2m1 value of q, times s |
| mxfp8 | 8 | e8m0 bytes, 32 | none | e4m3 value of q, times s |

Words do not show how wide a code is, so the table `quantization` of config.json is needed. It has an entry
for each module that differs from the others. Such an entry inherits nothing: what it leaves out has the value
that MLX gives it. Stacked experts have one more axis in front.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnlaw.checkpoints.quantization.packing import (
    FLOAT8,
    Weights,
    by_rows,
    cut_groups,
    exponents,
    from_e4m3,
    from_float4,
    scale_groups,
    unpack,
)
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts, as_float32
from attnlaw.core.errors import InputError

AFFINE, NVFP4, E4M3 = "affine", "nvfp4", "float8_e4m3fn"
WIDTHS = (2, 3, 4, 5, 6, 8)
# The bits and the size of groups that each mode has unless the config states others, and how scales are read.
MODES = {
    AFFINE: (4, 64, as_float32),
    "mxfp4": (4, 32, exponents),
    NVFP4: (4, 16, from_e4m3),
    "mxfp8": (8, 32, exponents),
}


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that MLX coded."""
    if isinstance(file.config.values.get("quantization"), Mapping):
        for scales, base in file.names_with(".scales"):
            if f"{base}.weight" not in file.shapes:
                raise file.error(f"found no tensor {base}.weight next to {scales}; {DAMAGED}")
    for name, base in file.names_with(".weight"):
        if file.dtype(name) == "uint32" and f"{base}.scales" in file.shapes:
            yield _coded(file, base)


def _coded(file: CodedFile, base: str) -> CodedWeight:
    name, scales, biases = (f"{base}.{part}" for part in ("weight", "scales", "biases"))
    mode, bits, size = _layout(file, base)
    affine, source = mode == AFFINE, file.config.source
    *rows, words = file.shapes[name]
    groups = file.shapes[scales][-1] if file.shapes[scales] else 0
    inputs = groups * size
    if len(rows) not in (1, 2) or not inputs or 32 * words != bits * inputs:
        raise file.error(
            f"tensor {name} has shape {list(file.shapes[name])} and its scales {list(file.shapes[scales])}, "
            f"expected {inputs * bits / 32:g} integers in a row for {bits} bits and groups of {size}, which "
            f"{source} states; restore the config of the model"
        )
    file.require(scales, (*rows, groups), *([] if affine else ["uint8"]))
    if affine:
        file.require(biases, (*rows, groups))
    elif biases in file.shapes:
        raise file.error(
            f"tensor {biases} does not fit the mode {mode} that {source} states; restore the config of the "
            "model"
        )

    def decode(parts: Parts) -> Weights:
        codes, factors = parts.read(name), parts.rows(scales, MODES[mode][2])
        offsets = parts.rows(biases) if affine else None

        def fill(at: slice, out: Weights) -> None:
            if affine:
                out[:] = unpack(codes[at], bits, inputs)
            elif bits == 4:
                from_float4(codes[at], out)
            else:
                np.take(FLOAT8[E4M3], codes[at].view(np.uint8), out=out, mode="clip")
            scale_groups(out, factors[at], size)
            if offsets is not None:
                added = offsets[at]
                for view, part in cut_groups(out, size):
                    view += added[:, part, None]

        return by_rows((rows[-1], inputs), fill)

    parts = (name, scales, biases) if affine else (name, scales)
    code = f"MLX {bits}-bit" if affine else f"MLX {mode.upper()}"
    return CodedWeight(name, (*rows, inputs), parts, f"{code}, groups of {size}", decode)


def _layout(file: CodedFile, base: str) -> tuple[str, int, int]:
    """Return the mode, the bits and the size of groups that the config states for a module or for all."""
    values, source = file.config.values, file.config.source
    table = values.get("quantization", values.get("quantization_config"))
    stated = table.get(base, table) if isinstance(table, Mapping) else None
    if not isinstance(stated, Mapping) or stated.keys().isdisjoint(("bits", "group_size", "mode")):
        raise file.error(
            f"tensor {base}.weight is quantised by MLX, but {source} has no entry quantization with bits and "
            "group_size; restore the config.json of the model"
        )
    place = f"{source}: quantization" if stated is table else f"{source}: quantization of {base}"
    mode: Any = stated.get("mode", AFFINE)
    if not isinstance(mode, str) or mode not in MODES:
        raise InputError(
            f"{place}: mode is {mode!r:.80}, expected one of {', '.join(MODES)}; use the original weights"
        )
    usual_bits, usual_size, _ = MODES[mode]
    bits, size = stated.get("bits", usual_bits), stated.get("group_size", usual_size)
    widths = WIDTHS if mode == AFFINE else (usual_bits,)
    if type(bits) is not int or type(size) is not int or bits not in widths or size < 1:
        raise InputError(
            f"{place}: bits {bits!r:.40} and group_size {size!r:.40}, expected one of "
            f"{', '.join(map(str, widths))} bits and a positive group_size (mode {mode}); correct the file"
        )
    return mode, bits, size
