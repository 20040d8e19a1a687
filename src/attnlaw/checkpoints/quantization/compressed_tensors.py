"""compressed-tensors integers: `X_packed` is a stream of codes in int32 words along the rows.

| tensor | dtype | shape |
|---|---|---|
| `X_packed` | int32 | (outputs, words) |
| `X_scale` | float | (outputs, groups) |
| `X_shape` | int64 | (2), outputs and inputs |
| `X_zero_point` | int32, packed *down* the rows, or int8 | (outputs b / 32, groups), or (outputs, groups) |
| `X_g_idx` | int32 | (inputs), the group of each input |

W[o, i] = s[o, g] (q[o, i] - z[o, g]), where q is the code minus 2^(b - 1), and z too if it is packed. Stacks
of experts have one more axis in front. Versions before 0.18 put 32 // b whole codes into a word, which
differs for 3, 5, 6 and 7 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.packing import Weights, affine, by_rows, unpack, unpack_words, words
from attnlaw.checkpoints.quantization.record import (
    DAMAGED,
    CodedWeight,
    Parts,
    bad_part,
    gives_groups,
    group_order,
    names_with,
    quantization_config,
    require_part,
)
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError

FIRST_DENSE = (0, 18)  # the first version that packs codes over the ends of words


@dataclass(frozen=True)
class Scheme:
    """The storage of weights as config.json describes it. `size` is None if each row has a single scale."""

    bits: int
    size: int | None
    symmetric: bool
    ordered: bool

    def __str__(self) -> str:
        return f"{self.bits} bits in {f'groups of {self.size}' if self.size else 'one group'}"


@dataclass(frozen=True)
class PackedLayout:
    """The storage of one matrix. `dense` means that codes may continue from one word into the next."""

    name: str
    shape: tuple[int, int]
    bits: int
    dense: bool
    groups: int
    size: int
    zeros: str | None
    ordered: bool

    def unpack(self, stored: NDArray[Any], count: int) -> NDArray[np.uint8]:
        return (unpack if self.dense else unpack_words)(stored, self.bits, count)


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are packed integers of compressed-tensors."""
    schemes = _schemes(config)
    for packed, name in names_with(tensors, "_packed"):
        if tensors.dtype(packed) == "int32":
            yield _coded(tensors, config, schemes, name)


def _coded(tensors: Tensors, config: Config, schemes: list[Scheme], name: str) -> CodedWeight:
    *stack, outputs, row_words = _matrix_shape(tensors, f"{name}_packed")
    inputs = _stored_shape(tensors, name, (*stack, outputs))
    groups = (*_matrix_shape(tensors, f"{name}_scale"),)[-1] if f"{name}_scale" in tensors.shapes else 0
    require_part(tensors, f"{name}_scale", (*stack, outputs, groups))
    scheme, dense = _scheme(tensors, config, schemes, name, inputs, row_words, groups)
    zeros = f"{name}_zero_point"
    if zeros in tensors.shapes:
        per_word = words(outputs, scheme.bits) if dense else -(-outputs // (32 // scheme.bits))
        packed = tensors.dtype(zeros) == "int32"
        rows, dtype = (per_word, "int32") if packed else (outputs, "int8")
        require_part(tensors, zeros, (*stack, rows, groups), dtype)
    elif not scheme.symmetric:
        raise _missing(tensors, config, zeros, "symmetric is false")
    order = f"{name}_g_idx"
    if order in tensors.shapes:
        require_part(tensors, order, (*stack, inputs), "int32", "int64")
    elif scheme.ordered:
        raise _missing(tensors, config, order, "actorder is group")
    parts = [f"{name}_{part}" for part in ("packed", "scale", "shape", "zero_point", "g_idx")]
    layout = PackedLayout(
        name=name,
        shape=(outputs, inputs),
        bits=scheme.bits,
        dense=dense,
        groups=groups,
        size=scheme.size or inputs,
        zeros=zeros if zeros in tensors.shapes else None,
        ordered=order in tensors.shapes,
    )
    return CodedWeight(
        name=name,
        shape=(*stack, outputs, inputs),
        parts=tuple(part for part in parts if part in tensors.shapes),
        label=f"compressed-tensors int{scheme.bits}, {f'groups of {scheme.size}' if scheme.size else 'rows'}",
        decode=partial(_decode, layout),
    )


def _missing(tensors: Tensors, config: Config, name: str, because: str) -> InputError:
    return tensors.error(
        f"found no tensor {name}, expected it because {because} in {config.source}; {DAMAGED}"
    )


def _matrix_shape(tensors: Tensors, name: str) -> tuple[int, ...]:
    shape = tensors.shapes[name]
    if len(shape) not in (2, 3) or 0 in shape:
        raise bad_part(tensors, name, "a matrix, or a stack of matrices")
    return shape


def _stored_shape(tensors: Tensors, name: str, outputs: tuple[int, ...]) -> int:
    """Return the number of inputs that `X_shape` states."""
    require_part(tensors, f"{name}_shape", (len(outputs) + 1,), "int")
    stated = [int(size) for size in tensors.read(f"{name}_shape")]
    if tuple(stated[:-1]) != outputs or stated[-1] < 1:
        raise tensors.error(
            f"tensor {name}_shape says {stated}, but {name}_packed has "
            f"{list(tensors.shapes[f'{name}_packed'])}, expected {list(outputs)} and the number of inputs; "
            f"{DAMAGED}"
        )
    return stated[-1]


def weight_schemes(config: Config) -> list[Mapping[str, Any]]:
    """Return the tables `weights` of all `config_groups`."""
    groups = quantization_config(config).get("config_groups")
    tables = groups.values() if isinstance(groups, Mapping) else ()
    weights = [table.get("weights") for table in tables if isinstance(table, Mapping)]
    return [table for table in weights if isinstance(table, Mapping)]


def _schemes(config: Config) -> list[Scheme]:
    schemes = []
    for table in weight_schemes(config):
        bits, size = table.get("num_bits"), table.get("group_size")
        if isinstance(bits, int) and 1 <= bits <= 8 and isinstance(size, int | None):
            ordered = str(table.get("actorder") or "").lower() in ("group", "dynamic", "true")
            schemes.append(
                Scheme(
                    bits, size if size and size > 0 else None, table.get("symmetric") is not False, ordered
                )
            )
    return list(dict.fromkeys(schemes))


def _scheme(
    tensors: Tensors,
    config: Config,
    stated: list[Scheme],
    name: str,
    inputs: int,
    row_words: int,
    groups: int,
) -> tuple[Scheme, bool]:
    """Return the scheme of config.json that fits the shapes, and whether codes run on over word ends."""
    fitting = [
        (scheme, dense)
        for scheme in stated
        if (gives_groups(inputs, scheme.size, groups) if scheme.size else groups == 1)
        for dense, count in ((True, words(inputs, scheme.bits)), (False, -(-inputs // (32 // scheme.bits))))
        if count == row_words and (dense or 32 % scheme.bits)
    ]
    if len({dense for _, dense in fitting}) > 1:
        fitting = [(scheme, dense) for scheme, dense in fitting if dense == _is_dense(config)]
    if len(fitting) == 1:
        return fitting[0]
    listed = " or ".join(map(str, stated)) or "no bits"
    problem = "and several of these fit" if fitting else "and none of these fits"
    raise tensors.error(
        f"tensor {name}_packed has {row_words} integers in a row of {inputs} weights, and {name}_scale has "
        f"{groups} groups; {config.source} states {listed} in config_groups, {problem}; restore the model's "
        "config.json"
    )


def _is_dense(config: Config) -> bool | None:
    version = re.match(r"(\d{1,6})\.(\d{1,6})", str(quantization_config(config).get("version", "")))
    return (int(version[1]), int(version[2])) >= FIRST_DENSE if version else None


def _decode(layout: PackedLayout, parts: Parts) -> Weights:
    (outputs, inputs), half = layout.shape, 1 << (layout.bits - 1)
    packed, scales = parts.read(f"{layout.name}_packed"), parts.rows(f"{layout.name}_scale")
    zeros: NDArray[Any] | None = None
    if layout.zeros is not None:
        stored = parts.read(layout.zeros)
        # Packed zero points, which are packed down the rows, have the same offset as the codes.
        packed_zeros = stored.dtype == np.int32
        zeros = layout.unpack(stored.T, outputs).T if packed_zeros else stored.astype(np.int16) + half
    order = None
    if layout.ordered:
        order = group_order(parts, f"{layout.name}_g_idx", layout.groups, layout.size)

    def decode(rows: slice, out: Weights) -> None:
        points = half if zeros is None else zeros[rows]
        affine(layout.unpack(packed[rows], inputs), out, points, scales[rows], layout.size, order)

    return by_rows((outputs, inputs), decode)
