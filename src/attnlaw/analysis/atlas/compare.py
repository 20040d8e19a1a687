"""Compare a model with the atlas.

For every number, attnlaw reports its range over trained models of the same kind, and how many of them are
below this model. The atlas has few models, and they are not a random sample. So a value outside a range does
not mean that something is wrong with the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from attnlaw.analysis.atlas.columns import COLUMNS, AtlasColumn, column_values, model_kinds
from attnlaw.analysis.columns import ATLAS
from attnlaw.core.tables import quantity_frame

if TYPE_CHECKING:
    from attnlaw.analysis.atlas.atlas import Atlas
    from attnlaw.analysis.audit.audit import Audit

# A model is compared with models of its kind if the atlas has at least this many other trained ones.
# Otherwise it is compared with models of all kinds.
LEAST = 3
# Two models are the same if all their Frobenius norms differ by less, relatively. The norms of a copy rounded
# to 4 bits (MiniLM, Q4_1) differ by at most 0.011, those of a light fine-tune (rxnfp-10k) by 0.058. Untrained
# models of one shape have nearly the same norms for any seed, so they need a much smaller tolerance.
SAME_TRAINED, SAME_FRESH = 0.02, 1e-6
ROUND_OFF = 1e-9  # relative difference from the end of a range that comes from the order of sums alone


def comparison_table(audit: Audit, atlas: Atlas) -> pl.DataFrame | None:
    """Return a table with one row for each compared number, or None if a matrix was not measured."""
    if not audit.layers.height or not _is_whole(audit):
        return None
    kind = model_kinds(audit.matrices)["kind"][0]
    left_out = same_models(audit.matrices, atlas)
    others = atlas.values.filter(~pl.col("model").is_in(left_out))
    alike = others.filter(pl.col("kind") == pl.lit(kind, dtype=pl.String))
    among = kind if alike["trained"].sum() >= LEAST else None
    taken = alike if among else others
    trained, fresh = taken.filter("trained"), taken.filter(~pl.col("trained"))
    values = column_values(audit.matrices, audit.layers).row(0, named=True)
    norms = (None, audit.quantities["norms"])
    rows = (
        {
            "column": name,
            "value": values[name],
            **_range("trained", trained[name]),
            "trained_below": int((trained[name] < values[name] - ROUND_OFF * abs(values[name])).sum()),
            **_range("fresh", fresh[name]),
            "kind": kind,
            "among": among,
            "trained": trained["model"].to_list(),
            "fresh": fresh["model"].to_list(),
            "left_out": left_out,
        }
        for name, column in COLUMNS.items()
        if column.norms in norms and values[name] is not None and trained[name].count()
    )
    return quantity_frame(ATLAS, rows)


def atlas_entry(table: pl.DataFrame | None) -> dict[str, Any] | None:
    """Convert the rows of `comparison_table` to the entry `atlas` of summary.json; None without rows."""
    if table is None or not table.height:
        return None
    rows = table.to_dicts()
    return {
        **{name: rows[0][name] for name in ("kind", "among", "trained", "fresh", "left_out")},
        "columns": {
            row["column"]: {
                "value": row["value"],
                "trained": {name: row[f"trained_{name}"] for name in ("low", "high", "models", "below")},
                "fresh": {name: row[f"fresh_{name}"] for name in ("low", "high", "models")},
            }
            for row in rows
        },
    }


def same_models(matrices: pl.DataFrame, atlas: Atlas) -> list[str]:
    """Return the models of the atlas with the same kinds of matrices and nearly the same Frobenius norms."""
    kinds, norms = matrices["kind"].to_list(), matrices["frobenius_norm"].to_numpy()
    trained = dict(atlas.models.select("model", "trained").iter_rows())
    names = []
    for (model,), rows in atlas.matrices.group_by("model", maintain_order=True):
        near = SAME_TRAINED if trained[str(model)] else SAME_FRESH
        others = rows["frobenius_norm"].to_numpy()
        if rows["kind"].to_list() == kinds and np.allclose(norms, others, rtol=near, atol=0):
            names.append(str(model))
    return names


def _is_whole(audit: Audit) -> bool:
    layers = (spectrum for location, spectrum in audit.tree.leaves() if location.layer is not None)
    return all(spectrum is not None for spectrum in layers)


def _range(whose: str, values: pl.Series) -> dict[str, Any]:
    numbers = {"low": values.min(), "high": values.max(), "models": values.count()}
    return {f"{whose}_{name}": number for name, number in numbers.items()}


@dataclass(frozen=True)
class Unusual:
    """The numbers of a model that are outside the range of the trained models in the comparison."""

    compared: int  # how many numbers are compared
    expected: float  # how many an ordinary model has outside: one of n + 1 with probability 2 / (n + 1)
    deviation: float  # of `expected`, if the compared numbers were independent
    among: str  # the models in the comparison, in words
    lines: list[tuple[str, str, str]]  # label, value and range of each number outside, the farthest first
    names: list[str]  # of the numbers outside the range

    @property
    def has_ranks(self) -> bool:
        """Whether the numbers include a rank. Ranks depend on the head size."""
        return any("rank" in name for name in self.names)

    @property
    def is_unusual(self) -> bool:
        """Whether clearly more numbers are outside the range than for an ordinary model."""
        return len(self.lines) > self.expected + self.deviation

    @property
    def sentence(self) -> str:
        if not self.lines:
            return f"All {self.compared} numbers are within the range of {self.among}."
        verb = "is" if len(self.lines) == 1 else "are"
        return (
            f"{len(self.lines)} of {self.compared} numbers {verb} outside the range of {self.among} "
            f"(chance alone: about {self.expected:.0f})."
        )


def unusual_numbers(entry: dict[str, Any]) -> Unusual:
    """Return the numbers outside the range of trained models.

    >>> low = {"value": 2.0, "trained": {"low": 8.1, "high": 19.3, "models": 7, "below": 0}}
    >>> entry = {"among": None, "trained": ["a"] * 7, "columns": {"median_stable_rank_qk": low}}
    >>> unusual_numbers(entry).lines[0]
    ('QK stable rank', '2.00', '8.10 to 19.3')
    >>> unusual_numbers(entry).sentence
    '1 of 1 numbers is outside the range of 7 trained reference models (chance alone: about 0).'
    """
    known = {name: part for name, part in entry["columns"].items() if name in COLUMNS}
    outside = {name: distance for name, part in known.items() if (distance := _distance(part)) > 0}
    names = sorted(outside, key=lambda name: -outside[name])
    lines = []
    for name in names:
        column, part = COLUMNS[name], known[name]
        trained = _format_range(column, part["trained"])
        lines.append((column.label, column.number_text(part["value"]), trained))
    chances = [2 / (part["trained"]["models"] + 1) for part in known.values()]
    expected, deviation = sum(chances), sum(chance * (1 - chance) for chance in chances) ** 0.5
    among = f"{len(entry['trained'])} trained reference {_kind_in_words(entry)}"
    return Unusual(len(known), expected, deviation, among, lines, names)


def _distance(part: dict[str, Any]) -> float:
    """Return how far a value is outside the range, in lengths of the range; 0 if it is inside."""
    low, high, value = part["trained"]["low"], part["trained"]["high"], part["value"]
    beyond = max(low - value, value - high)
    if beyond <= ROUND_OFF * max(abs(low), abs(high)):
        return 0.0
    return float(beyond / ((high - low) or abs(high) or 1.0))


def _kind_in_words(entry: dict[str, Any]) -> str:
    return f"{entry['among']}s" if entry["among"] else "models"


def ranges_sentence(entry: dict[str, Any]) -> str:
    """Return sentences that explain the numbers and name the models that the ranges cover.

    >>> entry = {"among": "decoder", "trained": ["a", "b"], "fresh": ["c"], "left_out": ["d"]}
    >>> ranges_sentence(entry).partition(". ")[2]
    'Ranges: 2 trained decoders (a, b), 1 untrained; d itself is excluded.'
    """
    kind = _kind_in_words(entry) if entry["among"] else "models of any kind"
    without = ", ".join(entry["left_out"])
    return (
        "Ranks, norms and strong directions are medians over matrices. "
        f"Ranges: {len(entry['trained'])} trained {kind} ({', '.join(entry['trained'])}), "
        f"{len(entry['fresh'])} untrained"
        f"{f'; {without} itself is excluded' if without else ''}."
    )


def range_lines(entry: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Return lines (label, value, range of trained models, how many are below, range of untrained models)."""
    lines = []
    for name, comparison in entry["columns"].items():
        if name in COLUMNS:  # another version may have had more columns
            column, trained = COLUMNS[name], comparison["trained"]
            below = f"{trained['below']} of {trained['models']}"
            ranges = _format_range(column, trained), below, _format_range(column, comparison["fresh"])
            lines.append((column.label, column.number_text(comparison["value"]), *ranges))
    return lines


def range_meanings(names: Iterable[str]) -> dict[str, str]:
    """Return the meanings of the terms in the labels of these numbers.

    >>> list(range_meanings(["median_stable_rank_qk", "median_stable_rank_vo", "rejected_share"]))
    ['stable rank', 'unlike random']
    """
    columns = [COLUMNS[name] for name in names if name in COLUMNS]
    return {column.term or column.label: column.description for column in columns}


def _format_range(column: AtlasColumn, part: dict[str, Any]) -> str:
    """Format a range as "low to high", as one number if both ends look the same, or empty if unknown."""
    ends = [column.number_text(part[end]) for end in ("low", "high") if part[end] is not None]
    return " to ".join(dict.fromkeys(ends))
