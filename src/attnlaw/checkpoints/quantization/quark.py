"""Quark: 4-bit integers in `X`, int32 (in, out / 8), with `X_scale` (groups, out).

`X_zero_point` is packed like `X`, int32 (groups, out / 8), and W[o, i] = s[g, o] (q[i, o] - z[g, o]). Two
things are only in config.json: the order of the eight codes of a word (`pack_method`: `reorder` is AWQ's, and
`order` is plain), and whether they are signed (`dtype`: uint4, or int4 in two's complement).

Quark's float8, int8 and MXFP4 weights have the layouts of other libraries, and those codes read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from numpy.typing import NDArray

from attnlaw.checkpoints.quantization.awq import NIBBLES
from attnlaw.checkpoints.quantization.packing import Weights, affine, by_rows, signed, unpack_columns
from attnlaw.checkpoints.quantization.record import CodedFile, CodedWeight, Parts

ORDERS = {"reorder": NIBBLES, "order": tuple(range(8))}
SIGNED = {"uint4": False, "int4": True}


def find(file: CodedFile) -> Iterator[CodedWeight]:
    """Yield the 4-bit weights of a checkpoint that Quark coded."""
    for scale, name in file.names_with("_scale"):
        if file.method == "quark" and name in file.shapes and file.dtype(name) == "int32":
            if any(len(shape) != 2 or 0 in shape for shape in (file.shapes[name], file.shapes[scale])):
                raise file.bad_part(name, f"a matrix next to {scale}")
            yield _coded(file, name, scale)


def _coded(file: CodedFile, name: str, scale: str) -> CodedWeight:
    spec, source = _weight_spec(file, name), file.config.source
    method, kind = _table(file.settings.get("export")).get("pack_method"), spec.get("dtype")
    if method not in ORDERS or kind not in SIGNED:
        raise file.error(
            f"{source} states pack_method {method!r:.40} and dtype {kind!r:.40} for {name}, expected "
            f"{' or '.join(ORDERS)} and {' or '.join(SIGNED)}; restore the model's config"
        )
    inputs, columns = file.shapes[name]
    groups, outputs = file.shapes[scale][0], 8 * columns
    file.require(scale, (groups, outputs))
    if inputs % groups:
        raise file.bad_part(scale, f"groups that divide the {inputs} inputs")
    zeros = f"{name}_zero_point"
    if zeros in file.shapes or spec.get("symmetric") is not True:
        file.require(zeros, (groups, columns), "int32")
    size, stated = inputs // groups, spec.get("group_size")
    remark = ""
    if isinstance(stated, int) and stated > 0 and stated != size:
        remark = f"{source} states group_size {stated}, but the shapes show {size}; attnlaw uses {size}"

    def read_codes(words: NDArray[Any]) -> NDArray[Any]:
        codes = unpack_columns(words, ORDERS[method])
        return signed(codes, 4) if SIGNED[kind] else codes

    def decode(parts: Parts) -> Weights:
        words, scales = parts.read(name), parts.rows(scale, transposed=True)
        points = read_codes(parts.read(zeros)) if zeros in file.shapes else None

        def fill(rows: slice, out: Weights) -> None:
            codes = read_codes(words[:, rows.start // 8 : rows.stop // 8])
            affine(codes, out, None if points is None else points[rows], scales[rows], size)

        return by_rows((outputs, inputs), fill, multiple=8)

    label = f"Quark 4-bit, groups of {size} ({kind}, {method})"
    parts = file.stored(name, "", "_scale", "_zero_point")
    return CodedWeight(name, (outputs, inputs), parts, label, decode, remark)


def _weight_spec(file: CodedFile, name: str) -> Mapping[str, Any]:
    layer, layers = name.rpartition(".")[0], _table(file.settings.get("layer_quant_config"))
    entries = {"": file.settings.get("global_quant_config"), **layers}
    fitting = [entry for pattern, entry in entries.items() if not pattern or fnmatchcase(layer, pattern)]
    spec = _table(fitting[-1]).get("weight")
    return _table(spec[0] if isinstance(spec, list) and spec else spec)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
