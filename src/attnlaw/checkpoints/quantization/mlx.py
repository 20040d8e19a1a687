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
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attnlaw.checkpoints.config import Config
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
from attnlaw.checkpoints.quantization.record import (
    DAMAGED,
    CodedWeight,
    Parts,
    names_with,
    require_part,
)
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError

AFFINE, NVFP4, E4M3 = "affine", "nvfp4", "float8_e4m3fn"
WIDTHS = (2, 3, 4, 5, 6, 8)
# The bits and the size of groups that each mode has unless the config states others.
MODES = {AFFINE: (4, 64), "mxfp4": (4, 32), NVFP4: (4, 16), "mxfp8": (8, 32)}


@dataclass(frozen=True)
class MlxLayout:
    """The layout of the codes of a weight."""

    mode: str
    bits: int
    size: int


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that MLX coded."""
    if isinstance(config.values.get("quantization"), Mapping):
        for scales, base in names_with(tensors, ".scales"):
            if f"{base}.weight" not in tensors.shapes:
                raise tensors.error(f"found no tensor {base}.weight next to {scales}; {DAMAGED}")
    for name, base in names_with(tensors, ".weight"):
        if tensors.dtype(name) == "uint32" and f"{base}.scales" in tensors.shapes:
            yield _coded(tensors, config, base)


def _coded(tensors: Tensors, config: Config, base: str) -> CodedWeight:
    name, scales, biases = (f"{base}.{part}" for part in ("weight", "scales", "biases"))
    layout = _layout(tensors, config, base)
    *rows, words = tensors.shapes[name]
    groups = tensors.shapes[scales][-1] if tensors.shapes[scales] else 0
    inputs = groups * layout.size
    if len(rows) not in (1, 2) or not inputs or 32 * words != layout.bits * inputs:
        fitting = inputs * layout.bits / 32
        raise tensors.error(
            f"tensor {name} has shape {list(tensors.shapes[name])} and its scales "
            f"{list(tensors.shapes[scales])}, expected {fitting:g} integers in a row for {layout.bits} bits "
            f"and groups of {layout.size}, which {config.source} states; restore the config of the model"
        )
    affine = layout.mode == AFFINE
    require_part(tensors, scales, (*rows, groups), *([] if affine else ["uint8"]))
    if affine:
        require_part(tensors, biases, (*rows, groups))
    elif biases in tensors.shapes:
        raise tensors.error(
            f"tensor {biases} does not fit the mode {layout.mode} that {config.source} states; restore the "
            "config of the model"
        )
    code = f"MLX {layout.bits}-bit" if affine else f"MLX {layout.mode.upper()}"
    return CodedWeight(
        name=name,
        shape=(*rows, inputs),
        parts=(name, scales, *([biases] if affine else [])),
        label=f"{code}, groups of {layout.size}",
        decode=partial(_decode, base, layout, (rows[-1], inputs)),
    )


def _layout(tensors: Tensors, config: Config, base: str) -> MlxLayout:
    """Return the layout of a module, which the config states for it or for all modules."""
    table = config.values.get("quantization", config.values.get("quantization_config"))
    stated = table.get(base, table) if isinstance(table, Mapping) else None
    if not isinstance(stated, Mapping) or stated.keys().isdisjoint(("bits", "group_size", "mode")):
        raise tensors.error(
            f"tensor {base}.weight is quantised by MLX, but {config.source} has no entry quantization with "
            "bits and group_size; restore the config.json of the model"
        )
    place = f"{config.source}: quantization"
    return _stated_layout(stated, place if stated is table else f"{place} of {base}")


def _stated_layout(stated: Mapping[str, Any], place: str) -> MlxLayout:
    mode = stated.get("mode", AFFINE)
    if not isinstance(mode, str) or mode not in MODES:
        raise InputError(
            f"{place}: mode is {mode!r:.80}, expected one of {', '.join(MODES)}; use the original weights"
        )
    bits, size = MODES[mode]
    layout = MlxLayout(mode, stated.get("bits", bits), stated.get("group_size", size))
    widths = WIDTHS if mode == AFFINE else (bits,)
    whole = all(type(number) is int for number in (layout.bits, layout.size))
    if not whole or layout.bits not in widths or layout.size < 1:
        raise InputError(
            f"{place}: bits {layout.bits!r:.40} and group_size {layout.size!r:.40}, expected one of "
            f"{', '.join(map(str, widths))} bits and a positive group_size (mode {mode}); correct the file"
        )
    return layout


def _decode(base: str, layout: MlxLayout, shape: tuple[int, int], parts: Parts) -> Weights:
    words = parts.read(f"{base}.weight")
    if layout.mode == AFFINE:
        scales, biases = parts.rows(f"{base}.scales"), parts.rows(f"{base}.biases")
    elif layout.mode == NVFP4:
        scales, biases = parts.rows(f"{base}.scales", from_e4m3), None
    else:
        scales, biases = parts.rows(f"{base}.scales", exponents), None

    def decode(rows: slice, out: Weights) -> None:
        if layout.mode == AFFINE:
            out[:] = unpack(words[rows], layout.bits, shape[1])
        elif layout.bits == 4:
            from_float4(words[rows], out)
        else:
            np.take(FLOAT8[E4M3], words[rows].view(np.uint8), out=out, mode="clip")
        scale_groups(out, scales[rows], layout.size)
        if biases is not None:
            added = biases[rows]
            for view, groups in cut_groups(out, layout.size):
                view += added[:, groups, None]

    return by_rows(shape, decode)
