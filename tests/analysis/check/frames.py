"""Tables as rules see them, and rules written to a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.check.rule_file import read_rules
from attnlaw.analysis.check.rules import GateRule, RuleFile
from attnlaw.analysis.columns import LOCATION
from attnlaw.core.quantity import Quantity, column_kinds
from attnlaw.core.tables import to_frame, to_schema

DIFF = (
    *LOCATION,
    Quantity("rows", kind="small"),
    Quantity("cols", kind="small"),
    Quantity("size"),
    Quantity("rank", kind="int"),
    Quantity("z_left"),
    Quantity("intruders_left", kind="small"),
    Quantity("route", kind="text"),
    Quantity("latent", kind="bool"),
    Quantity("values", kind="floats"),
)
DIFF_TENSORS = (
    Quantity("tensor", kind="text"),
    Quantity("verdict", kind="text"),
    Quantity("sqnr_db"),
)
TABLES: dict[str, tuple[Quantity, ...]] = {
    "diff": DIFF,
    "diff_tensors": DIFF_TENSORS,
    "summary": (Quantity("depth", kind="int"), Quantity("log10_proxy", error=True)),
}


@dataclass(frozen=True)
class Known:
    """A rule of findings, as the room of audits declares them."""

    name: str
    level: str
    threshold: float | None
    meaning: str
    least: float = 0.0
    when: str = "it is so"
    remedy: str = "do this"


FINDINGS = {
    known.name: known
    for known in (
        Known("non-finite", "error", None, "an entry is NaN or infinite: training diverged"),
        Known("unbalanced", "error", 3.0, "one factor of a product is far larger than the other"),
        Known("random-head", "note", 0.01, "a head that looks like noise"),
    )
}
FINDING_SCHEMA = to_schema(
    {"rule": "text", "level": "text"}
    | {column.name: column.kind for column in LOCATION[1:]}
    | {"tensor": "text", "value": "float", "threshold": "float", "meaning": "text"}
)


def table(name: str, rows: list[Mapping[str, Any]]) -> pl.DataFrame:
    return to_frame(rows, to_schema(column_kinds(TABLES[name])))


def heads(sizes: Mapping[tuple[int, str, int | None], float | None], **more: Any) -> pl.DataFrame:
    """A table of diff: sizes by layer, kind and head."""
    return table(
        "diff",
        [
            {"model": "m", "layer": layer, "kind": kind, "head": head, "size": size, "rows": 8, "cols": 8}
            | more
            for (layer, kind, head), size in sizes.items()
        ],
    )


def findings(*rows: Mapping[str, Any]) -> pl.DataFrame:
    return to_frame([{"level": "error", "meaning": "it means this", **row} for row in rows], FINDING_SCHEMA)


def written(folder: Path, text: str, head: str = "version = 1\n") -> RuleFile:
    path = folder / "rules.toml"
    path.write_text(head + text, encoding="utf-8")
    return read_rules(path, TABLES, FINDINGS)


def one_rule(folder: Path, **keys: Any) -> GateRule:
    """A rule with these keys; what it needs and is not told is about the sizes of a diff."""
    fields = {"name": "near", "of": "diff", "column": "size", "is": "< 0.25"} | keys
    lines = [f"{key} = {_toml(value)}" for key, value in fields.items()]
    (rule,) = written(folder, "\n".join(["[[rule]]", *lines])).rules
    return rule


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
