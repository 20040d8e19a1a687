"""Read families from TOML files.

The keys of a file are the fields of `Family`, of `LayerTable` under `[[stacks]]`, and of `Initialiser` under
`[init.TYPE]`.

    name = "mine"

    [[stacks]]
    layer = "blocks.{layer}."
    attention = { "query,key,value" = "attn.qkv.weight", output = "attn.proj.weight" }
    feed_forward = [{ in = "mlp.up.weight", out = "mlp.down.weight" }]

Only `name` and, in every stack, `layer` and `attention` are required. A file may inherit `layer` and
`attention` from the shipped file that it is `like`. Names match under any prefix.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from attnlaw.checkpoints import families
from attnlaw.checkpoints.blocks import LAYER, RMS
from attnlaw.checkpoints.families import Family, Initialiser, LayerTable, Roles
from attnlaw.core.errors import InputError
from attnlaw.core.files import parse_toml, read_bounded

PLAIN_ROLES = {"query", "key", "value", "output"}
LATENT = {*PLAIN_ROLES, "latent", "shared_key"}
# Sets of roles that are complete.
COMPLETE_ROLES: dict[str, tuple[set[str], ...]] = {
    "attention": (PLAIN_ROLES, {*PLAIN_ROLES, "gate"}, LATENT, {*LATENT, "query_latent"}),
    "cross": (PLAIN_ROLES, set()),
    "feed_forward": ({"in", "out"}, {"gate", "in", "out"}),
    "experts": ({"in", "out"}, {"gate", "in", "out"}),
}
BLOCKS = ("attention", "cross", "feed_forward", "experts")
NOT_INHERITED = ("name", "model_types", "priority", "init")  # the keys that `like` does not pass on
# Tables that may have any of these roles.
OPTIONAL_ROLES: dict[str, set[str]] = {
    "norms": {*BLOCKS, *(f"after_{block}" for block in BLOCKS)},
    "inner_norms": {"query", "key", "value", "query_latent", "latent", "output", "out"},
    "biases": {*PLAIN_ROLES},
}
Fits = Callable[[Any], bool]
Record = TypeVar("Record", Family, LayerTable, Initialiser)


class FieldKind(NamedTuple):
    expected: str
    fits: Fits


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _is_roles(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _list_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


POSITIVE = FieldKind("a positive number", lambda value: isinstance(value, float) and value > 0)
STACKS = FieldKind("tables [[stacks]]", _list_of(_is_table))
INIT = FieldKind("tables [init.TYPE]", lambda value: _is_table(value) and all(map(_is_table, value.values())))
# The accepted values, by the declared type of a field.
KINDS: dict[Any, FieldKind] = {
    str: FieldKind("text", _is_text),
    str | None: FieldKind("text or false", lambda value: _is_text(value) or value is False),
    bool: FieldKind("true or false", lambda value: isinstance(value, bool)),
    int: FieldKind("a whole number", _is_whole),
    float: POSITIVE,
    float | None: POSITIVE,
    int | None: FieldKind("a positive whole number", lambda value: _is_whole(value) and value > 0),
    tuple[str, ...]: FieldKind("a list of texts", _list_of(_is_text)),
    Roles: FieldKind("a table that maps roles to tensor names", _is_roles),
    tuple[Roles, ...]: FieldKind("a list of tables that map roles to tensor names", _list_of(_is_roles)),
    tuple[LayerTable, ...]: STACKS,
    Mapping[str, Initialiser]: INIT,
    Mapping[str, Any]: FieldKind("a table whose keys are keys of config.json", _is_table),
}
FIELDS: dict[type[Any], dict[str, FieldKind]] = {
    record: {name: KINDS[declared] for name, declared in get_type_hints(record).items()}
    for record in (Family, LayerTable, Initialiser)
}


def known_families() -> tuple[Family, ...]:
    """Return the families that ship with attnlaw, highest priority first."""
    return families_in(families.FOLDER)


@cache
def families_in(folder: Path) -> tuple[Family, ...]:
    """Return the families of all TOML files in a folder, highest priority first."""
    shipped = (read_family(file) for file in sorted(folder.glob("*.toml")))
    return tuple(sorted(shipped, key=lambda family: -family.priority))


def read_family(path: str | os.PathLike[str]) -> Family:
    """Read a family from a TOML file.

    Raise an `InputError` that names the file and the key if a value is wrong.

    >>> read_family(Path(__file__).with_name("gpt_neox.toml")).stacks[0].interleaved
    True
    """
    file = Path(path)
    data = read_bounded(file, megabytes=1, remedy="give a TOML file")
    family = _record(Family, _merge_base_file(parse_toml(data, str(file)), str(file)), str(file))
    if not family.stacks:
        raise InputError(f"{file}: stacks: is missing; describe the layers in [[stacks]]")
    _expect(family.norm in (LAYER, RMS), f"{file}: norm", family.norm, f"{LAYER} or {RMS}")
    return family


def _expect(fits: bool, place: str, value: Any, wanted: str) -> None:
    if not fits:
        raise InputError(f"{place}: found {value!r:.80}, expected {wanted}")


def _merge_base_file(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    like = values.get("like")
    if not _is_text(like):
        return dict(values)
    shipped = _shipped_files(families.FOLDER)
    _expect(like in shipped, f"{place}: like", like, f"a file that ships; known: {', '.join(shipped)}")
    base = _read_shipped_file(shipped[str(like)])
    merged = {key: value for key, value in base.items() if key not in NOT_INHERITED} | dict(values)
    stacks, others = values.get("stacks", []), base["stacks"]
    if STACKS.fits(stacks):
        pairs: Iterable[Any] = zip_longest(stacks, others, fillvalue={})
        merged["stacks"] = [{**other, **mine} for mine, other in pairs]
    return merged


@cache
def _shipped_files(folder: Path) -> dict[str, Path]:
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


@cache
def _read_shipped_file(file: Path) -> dict[str, Any]:
    return _merge_base_file(parse_toml(file.read_bytes(), str(file)), str(file))


def _record(record: type[Record], values: Mapping[str, Any], place: str) -> Record:
    kinds = FIELDS[record]
    for key in values:
        if key not in kinds:
            raise InputError(f"{place}: {key}: unknown key; known: {', '.join(kinds)}")
    for entry in fields(record):
        if entry.name not in values and entry.default is MISSING and entry.default_factory is MISSING:
            raise InputError(f"{place}: {entry.name}: missing; expected {kinds[entry.name].expected}")
    return record(**{key: _value(value, kinds[key], f"{place}: {key}") for key, value in values.items()})


def _value(value: Any, kind: FieldKind, place: str) -> Any:
    _expect(kind.fits(value), place, value, kind.expected)
    if kind is STACKS:
        return tuple(_layer_table(part, f"{place}[{i}]") for i, part in enumerate(value))
    if kind is INIT:
        return {name: _initialiser(name, value, place) for name in value}
    if value is False and kind is KINDS[str | None]:
        return None
    return tuple(value) if isinstance(value, list) else value


def _initialiser(name: str, tables: Mapping[str, Any], place: str) -> Initialiser:
    table = tables[name]
    like = table.get("like")
    is_other = like is None or (like in tables and like != name)
    _expect(is_other, f"{place}.{name}: like", like, f"another of {', '.join(tables)}")
    base = dict(tables[like]) if like is not None else {}
    if "like" in base:
        raise InputError(f"{place}.{name}: like: {like} also has a key like; refer to a table that has none")
    merged = base | table | {"defaults": {**base.get("defaults", {}), **table.get("defaults", {})}}
    return _record(Initialiser, merged, f"{place}.{name}")


def _layer_table(values: Mapping[str, Any], place: str) -> LayerTable:
    """Return a stack made from a TOML table, whose roles must be complete."""
    table = _record(LayerTable, values, place)
    blocks = [("attention", table.attention), ("cross", table.cross)]
    blocks += [("feed_forward", roles) for roles in table.feed_forward]
    blocks += [("experts", roles) for roles in table.experts]
    for name, roles in blocks:
        parts = [part for keys in roles for part in keys.split(",")]
        if set(parts) not in COMPLETE_ROLES[name] or len(parts) != len(set(parts)):
            sets = " or ".join(", ".join(sorted(whole)) for whole in COMPLETE_ROLES[name] if whole)
            raise InputError(f"{place}: {name}: has the roles {', '.join(parts) or 'none'}; expected {sets}")
    optional = [("norms", roles) for roles in table.norms]
    optional += [("inner_norms", table.inner_norms), ("biases", table.biases)]
    for name, roles in optional:
        if unknown := set(roles) - OPTIONAL_ROLES[name]:
            known = ", ".join(sorted(OPTIONAL_ROLES[name]))
            raise InputError(f"{place}: {name}: has the role {min(unknown)}; expected some of {known}")
    numbers = table.layer.count("{layer}") + table.layer.count("{group}")
    if numbers != len(table.depth):
        raise InputError(
            f"{place}: layer: {table.layer!r} has {numbers} indices {{layer}}, expected "
            f"{len(table.depth)}, one for each key in depth; write {{layer}} where a name has the number "
            "of the layer"
        )
    # Digits alone do not show where one number ends, and trying every split would take too long.
    between = re.split(r"\{layer\}|\{group\}", table.layer)[1:-1]
    if any(text == "" or text.isdecimal() for text in between):
        raise InputError(
            f"{place}: layer: {table.layer!r} has two indices without text between them; put a dot "
            "between them"
        )
    return table
