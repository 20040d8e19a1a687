"""Tables of settings, quantities and rules in a page, read off their declarations.

A page says where, on a line of its own: `<!-- settings of learn -->`, `<!-- quantities of learn -->`,
`<!-- table matrices of audit -->`; `<!-- more settings of learn.simulate -->` are those that `learn` lacks;
`<!-- rules of findings -->`, `<!-- models of the atlas -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import MISSING
from typing import Any

from attnlaw.analysis.atlas import Atlas, atlas
from attnlaw.analysis.findings import RULES, FindingRule
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import SettingField, setting_fields
from attnlaw.verbs import find_verb

PLACE = re.compile(
    r"^<!-- (?P<what>settings|more settings|quantities|table (?P<table>\w+)) of (?P<verb>[\w.]+) -->$",
    re.MULTILINE,
)


RULES_PLACE = "<!-- rules of findings -->"
ATLAS_PLACE = "<!-- models of the atlas -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its tables."""
    tables = PLACE.sub(_table, markdown).replace(RULES_PLACE, rules_table(RULES.values()))
    return tables.replace(ATLAS_PLACE, atlas_table(atlas()))


def _table(place: re.Match[str]) -> str:
    one = find_verb(place["verb"])
    if place["what"] == "settings":
        return settings_table(setting_fields(one.settings).values())
    if place["what"] == "more settings":
        known = setting_fields(find_verb(one.name.partition(".")[0]).settings)
        return settings_table(own for own in setting_fields(one.settings).values() if own.name not in known)
    if place["what"] == "quantities":
        return quantities_table(one.quantities)
    return quantities_table(next(table for table in one.tables if table.name == place["table"]).columns)


def settings_table(settings: Iterable[SettingField]) -> str:
    """One line for each setting: its name, its symbol, what it may be, its default, what it means.

    "or several": a list, `a,b,c` or FROM:TO:COUNT makes several cases.
    """
    lines = ["| setting | expected | default | meaning |", "|---|---|---|---|"]
    for one in settings:
        rule = one.rule
        silent = any(one.default is value for value in (None, False, MISSING))
        default = "" if silent else f"`{one.default}`"
        if rule.default_sweep:
            default += f"; of a command `{','.join(map(str, rule.default_sweep))}`"
        expected = one.expected.removeprefix("expected ") + (", or several" if rule.sweepable else "")
        told = rule.help + (" No key of a study." if rule.machine_only else "")
        cells = (f"`{one.name}` {rule.symbol}", expected, default, told)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def quantities_table(quantities: Iterable[Quantity]) -> str:
    """One line for each quantity: its columns, its symbol, its kind, what it is."""
    lines = ["| columns | kind | meaning |", "|---|---|---|"]
    for one in quantities:
        names = ", ".join(f"`{name}`" for name in one.columns)
        cells = (f"{names} {one.symbol}", one.kind, one.description)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def rules_table(rules: Iterable[FindingRule]) -> str:
    """One line for each rule: its name, level and threshold, when it finds something, what to do."""
    lines = [
        "| rule | level | threshold | found when | what it means | what to do |",
        "|---|---|---|---|---|---|",
    ]
    for one in rules:
        threshold = "" if one.threshold is None else f"{one.threshold:g}"
        cells = (f"`{one.name}`", one.level, threshold, one.when, one.meaning, one.remedy)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def atlas_table(of: Atlas) -> str:
    """One line for each model: its name, kind, family, sizes, and where it comes from."""
    kinds = dict(of.values.select("model", "kind").iter_rows())
    lines = [
        "| model | kind | family | layers | width | heads | matrices | from |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in of.models.iter_rows(named=True):
        sizes = (row["depth"], row["hidden_size"], row["head_count"], row["matrix_count"])
        cells = (f"`{row['model']}`", kinds[row["model"]], row["family"], *map(str, sizes), row["source"])
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.strip().replace("|", "\\|")
