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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.quantization.packing import Weights, affine, by_rows, unpack, unpack_words, words
from attnlaw.checkpoints.quantization.record import (
    DAMAGED,
    CodedFile,
    CodedWeight,
    Parts,
    gives_groups,
    group_order,
)
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


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the weights of a checkpoint that are packed integers of compressed-tensors."""
    schemes = _schemes(file)
    for packed, name in file.names_with("_packed"):
        if file.dtype(packed) == "int32":
            yield _coded(file, schemes, name)


def _coded(file: CodedFile, schemes: list[Scheme], name: str) -> CodedWeight:
    *stack, outputs, row_words = _matrix_shape(file, f"{name}_packed")
    inputs = _stored_inputs(file, name, (*stack, outputs))
    groups = _matrix_shape(file, f"{name}_scale")[-1] if f"{name}_scale" in file.shapes else 0
    file.require(f"{name}_scale", (*stack, outputs, groups))
    scheme, dense = _scheme(file, schemes, name, inputs, row_words, groups)
    bits, size, zeros, order = scheme.bits, scheme.size, f"{name}_zero_point", f"{name}_g_idx"
    if zeros in file.shapes:
        per_word = words(outputs, bits) if dense else -(-outputs // (32 // bits))
        rows, dtype = (per_word, "int32") if file.dtype(zeros) == "int32" else (outputs, "int8")
        file.require(zeros, (*stack, rows, groups), dtype)
    elif not scheme.symmetric:
        raise _missing(file, zeros, "symmetric is false")
    if order in file.shapes:
        file.require(order, (*stack, inputs), "int32", "int64")
    elif scheme.ordered:
        raise _missing(file, order, "actorder is group")
    half, read_codes = 1 << (bits - 1), unpack if dense else unpack_words

    def decode(parts: Parts) -> Weights:
        packed, scales = parts.read(f"{name}_packed"), parts.rows(f"{name}_scale")
        points: NDArray[Any] | None = None
        if zeros in file.shapes:
            stored = parts.read(zeros)
            # Packed zero points, which are packed down the rows, have the same offset as the codes.
            is_packed = stored.dtype == np.int32
            points = read_codes(stored.T, bits, outputs).T if is_packed else stored.astype(np.int16) + half
        group_of = group_order(parts, order, groups, size or inputs) if order in file.shapes else None

        def fill(rows: slice, out: Weights) -> None:
            codes, zero = read_codes(packed[rows], bits, inputs), half if points is None else points[rows]
            affine(codes, out, zero, scales[rows], size or inputs, group_of)

        return by_rows((outputs, inputs), fill)

    return CodedWeight(
        name=name,
        shape=(*stack, outputs, inputs),
        parts=file.stored(name, "_packed", "_scale", "_shape", "_zero_point", "_g_idx"),
        label=f"compressed-tensors int{bits}, {f'groups of {size}' if size else 'rows'}",
        decode=decode,
    )


def _missing(file: CodedFile, name: str, because: str) -> InputError:
    expected = f"expected it because {because} in {file.config.source}"
    return file.error(f"found no tensor {name}, {expected}; {DAMAGED}")


def _matrix_shape(file: CodedFile, name: str) -> tuple[int, ...]:
    shape = file.shapes[name]
    if len(shape) not in (2, 3) or 0 in shape:
        raise file.bad_part(name, "a matrix, or a stack of matrices")
    return shape


def _stored_inputs(file: CodedFile, name: str, outputs: tuple[int, ...]) -> int:
    file.require(f"{name}_shape", (len(outputs) + 1,), "int")
    stated = [int(size) for size in file.tensors.read(f"{name}_shape")]
    if tuple(stated[:-1]) != outputs or stated[-1] < 1:
        raise file.error(
            f"tensor {name}_shape says {stated}, but {name}_packed has "
            f"{list(file.shapes[f'{name}_packed'])}, expected {list(outputs)} and the number of inputs; "
            f"{DAMAGED}"
        )
    return stated[-1]


def weight_schemes(file: CodedFile) -> list[Mapping[str, Any]]:
    """Return the tables `weights` of all `config_groups`."""
    groups = file.settings.get("config_groups")
    tables = groups.values() if isinstance(groups, Mapping) else ()
    weights = [table.get("weights") for table in tables if isinstance(table, Mapping)]
    return [table for table in weights if isinstance(table, Mapping)]


def _schemes(file: CodedFile) -> list[Scheme]:
    schemes = []
    for table in weight_schemes(file):
        bits, size = table.get("num_bits"), table.get("group_size")
        if isinstance(bits, int) and 1 <= bits <= 8 and isinstance(size, int | None):
            ordered = str(table.get("actorder") or "").lower() in ("group", "dynamic", "true")
            size = size if size and size > 0 else None
            schemes.append(Scheme(bits, size, table.get("symmetric") is not False, ordered))
    return list(dict.fromkeys(schemes))


def _scheme(
    file: CodedFile, stated: list[Scheme], name: str, inputs: int, row_words: int, groups: int
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
        version = re.match(r"(\d{1,6})\.(\d{1,6})", str(file.settings.get("version", "")))
        is_dense = (int(version[1]), int(version[2])) >= FIRST_DENSE if version else None
        fitting = [(scheme, dense) for scheme, dense in fitting if dense == is_dense]
    if len(fitting) == 1:
        return fitting[0]
    listed = " or ".join(map(str, stated)) or "no bits"
    problem = "and several of these fit" if fitting else "and none of these fits"
    raise file.error(
        f"tensor {name}_packed has {row_words} integers in a row of {inputs} weights, and {name}_scale has "
        f"{groups} groups; {file.config.source} states {listed} in config_groups, {problem}; restore the "
        "model's config.json"
    )
