"""Quark: 4-bit integers in `X`, int32 (in, out / 8), with `X_scale` (groups, out).

`X_zero_point` is packed like `X`, int32 (groups, out / 8), and W[o, i] = s[g, o] (q[i, o] - z[g, o]). Two
things are only in config.json: the order of the eight codes of a word (`pack_method`: `reorder` is AWQ's, and
`order` is plain), and whether they are signed (`dtype`: uint4, or int4 in two's complement).

Quark's float8, int8 and MXFP4 weights have the layouts of other libraries, and those codes read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.quantization.awq import NIBBLES
from attnlaw.checkpoints.quantization.packing import Weights, affine, by_rows, signed, unpack_columns
from attnlaw.checkpoints.quantization.record import (
    CodedWeight,
    Parts,
    bad_part,
    method_of,
    names_with,
    quantization_config,
    require_part,
)
from attnlaw.checkpoints.tensors import Tensors

ORDERS = {"reorder": NIBBLES, "order": tuple(range(8))}
SIGNED = {"uint4": False, "int4": True}


def find(tensors: Tensors, config: Config) -> Iterator[CodedWeight]:
    """Yield the 4-bit weights of a checkpoint that Quark coded."""
    for scale, name in names_with(tensors, "_scale"):
        shapes = tensors.shapes.get(name, ()), tensors.shapes[scale]
        if method_of(config) == "quark" and name in tensors.shapes and tensors.dtype(name) == "int32":
            if any(len(shape) != 2 or 0 in shape for shape in shapes):
                raise bad_part(tensors, name, f"a matrix next to {scale}")
            yield _coded(tensors, config, name)


def _coded(tensors: Tensors, config: Config, name: str) -> CodedWeight:
    spec, method = (
        _weight_spec(config, name),
        _table(quantization_config(config).get("export")).get("pack_method"),
    )
    kind = spec.get("dtype")
    if method not in ORDERS or kind not in SIGNED:
        raise tensors.error(
            f"{config.source} states pack_method {method!r:.40} and dtype {kind!r:.40} for {name}, expected "
            f"{' or '.join(ORDERS)} and {' or '.join(SIGNED)}; restore the model's config"
        )
    inputs, words = tensors.shapes[name]
    groups, outputs = tensors.shapes[f"{name}_scale"][0], 8 * words
    require_part(tensors, f"{name}_scale", (groups, outputs))
    if inputs % groups:
        raise bad_part(tensors, f"{name}_scale", f"groups that divide the {inputs} inputs")
    zeros = f"{name}_zero_point"
    if zeros in tensors.shapes or spec.get("symmetric") is not True:
        require_part(tensors, zeros, (groups, words), "int32")
    size, stated = inputs // groups, spec.get("group_size")
    grouped = isinstance(stated, int) and stated > 0 and stated != size
    return CodedWeight(
        name=name,
        shape=(outputs, inputs),
        parts=(name, f"{name}_scale", *([zeros] if zeros in tensors.shapes else [])),
        label=f"Quark 4-bit, groups of {size} ({kind}, {method})",
        decode=partial(_decode, name, (outputs, inputs), size, ORDERS[method], SIGNED[kind]),
        remark=f"{config.source} states group_size {stated}, but the shapes show {size}; attnlaw uses {size}"
        if grouped
        else "",
    )


def _weight_spec(config: Config, name: str) -> Mapping[str, Any]:
    """Return what the config says about a weight: the entry of its layer, or the one for all layers."""
    values, layer = quantization_config(config), name.rpartition(".")[0]
    entries = {"": values.get("global_quant_config"), **_table(values.get("layer_quant_config"))}
    fitting = [entry for pattern, entry in entries.items() if not pattern or fnmatchcase(layer, pattern)]
    spec = _table(fitting[-1]).get("weight")
    return _table(spec[0] if isinstance(spec, list) and spec else spec)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _decode(
    name: str, shape: tuple[int, int], size: int, order: tuple[int, ...], negative: bool, parts: Parts
) -> Weights:
    words = parts.read(name)
    scales = parts.rows(f"{name}_scale", transposed=True)
    zeros: NDArray[Any] | None = None
    if f"{name}_zero_point" in parts.tensors.shapes:
        zeros = unpack_columns(parts.read(f"{name}_zero_point"), order)
        zeros = signed(zeros, 4) if negative else zeros

    def decode(rows: slice, out: Weights) -> None:
        codes = unpack_columns(words[:, rows.start // 8 : rows.stop // 8], order)
        some = None if zeros is None else zeros[rows]
        affine(signed(codes, 4) if negative else codes, out, some, scales[rows], size)

    return by_rows(shape, decode, multiple=8)
