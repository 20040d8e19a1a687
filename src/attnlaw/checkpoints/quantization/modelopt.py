"""ModelOpt: int4 in pairs of outputs, and the column factors `B.pre_quant_scale` of its AWQ.

Byte (r, i) of `X` uint8 (outputs / 2, inputs) holds output 2 r in its low nibble and 2 r + 1 in the high
one, as two's-complement numbers. `X_scale` (outputs, groups) is float. W = q s. The second scale `X_scale_2`
of W4A8 belongs to the activations.

`B.pre_quant_scale` (inputs) multiplies the columns of the weight in any of ModelOpt's codes. Matrices that a
norm feeds do not have it: the norm's gains contain it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from attnlaw.checkpoints.quantization.packing import Weights, by_rows, scale_groups, signed
from attnlaw.checkpoints.quantization.record import DAMAGED, CodedFile, CodedWeight, Parts

FACTORS = "pre_quant_scale"
LABEL = "ModelOpt int4"
NEVER_AFTER_A_NORM = ("o_proj", "down_proj")


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that ModelOpt stores as int4."""
    for scale, name in file.names_with("_scale"):
        shape, scales = file.shape(name), file.shapes[scale]
        if len(shape) != 2 or len(scales) != 2 or scales[0] != 2 * shape[0] or file.dtype(name) != "uint8":
            continue
        if file.is_floating(scale) and 0 < scales[1] <= shape[1]:
            size, remark = file.group_size(scale, shape[1], scales[1], bits=4)
            yield CodedWeight(
                name=name,
                shape=(2 * shape[0], shape[1]),
                parts=file.stored(name, "", "_scale", "_scale_2"),
                label=f"{LABEL}, groups of {size}",
                decode=partial(_decode, name, scale, size),
                remark=remark,
            )


def _decode(name: str, scale: str, size: int, parts: Parts) -> Weights:
    codes, scales = parts.read(name), parts.rows(scale)

    def decode(rows: slice, out: Weights) -> None:
        pairs = codes[rows.start // 2 : rows.stop // 2]
        out[0::2] = signed(pairs & np.uint8(15), bits=4)
        out[1::2] = signed(pairs >> np.uint8(4), bits=4)
        scale_groups(out, scales[rows], size)

    return by_rows((2 * codes.shape[0], codes.shape[1]), decode, multiple=2)


def with_column_factors(file: CodedFile, weights: Iterable[CodedWeight]) -> Iterator[CodedWeight]:
    """Yield the weights, with their columns multiplied by `pre_quant_scale` if the weight has this tensor."""
    having = {base for _, base in file.names_with(f".{FACTORS}")}
    kinds = {_kind(base) for base in having}
    announced = bool(having) or file.settings.get(FACTORS) is True
    for weight in weights:
        base = weight.name.rpartition(".")[0]
        factors = f"{base}.{FACTORS}"
        needed = announced and weight.label.startswith(LABEL) and _kind(base) in NEVER_AFTER_A_NORM
        if base in having:
            file.require(factors, weight.shape[-1:])
            parts, label = (*weight.parts, factors), f"{weight.label}, with column factors"
            decode = partial(_multiplied, weight.decode, factors)
            yield replace(weight, parts=parts, label=label, decode=decode)
        elif needed or _kind(base) in kinds:
            raise file.error(
                f"found no tensor {factors}, expected it because {file.config.source} or other matrices of "
                f"this kind require it; {DAMAGED}"
            )
        else:
            yield weight


def _kind(base: str) -> str:
    return base.rpartition(".")[2]


def _multiplied(decode: Callable[[Parts], Weights], factors: str, parts: Parts) -> Weights:
    matrix: Weights = decode(parts)
    matrix *= parts.numbers(factors, shared=True)
    return matrix
