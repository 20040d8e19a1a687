"""Refuse tensors that belong to a weight and are not read, because the weight alone is another matrix.

Many programs store a weight in two tensors, such as codes and their scales. Each has its own names for the
second one. So attnlaw has no list of these names: a tensor inside the module of a weight that attnlaw uses is
read, known to leave the weight as it is, or refused. Tensors elsewhere in a layer are not concerned.

| the weight | a tensor belongs to it if its name is |
|---|---|
| `q_proj.weight` | `q_proj.` and more, or `q_proj_` and a word about codes, such as `q_proj_scale` |
| `experts.gate_up_proj` | the same, or `experts.` and one more part |

The parts that a quantization scheme has decoded are no longer among the tensors here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from attnlaw.checkpoints.assembly.match import Match
from attnlaw.checkpoints.blocks import Norm, StoredLayer, View
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError

WEIGHT = re.compile(r"\.(weight|gamma)$")
# Biases are no part of a matrix.
BIAS = re.compile(r"bias|beta")
# Ranges of activations, states of a library, one more key and value: the weight is the same without them.
HARMLESS = re.compile(
    r"(input|output|act|activation|kv|[qkv])_(global_)?(scale(_inv)?|amax|absmax|zero_point)"
    r"|(input|output)_quantizer\._?amax|activation_post_process\..*|_extra_state|bias_[kv]",
    re.DOTALL,
)
# Words by which a name such as `q_proj_scale` is distinguished from one such as `q_proj_norm`.
CODE_WORD = re.compile(r"(^|_)(scales?|a?b?s?max|zeros?|zp|quant|dequant|mask)(_|$)")


def unused_parts(
    match: Match, layers: Iterable[StoredLayer], outside: Iterable[View | None], tensors: Tensors
) -> list[str]:
    """Return the names of tensors that belong to weights in use and do not change them.

    Raise an `InputError` if a tensor belongs to a weight in use and nothing reads it.

    Args:
        outside: the matrices outside of the layers.
    """
    records = [record for part in (*layers, *outside) for record in _records(part)]
    named = (record.tensor if isinstance(record, View) else record.gain for record in records)
    weights = {name for name in named if name is not None}
    listed = {
        at + name
        for matched in match.stacks
        for at in matched.layers
        for name in (*matched.stack.ignored, *matched.stack.unread, matched.stack.sinks)
        if name is not None
    }
    known = weights | {record.bias for record in records} | listed
    modules = {WEIGHT.sub("", name): name for name in weights}
    parents = {name.rpartition(".")[0]: name for name in sorted(weights) if not WEIGHT.search(name)}
    harmless = []
    for name in tensors.shapes:
        if name in known or (owner := _owner(name, modules, parents)) is None:
            continue
        weight, rest = owner
        if BIAS.fullmatch(rest):
            continue
        if HARMLESS.fullmatch(rest):
            harmless.append(name)
            continue
        raise InputError(
            f"{tensors.source}: tensor {name} belongs to {weight}, and attnlaw cannot read {weight} together "
            "with it; use the original weights, or write them out (dequantise, merge) with the program that "
            "saved this checkpoint"
        )
    return harmless


def _records(part: Any) -> Iterator[View | Norm]:
    """Yield the matrices and norms in a record of blocks, and in the records inside it."""
    if isinstance(part, View | Norm):
        yield part
    inside = (getattr(part, entry.name) for entry in fields(part)) if is_dataclass(part) else ()
    for entry in part if isinstance(part, tuple) else inside:
        yield from _records(entry)


def _owner(name: str, modules: Mapping[str, str], parents: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the weight that a tensor belongs to, and the rest of the tensor's name, or None without one.

    Args:
        modules: the weights by the module that holds nothing else.
        parents: the weights without a module, by the module that holds them.
    """
    for cut in re.finditer(r"[._]", name):
        stem, rest = name[: cut.start()], name[cut.end() :]
        inside = cut[0] == "." or ("." not in rest and CODE_WORD.search(rest))
        if inside and stem in modules:
            return modules[stem], rest
    module, _, rest = name.rpartition(".")
    return (parents[module], rest) if module in parents else None
