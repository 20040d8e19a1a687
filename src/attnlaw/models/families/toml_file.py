"""A family from a TOML file: the keys are the fields of `Family`, and of `Stack` under `[[stacks]]`.

    name = "mine"

    [[stacks]]
    layer = "blocks.{layer}."
    attention = { "query,key,value" = "attn.qkv.weight", output = "attn.proj.weight" }
    feed_forward = [{ in = "mlp.up.weight", out = "mlp.down.weight" }]

Only `name` and, in every stack, `layer` and `attention` must be there. Names are matched under any prefix.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from attnlaw.base.errors import InputError
from attnlaw.base.files import parse_toml, read_bounded
from attnlaw.models.families.family import Family, Stack

PLAIN = {"query", "key", "value", "output"}
LATENT = {*PLAIN, "latent", "shared_key"}
# Sets of roles that make a whole table.
WHOLE: dict[str, tuple[set[str], ...]] = {
    "attention": (PLAIN, LATENT, {*LATENT, "query_latent"}),
    "cross": (PLAIN, set()),
    "feed_forward": ({"in", "out"}, {"gate", "in", "out"}),
    "experts": ({"in", "out"}, {"gate", "in", "out"}),
}
# What the type of a field is called in messages.
WANTED = {
    "str": "text",
    "str | None": "text",
    "bool": "true or false",
    "int | None": "a positive whole number",
    "tuple[str, ...]": "a list of texts",
    "Roles": "a table of tensor names by role",
    "tuple[Roles, ...]": "a list of tables of tensor names by role",
    "tuple[Stack, ...]": "tables [[stacks]]",
}


def read_family(path: str | os.PathLike[str]) -> Family:
    """The family that a TOML file describes; an error names the file and the key.

    >>> read_family(Path(__file__).with_name("gpt_neox.toml")).stacks[0].interleaved
    True
    """
    file = Path(path)
    data = read_bounded(file, megabytes=1, remedy="give a TOML file")
    family: Family = _record(Family, parse_toml(data, str(file)), str(file))
    if not family.stacks:
        raise InputError(f"{file}: stacks: none given; describe the layers in [[stacks]]")
    return family


def _record(kind: type[Any], values: Mapping[str, Any], place: str) -> Any:
    """A `Family` or a `Stack` from the table at `place`, every key and type checked."""
    known = {entry.name: entry for entry in fields(kind)}
    for key in values:
        if key not in known:
            raise InputError(f"{place}: {key}: unknown key; known: {', '.join(known)}")
    for key, entry in known.items():
        if key not in values and entry.default is MISSING and entry.default_factory is MISSING:
            raise InputError(f"{place}: {key}: missing; expected {WANTED[str(entry.type)]}")
    record = kind(**{key: _value(value, known[key], place) for key, value in values.items()})
    if isinstance(record, Stack):
        _check_stack(record, place)
    return record


def _value(value: Any, entry: Any, place: str) -> Any:
    """The value of one field, lists as tuples."""
    wanted, many = str(entry.type), isinstance(value, list)
    if wanted == "tuple[Stack, ...]" and many and all(isinstance(part, dict) for part in value):
        return tuple(_record(Stack, part, f"{place}: stacks[{i}]") for i, part in enumerate(value))
    fits = {
        "str": isinstance(value, str),
        "str | None": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int | None": isinstance(value, int) and not isinstance(value, bool) and value > 0,
        "tuple[str, ...]": many and all(isinstance(part, str) for part in value),
        "Roles": _is_roles(value),
        "tuple[Roles, ...]": many and all(_is_roles(part) for part in value),
    }
    if not fits.get(wanted):
        raise InputError(f"{place}: {entry.name}: found {value!r:.80}, expected {WANTED[wanted]}")
    return tuple(value) if many else value


def _is_roles(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value.values())


def _check_stack(stack: Stack, place: str) -> None:
    """Whole tables of roles, and as many keys for the depth as `layer` has numbers."""
    for name, table in _tables(stack):
        parts = [part for keys in table for part in keys.split(",")]
        if set(parts) not in WHOLE[name] or len(parts) != len(set(parts)):
            sets = " or ".join(", ".join(sorted(roles)) for roles in WHOLE[name] if roles)
            raise InputError(f"{place}: {name}: has the roles {', '.join(parts) or 'none'}; expected {sets}")
    numbers = stack.layer.count("{layer}") + stack.layer.count("{group}")
    if numbers != len(stack.depth):
        raise InputError(
            f"{place}: layer: {stack.layer!r} has {numbers} indices {{layer}}, expected {len(stack.depth)}, "
            "one for each key in depth; write the index of the layer as {layer}"
        )
    # Digits alone do not tell where one number ends, and to try every division would take for ever.
    between = re.split(r"\{layer\}|\{group\}", stack.layer)[1:-1]
    if any(text == "" or text.isdecimal() for text in between):
        raise InputError(
            f"{place}: layer: {stack.layer!r} has indices without text between them; put a dot there"
        )


def _tables(stack: Stack) -> Iterator[tuple[str, Mapping[str, str]]]:
    yield from (("attention", stack.attention), ("cross", stack.cross))
    yield from (("feed_forward", table) for table in stack.feed_forward)
    yield from (("experts", table) for table in stack.experts)
