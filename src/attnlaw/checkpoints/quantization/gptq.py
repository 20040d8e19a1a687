"""GPTQ: `qweight` is packed down the columns, `qzeros` along the rows, and groups of inputs share a scale.

| tensor | dtype | shape |
|---|---|---|
| `qweight` | int32 | (inputs b / 32, outputs), b bits |
| `qzeros` | int32 | (groups, outputs b / 32) |
| `scales` | float | (groups, outputs) |
| `g_idx` | int32 | (inputs), the group of each input; may be absent |

W[o, i] = s[g, o] (q[i, o] - z[g, o]), where g is `g_idx[i]`, or i // group size without it.

The format `gptq` (v1) stores z - 1, subtracted from whole words; `gptq_v2` and `gptq_p` store z. Some
published files name the wrong one, so the zero points themselves are believed if all of them are the middle
of the range. `gptq_p`, and all 5, 6 and 7 bits, store 32 codes in b words as *planes*: first the lowest bits
of all codes, then the next ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.quantization import awq
from attnlaw.checkpoints.quantization.packing import Codes, Weights, affine, by_rows, unpack
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts, group_order
from attnlaw.core.errors import InputError

V1, V2, PLANES = "gptq", "gptq_v2", "gptq_p"
FORMATS = {V1: V1, V2: V2, PLANES: PLANES, None: V1}
# AutoRound's names for the formats.
AUTOROUND = {"auto_round": V2, "auto_round:auto_gptq": V1, "auto_round:gptq": V1, "auto": V1, None: V1}
WIDTHS = (2, 3, 4, 5, 6, 7, 8)
MOST_MEAN = 0.7  # of q - z. It is 0 +- 0.11 if the format is right, and 1 away if not


@dataclass(frozen=True)
class GptqLayout:
    """The storage of one matrix, of shape (outputs, inputs).

    `base` is the name of the weight without its last part, and `ordered` says whether `g_idx` is stored.
    `format` and `symmetric` are what the config says, or None if it says nothing.
    """

    base: str
    shape: tuple[int, int]
    bits: int
    groups: int
    size: int
    format: str | None
    symmetric: bool | None
    ordered: bool

    @property
    def planes(self) -> bool:
        return self.format == PLANES or self.bits in (5, 6, 7)

    def unpack(self, words: NDArray[np.int32], count: int) -> Codes:
        """Return the first codes of rows of words."""
        if not self.planes:
            return unpack(words, self.bits, count)
        blocks = words.reshape(len(words), -1, self.bits)
        codes = np.zeros((*blocks.shape[:2], 32), np.uint8)
        low = 0
        for width in (width for width in (8, 4, 2, 1) if self.bits & width):
            codes |= unpack(blocks[..., low : low + width], width, 32) << np.uint8(low)
            low += width
        return codes.reshape(len(words), -1)[:, :count]


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are stored by GPTQ."""
    judged = False
    for name, base in file.names_with("qweight"):
        shape, scales = file.shapes[name], file.shape(f"{base}scales")
        if file.dtype(name) != "int32" or len(shape) != 2 or len(scales) != 2 or shape[1] != scales[1]:
            continue
        if awq.layout_of(file, base):
            continue
        if file.method == "awq":
            raise file.error(
                f"tensor {name} of shape {list(shape)} and scales of shape {list(scales)} are those of GPTQ, "
                f"but quant_method in {file.config.source} is awq; correct quant_method"
            )
        layout, remark = _layout(file, base)
        if not judged:  # one matrix is enough for a remark
            judged, remark = True, "; ".join(filter(None, (remark, _other_format(file, layout))))
        parts = ("qweight", "qzeros", "scales", *(["g_idx"] if layout.ordered else []))
        grouping = f"groups of {layout.size}" if layout.groups > 1 else "one group"
        unseen = f", zero points as {layout.format}" if layout.bits > 4 and layout.symmetric is False else ""
        yield CodedWeight(
            name=f"{base}weight",
            shape=layout.shape,
            parts=tuple(base + part for part in parts),
            label=f"GPTQ {layout.bits}-bit, {grouping}{unseen}",
            decode=partial(_decode, layout),
            remark=remark,
        )


def _layout(file: CodedFile, base: str) -> tuple[GptqLayout, str]:
    rows, outputs = file.shapes[f"{base}qweight"]
    groups = file.shapes[f"{base}scales"][0]
    bits = 32 * file.shapes.get(f"{base}qzeros", (0,))[-1] // max(outputs, 1)
    if bits not in WIDTHS or 32 * rows % bits or not groups:
        expected = f"int32 of shape [{groups}, {outputs} x bits / 32] for 2 to 8 bits"
        if f"{base}qzeros" not in file.shapes:
            raise file.error(f"found no tensor {base}qzeros, expected {expected}; {DAMAGED}")
        raise file.bad_part(f"{base}qzeros", expected)
    inputs = 32 * rows // bits
    file.require(f"{base}qzeros", (groups, outputs * bits // 32), "int32")
    if outputs * bits % 32:
        raise file.bad_part(f"{base}qzeros", f"whole 32-bit integers for {outputs} outputs of {bits} bits")
    file.require(f"{base}scales", (groups, outputs))
    ordered = f"{base}g_idx" in file.shapes
    if ordered:
        file.require(f"{base}g_idx", (inputs,), "int32", "int64")
    elif file.settings.get("desc_act") is True:
        raise file.error(
            f"found no tensor {base}g_idx, expected it because desc_act in {file.config.source} is true; "
            f"{DAMAGED}"
        )
    size, remark = file.group_size(f"{base}scales", inputs, groups, bits)
    symmetric = file.settings.get("sym") if isinstance(file.settings.get("sym"), bool) else None
    layout = GptqLayout(base, (outputs, inputs), bits, groups, size, _format(file), symmetric, ordered)
    if layout.planes and (inputs % 32 or outputs % 32):
        raise file.bad_part(f"{base}qweight", f"whole blocks of 32 codes with {bits} bits")
    return layout, remark


def _format(file: CodedFile) -> str | None:
    values = file.settings
    if not values:
        return None
    stated, formats = values.get("checkpoint_format") or values.get("format"), FORMATS
    if "packing_format" in values or "autoround_version" in values:
        stated, formats = values.get("packing_format"), AUTOROUND
    if not isinstance(stated, str | None) or stated not in formats:
        raise InputError(
            f"{file.config.source}: the GPTQ format {stated!r:.80} is not supported, expected one of {V1}, "
            f"{V2}, {PLANES}; use the original weights"
        )
    return formats[stated]


def _decode(layout: GptqLayout, parts: Parts) -> Weights:
    base, (outputs, inputs) = layout.base, layout.shape
    words = parts.read(f"{base}qweight")
    scales = parts.rows(f"{base}scales", transposed=True)
    order = group_order(parts, f"{base}g_idx", layout.groups, layout.size) if layout.ordered else None
    zeros, judged = _zeros(layout, parts)

    def decode(rows: slice, out: Weights) -> None:
        codes = layout.unpack(np.ascontiguousarray(words[:, rows].T), inputs)
        points = zeros if isinstance(zeros, int) else zeros[:, rows].T
        if rows.start == 0 and judged and not isinstance(points, int):
            _require_centred(layout, parts, codes, points, order)
        affine(codes, out, points, scales[rows], layout.size, order)

    return by_rows((outputs, inputs), decode)


def _other_format(file: CodedFile, layout: GptqLayout) -> str:
    """Return a remark if the zero points of a matrix's first group are not in the stated format."""
    stored = layout.unpack(file.tensors.read(f"{layout.base}qzeros", 0)[None], layout.shape[0])
    middle = 1 << (layout.bits - 1)
    for value, stored_as in ((middle - 1, V1), (middle, V2)):
        if (stored == value).all() and layout.format not in (None, stored_as, PLANES):
            return (
                f"{file.config.source} gives the format {layout.format}, but zero points are stored as in "
                f"{stored_as}; attnlaw reads it as {stored_as}"
            )
    return ""


def _zeros(layout: GptqLayout, parts: Parts) -> tuple[Codes | int, bool]:
    """Return the zero points (groups, outputs), and whether the mean of q - z must show that they fit."""
    name, bits, outputs = f"{layout.base}qzeros", layout.bits, layout.shape[0]
    words = parts.read(name)
    stored = layout.unpack(words, outputs)
    middle = 1 << (bits - 1)
    if (stored == middle).all() or (stored == middle - 1).all():
        return middle, False
    if layout.symmetric or layout.format is None:
        reason = "sym is true" if layout.symmetric else "no config.json names the GPTQ format"
        raise parts.tensors.error(
            f"tensor {name} has zero points that are neither all {middle - 1} (gptq) nor all {middle} "
            f"(gptq_v2), but one of these is required because {reason}; restore the quantization_config"
        )
    if layout.format == V1:
        mask = np.uint8(2**bits - 1)
        if bits in (2, 4, 8):
            unit = np.uint32(0xFFFFFFFF // int(mask))  # a one in each field
            stored = unpack(words.view(np.uint32) + unit, bits, outputs)
        else:
            stored = (stored + np.uint8(1)) & mask
    return stored, bits <= 4


def _require_centred(
    layout: GptqLayout, parts: Parts, codes: Codes, zeros: Codes, order: NDArray[np.int64] | None
) -> None:
    """Raise an `InputError` if the codes are not centred on the zero points, as with the other format."""
    groups = np.arange(codes.shape[1]) // layout.size if order is None else order
    counts = np.bincount(groups, minlength=zeros.shape[1])
    mean = codes.mean() - float((zeros * counts).sum()) / codes.size
    if abs(mean) > MOST_MEAN:
        raise parts.tensors.error(
            f"if the format is {layout.format}, the codes in {layout.base}qzeros are {mean:.2g} away from "
            f"their zero points, expected about 0; if the file is {V2 if layout.format == V1 else V1}, "
            "correct checkpoint_format in config.json"
        )
