"""Tables of settings, quantities and rules in a page, read off their declarations.

A page says where, on a line of its own: `<!-- settings of learn -->`, `<!-- quantities of learn -->`,
`<!-- table matrices of audit -->`; `<!-- more settings of learn.simulate -->` are those that `learn` lacks;
`<!-- rules of findings -->`, `<!-- models of the atlas -->`, `<!-- columns of stored tensors -->`.
`<!-- help of all commands -->` becomes what `attnlaw --help` and the help of each command print.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import MISSING
from functools import cache
from typing import Any

from attnlaw.analysis.atlas.atlas import Atlas, load_atlas
from attnlaw.analysis.check.columns import TENSORS
from attnlaw.analysis.columns import LOCATION
from attnlaw.analysis.findings.apply import sentences
from attnlaw.analysis.findings.detectors import DETECTORS, Detector
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import SettingField, setting_fields
from attnlaw.verbs import VERBS, find_verb

PLACE = re.compile(
    r"^<!-- (?P<what>settings|more settings|quantities|table (?P<table>\w+)) of (?P<verb>[\w.]+) -->$",
    re.MULTILINE,
)


HELP_PLACE = "<!-- help of all commands -->"
# Commands in the order of the page, with the parts of those that have some.
COMMANDS: dict[str, tuple[str, ...]] = dict.fromkeys((*VERBS, "reproduce", "report", "lab"), ())
COMMANDS["study"] = ("list", "new", "run", "resume", "status", "export")
RULES_PLACE = "<!-- rules of findings -->"
# Kinds of columns whose names say how they are stored, in words.
KIND_WORDS = {"small": "int", "texts": "list of text", "floats": "list of float"}
ATLAS_PLACE = "<!-- models of the atlas -->"
TENSORS_PLACE = "<!-- columns of stored tensors -->"
STAR = re.compile(r"(?<=\w)\*(?![*\w])")  # of a letter such as S*, which Markdown would eat


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its tables."""
    tables = PLACE.sub(_table, markdown).replace(RULES_PLACE, rules_table(DETECTORS.values()))
    tables = tables.replace(ATLAS_PLACE, atlas_table(load_atlas()))
    stored = [column for column in TENSORS if column not in LOCATION]
    tables = tables.replace(TENSORS_PLACE, quantities_table(stored))
    return tables.replace(HELP_PLACE, all_help()) if HELP_PLACE in tables else tables


def all_help() -> str:
    """Return the help of `attnlaw` and, each below a heading, of all of its commands and their parts."""
    blocks = [help_block("attnlaw")]
    for name, parts in COMMANDS.items():
        blocks += [f"## {name}", help_block(name), *(help_block(f"{name} {part}") for part in parts)]
    return "\n\n".join(blocks)


@cache
def help_block(words: str) -> str:
    """Return a block with the help of a command, as a terminal of 80 letters shows it."""
    names = [] if words == "attnlaw" else words.split()
    program = [sys.executable, "-c", "from attnlaw.command import main; main()", *names, "--help"]
    terminal = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(program, env=os.environ | terminal, capture_output=True, text=True, check=True)
    lines = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
    return f"```console\n$ {' '.join(['attnlaw', *names, '--help'])}\n{lines}\n```"


def _table(place: re.Match[str]) -> str:
    verb = find_verb(place["verb"])
    if place["what"] == "settings":
        return settings_table(setting_fields(verb.settings).values())
    if place["what"] == "more settings":
        known = setting_fields(find_verb(verb.name.partition(".")[0]).settings)
        return settings_table(
            setting for setting in setting_fields(verb.settings).values() if setting.name not in known
        )
    if place["what"] == "quantities":
        return quantities_table(verb.quantities)
    return quantities_table(next(table for table in verb.tables if table.name == place["table"]).columns)


def settings_table(settings: Iterable[SettingField]) -> str:
    """One line for each setting: its name, its symbol, what it may be, its default, what it means.

    "or several": a list, `a,b,c` or FROM:TO:COUNT makes several cases.
    """
    lines = ["| setting | expected | default | meaning |", "|---|---|---|---|"]
    for setting in settings:
        rule = setting.rule
        silent = any(setting.default is value for value in (None, False, MISSING))
        default = "" if silent else f"`{setting.default}`"
        if rule.default_sweep:
            default += f"; on the command line `{','.join(map(str, rule.default_sweep))}`"
        expected = setting.expected.removeprefix("expected ") + (", or several" if rule.sweepable else "")
        meaning = rule.help + (" Not available in a study." if rule.machine_only else "")
        cells = (f"`{setting.name}` {rule.symbol}", expected, default, meaning)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def quantities_table(quantities: Iterable[Quantity]) -> str:
    """One line for each quantity: its columns, its symbol, its kind, what it is."""
    lines = ["| columns | kind | meaning |", "|---|---|---|"]
    for quantity in quantities:
        names = ", ".join(f"`{name}`" for name in quantity.columns)
        kind = KIND_WORDS.get(quantity.kind, quantity.kind)
        cells = (f"{names} {quantity.symbol}", kind, quantity.description)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def rules_table(rules: Iterable[Detector]) -> str:
    """Return one line for each rule: its name, level and threshold, when it reports, and what to do."""
    lines = ["| rule | reported when | what it means, and what to do |", "|---|---|---|"]
    for rule in rules:
        threshold = "" if rule.threshold is None else f", threshold {rule.threshold:g}"
        name = f"`{rule.name}`<br>{rule.level}{threshold}"
        cells = (name, sentences(rule.when), sentences(rule.meaning, rule.remedy))
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
    return STAR.sub(r"\\*", text.strip()).replace("|", "\\|")
