"""Reject tensors that belong to a weight and are not read, because the weight alone is another matrix.

Each program has its own names for the second tensor of a weight, such as scales. So a tensor inside the
module of a weight that attnlaw uses is read, known to leave the weight as it is, or rejected.

| the weight | a tensor belongs to it if its name is |
|---|---|
| `q_proj.weight` | `q_proj.` and more, or `q_proj_` and a word about codes, such as `q_proj_scale` |
| `experts.gate_up_proj` | `experts.gate_up_proj_` and more, or `experts.` and such a word |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attnlaw.checkpoints.assembly.match import Match
from attnlaw.checkpoints.blocks import Attention, FeedForward, Norm, Scores, StoredLayer, View
from attnlaw.checkpoints.tensors import Tensors

RECORDS = (tuple, StoredLayer, Attention, FeedForward, Scores, Norm, View)
WEIGHT = re.compile(r"\.(weight|gamma)$")
# A bias is not part of a matrix.
BIAS = re.compile(r"bias|beta")
# Ranges of activations and states of a library: the weight is the same without them.
HARMLESS = re.compile(
    r"(input|output|act|activation|kv|[qkv])_(global_)?(scale(_inv)?|amax|absmax|zero_point)"
    r"|(input|output)_quantizer\._?amax|activation_post_process\..*|_extra_state",
    re.DOTALL,
)
# Words that distinguish a name such as `q_proj_scale` from one such as `q_proj_norm`.
CODE_WORD = re.compile(r"(^|_)(scales?|a?b?s?max|zeros?|zp|quant|dequant|mask)(_|$)")


def unused_parts(
    match: Match, layers: Iterable[StoredLayer], outside: Iterable[View | None], tensors: Tensors
) -> list[str]:
    """Return the names of tensors that belong to weights in use and do not change them.

    Raise an `InputError` if a tensor belongs to a weight in use and nothing reads it.
    """
    records = list(_records((*layers, *outside)))
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
    owners = _owners(weights)
    harmless = []
    for name in tensors.shapes:
        if name in known or (owner := _owner(name, owners)) is None:
            continue
        weight, end = owner
        if BIAS.fullmatch(end):
            continue
        if HARMLESS.fullmatch(end):
            harmless.append(name)
            continue
        raise tensors.error(
            f"tensor {name} belongs to {weight}, but attnlaw does not know how to combine them; use the "
            "original weights, or combine them with the program that saved this file"
        )
    return harmless


def _records(part: Any) -> Iterator[View | Norm]:
    parts = [part]
    while parts:
        part = parts.pop()
        if isinstance(part, View | Norm):
            yield part
        inside = part if isinstance(part, tuple) else vars(part).values()
        parts += [entry for entry in inside if isinstance(entry, RECORDS)]


def _owners(weights: Iterable[str]) -> dict[str, tuple[str, bool]]:
    """Return, for each beginning of names that belong to a weight, the weight and whether any end fits."""
    owners: dict[str, tuple[str, bool]] = {}
    for name in sorted(weights):
        module = WEIGHT.sub("", name)
        if module == name:
            owners.setdefault(name.rpartition(".")[0] + "." if "." in name else "", (name, False))
        owners |= {f"{module}.": (name, True), f"{module}_": (name, module == name)}
    return owners


def _owner(name: str, owners: Mapping[str, tuple[str, bool]]) -> tuple[str, str] | None:
    """Return the weight that a tensor belongs to, and the end of the tensor's name, or None."""
    for at in (0, *(cut.end() for cut in re.finditer(r"[._]", name))):
        weight, any_end = owners.get(name[:at], (None, False))
        end = name[at:]
        if weight is not None and (any_end or ("." not in end and CODE_WORD.search(end))):
            return weight, end
    return None
