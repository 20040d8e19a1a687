"""Rule files (TOML). They say which values and findings let a checkpoint pass a gate.

    version = 1
    fail_on = "error"                # or "warning"
    base = "path-or-hub-id"          # the model to compare with; a path may be relative to this file
    [findings]
    ignore = ["random-head"]
    levels = { rank-deficient = "error" }
    thresholds = { unbalanced = 2.5 }
    [[rule]]
    name = "near the base"           # reports identify the rule by its name, so do not change it
    of = "diff"                      # name of the table
    where = { kind = ["qk", "vo"], layer = "0:-1" }
    column = "size"
    is = "< 0.25"
    over = "max"                     # judge one number of all rows; without `over`, judge every row
    mostly = 0.95                    # instead of `over`: the share of rows that must hold
    against = "baseline"             # or "first" (for steps): judge the relative change new/old - 1
    level = "error"
    missing = "error"                # a missing value fails the rule; "skip" ignores it

Only name, of, column and is are required. A mistake in the file is reported in one line with the file and the
rule, and the command ends with exit status 2.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnlaw.analysis.check.locations import KEYS
from attnlaw.analysis.check.rules import (
    BASELINE,
    FAIL_ON,
    FIRST,
    NUMBERS,
    OFF,
    GateRule,
    RuleCondition,
    RuleFile,
    Tables,
)
from attnlaw.analysis.columns import LEVELS
from attnlaw.checkpoints.settings import layer_range
from attnlaw.core.errors import BadSetting, BadUsage, InputError
from attnlaw.core.files import parse_toml, read_bounded
from attnlaw.core.quantity import Quantity
from attnlaw.core.settings import Settings, setting, setting_fields, settings_dataclass

VERSION = 1
LARGEST = 1  # megabytes that a rule file may have
EXAMPLES = Path(__file__).parent / "examples"
OVER = ("max", "min", "median", "mean", "sum", "count")
NO_FINDINGS: dict[str, Any] = {"ignore": [], "levels": {}, "thresholds": {}}
SECTIONS = ("version", "fail_on", "base", "findings", "rule")
WRITTEN = re.compile(r"(<=|>=|==|!=|<|>)\s*(.*\S)\s*")
EXPECTED = 'expected a comparison such as "< 0.25", or a list of allowed values'
# Keys of the file for fields that have another name in Python.
TOML_KEYS = {"table": "of", "condition": "is", "layers": "where.layer"}


@settings_dataclass
class RuleText(Settings):
    """One table [[rule]] of a rule file, with its values as they are written."""

    name: str = setting(help="Name of the rule, which reports show.")
    table: str = setting(help="Table of results that the rule checks, such as matrices.", choices=KEYS)
    where: Any = setting(
        None, 'Rows to check: the allowed values of each column, such as { kind = "qk" } (default: all rows).'
    )
    column: str = setting(help="Column of the table whose values the rule checks.")
    condition: Any = setting(help="Condition that the values must meet, such as < 0.25.")
    over: str | None = setting(
        None,
        "Combine all rows to one number, such as their maximum, and check only this number.",
        choices=dict.fromkeys(OVER),
        excluded_by="mostly",
    )
    mostly: float | None = setting(
        None, "Share of the rows that must meet the condition (default: all).", greater_than=0, maximum=1
    )
    against: str | None = setting(
        None,
        "Check the relative change of each value since a baseline (new/old - 1), not the value itself.",
        choices=dict.fromkeys((BASELINE, FIRST)),
    )
    level: str = setting(
        "error", "How serious a failure of the rule is.", choices=dict.fromkeys((OFF, *LEVELS))
    )
    missing: str = setting(
        "error",
        "What a missing value means: the rule fails (error), or the row does not count (skip).",
        choices=dict.fromkeys(("error", "skip")),
    )


def example_names() -> list[str]:
    """Return the names of the rule files that come with attnlaw."""
    return sorted(path.stem for path in EXAMPLES.glob("*.toml"))


def read_rules(path: str | os.PathLike[str], tables: Tables, findings: Mapping[str, Any]) -> RuleFile:
    """Read and check a rule file, or an example that comes with attnlaw.

    Args:
        tables: the columns that rules may use, by table.
        findings: the detectors by name, such as `attnlaw.analysis.findings.detectors.DETECTORS`.
    """
    shipped = EXAMPLES / f"{path}.toml"
    file = shipped if str(path) in example_names() and not os.path.lexists(path) else Path(path)
    with _as_bad_usage():
        data = read_bounded(file, LARGEST, remedy=f"give a rule file, or one of {', '.join(example_names())}")
        content = parse_toml(data, str(path), "docs/commands/check.md shows an example")
    with _as_bad_usage(f"{path}: "):
        for name in content:
            _require_known(name, SECTIONS)
        version = content.get("version")
        if version is None:
            remedy = f"write version = {VERSION} in its first line"
            raise BadSetting("version", f"is missing from the file; {remedy}")
        if version != VERSION or isinstance(version, bool):
            remedy = f"write version = {VERSION} in the first line"
            raise BadSetting("version", f"which attnlaw does not read; {remedy}", version)
        fail_on = _one_of("fail_on", content.get("fail_on", "error"), FAIL_ON)
        overrides = _findings(content.get("findings", {}), findings)
        written = content.get("rule", [])
        if not (isinstance(written, list) and all(isinstance(entry, dict) for entry in written)):
            raise BadSetting("rule", "expected tables [[rule]]", written)
    rules: dict[str, GateRule] = {}
    for number, entry in enumerate(written, start=1):
        label = repr(entry["name"]) if isinstance(entry.get("name"), str) else number
        with _as_bad_usage(f"{path}: rule {label}: "):
            rule = _rule(entry, tables)
            if rule.name in rules or rule.name in findings:
                whose = "another rule" if rule.name in rules else "a finding"
                raise BadSetting("name", f"but {whose} has this name; choose another", rule.name)
            rules[rule.name] = rule
    with _as_bad_usage(f"{path}: "):
        base = _base(content.get("base"), file.parent)
    return RuleFile(file, fail_on, base, tuple(rules.values()), **overrides)


@contextmanager
def _as_bad_usage(place: str = "") -> Iterator[None]:
    """Turn errors inside the context into a `BadUsage` that names `place` (the file and the rule)."""
    try:
        yield
    except BadUsage:
        raise
    except BadSetting as error:
        raise BadUsage(error.message(_key, place)) from error
    except InputError as error:
        raise BadUsage(f"{place}{error}") from error


def _key(name: str) -> str:
    """Return the key of a field as messages show it. The key "is" is in quotes, because it is a verb."""
    key = TOML_KEYS.get(name, name)
    return '"is"' if key == "is" else key


def _require_known(name: str, names: Iterable[str], what: str = "key", where: str = "") -> None:
    if name not in names:
        raise InputError(f"unknown {what} {name}{where}; {nearest(name, names)}")


def _one_of(key: str, value: Any, choices: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise BadSetting(key, f"expected one of {', '.join(choices)}", value)
    return value


def _findings(written: Any, findings: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(written, dict):
        raise BadSetting("findings", "expected a table [findings]", written)
    if written and not findings:
        raise InputError("only attnlaw check can use the section [findings]; remove it")
    for key in written:
        _require_known(key, NO_FINDINGS, where=" in [findings]")
    ignore, levels, thresholds = (written.get(key, none) for key, none in NO_FINDINGS.items())
    if not isinstance(ignore, list) or not all(isinstance(name, str) for name in ignore):
        raise BadSetting("ignore", "expected a list with the names of findings", ignore)
    for key, table in (("levels", levels), ("thresholds", thresholds)):
        if not isinstance(table, dict):
            raise BadSetting(key, "expected a table whose keys are names of findings", table)
    for name in (*ignore, *levels, *thresholds):
        _require_known(name, findings, "finding")
    for name, level in levels.items():
        _one_of(f"levels.{name}", level, (OFF, *LEVELS))
    for name, value in thresholds.items():
        rule = findings[name]
        if rule.threshold is None:
            raise BadSetting(
                f"thresholds.{name}", "sets a threshold, but this check has none; remove the line"
            )
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < rule.least:
            raise BadSetting(f"thresholds.{name}", f"expected a number of at least {rule.least:g}", value)
    return {"ignore": tuple(ignore), "levels": levels, "thresholds": thresholds}


def _rule(written: Mapping[str, Any], tables: Tables) -> GateRule:
    fields = {TOML_KEYS.get(name, name): name for name in setting_fields(RuleText)}
    for name in written:
        _require_known(name, fields)
    rule = RuleText.parse({fields[name]: value for name, value in written.items()}, "a rule")
    if not rule.name.strip():
        raise BadSetting("name", "expected a name", rule.name)
    if rule.table == "steps" and "steps" not in tables:
        raise InputError(
            "it reads the table steps, which only a training run has; give these rules to "
            "SpectralMonitor(rules=...)"
        )
    if rule.table not in tables:
        raise BadSetting(
            "of", f"but attnlaw has no such table here; expected one of {', '.join(tables)}", rule.table
        )
    columns = _columns(tables[rule.table])
    column = _column(rule.column, columns, rule.table)
    if rule.against == FIRST and rule.table != "steps":
        raise BadSetting("against", 'which works only with of = "steps"; write "baseline"', FIRST)
    if rule.against == BASELINE and rule.table == "steps":
        raise BadSetting(
            "against", 'but the steps of a training run have no baseline; write "first"', BASELINE
        )
    if column.kind not in (*NUMBERS, "bool") and rule.over not in (None, "count"):
        raise BadSetting(
            "over", f'but {column.name} holds {column.kind} and not numbers; write "count"', rule.over
        )
    if column.kind not in NUMBERS and rule.against is not None:
        raise BadSetting(
            "against",
            f"but {column.name} does not hold numbers, so it cannot change by a percentage; remove this key",
            rule.against,
        )
    condition = read_condition(rule.condition, column, rule.over is not None or rule.against is not None)
    where, layers = _where(rule.where, columns, rule.table)
    judged = rule.over, rule.mostly, rule.against, rule.level, rule.missing
    return GateRule(rule.name, rule.table, column, condition, where, layers, *judged)


def _columns(quantities: Iterable[Quantity]) -> dict[str, Quantity]:
    """Return all columns by name, including the columns of errors and of the ends of ranges."""
    return {
        name: quantity if name == quantity.name else Quantity(name, kind=kind)
        for quantity in quantities
        for name, kind in quantity.columns.items()
    }


def _column(name: str, columns: Mapping[str, Quantity], table: str) -> Quantity:
    _require_known(name, columns, "column", f" in table {table}")
    if columns[name].kind not in (*NUMBERS, "text", "bool"):
        raise InputError(f"the column {name} holds lists; choose a column that has one value in each row")
    return columns[name]


def _where(
    written: Any, columns: Mapping[str, Quantity], table: str
) -> tuple[dict[str, tuple[Any, ...]], str | tuple[int, ...] | None]:
    if written is None:
        return {}, None
    if not isinstance(written, dict):
        raise BadSetting(
            "where", "expected a table whose keys are columns and whose values are allowed", written
        )
    allowed: dict[str, tuple[Any, ...]] = {}
    layers = None
    for name, value in written.items():
        column, values = _column(name, columns, table), value if isinstance(value, list) else [value]
        if name == "layer":
            layers = _layers(value)
        else:
            allowed[name] = tuple(read_value(f"where.{name}", each, column.kind, column) for each in values)
    return allowed, layers


def _layers(value: Any) -> str | tuple[int, ...]:
    several = value if isinstance(value, list) else [value]
    plain = all(isinstance(layer, int) and not isinstance(layer, bool) for layer in several)
    if not plain and not (isinstance(value, str) and ":" in value):
        raise BadSetting(
            "where.layer", 'expected a number, a list of numbers, or a slice such as "0:-1"', value
        )
    if isinstance(value, str):
        layer_range(value, depth=1)
        return value
    return tuple(several)


def _base(value: Any, folder: Path) -> str | None:
    """Return the base of a rule file: a path relative to the file if it exists, otherwise a hub id."""
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise BadSetting("base", "expected a path, or owner/name on a model hub", value)
    path = folder / value
    return str(path) if os.path.lexists(path) else value


def read_condition(written: Any, column: Quantity, numeric: bool = False) -> RuleCondition:
    """Return a condition such as `"< 0.25"` on a column. Counts and changes are `numeric`."""
    kind = "float" if numeric else column.kind
    if isinstance(written, list) and written:
        return RuleCondition("in", tuple(read_value("is", value, kind, column) for value in written))
    match = WRITTEN.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        raise BadSetting("is", EXPECTED, written)
    operator, text = match.groups()
    if kind in NUMBERS:
        return RuleCondition(operator, (_number(text, written),))
    if operator not in ("==", "!="):
        raise BadSetting("is", f"but {column.name} does not hold numbers; expected ==, != or a list", written)
    value = {"true": True, "false": False}.get(text, text) if kind == "bool" else text.strip("\"'")
    value = read_value("is", value, kind, column)
    # A rule of an earlier version must go on to forbid what its word included then.
    split = [
        name for name, choice in (column.choices or {}).items() if value in getattr(choice, "formerly", ())
    ]
    if operator == "!=" and split:
        return RuleCondition("not in", (value, *split))
    return RuleCondition(operator, (value,))


def read_value(key: str, value: Any, kind: str, column: Quantity) -> Any:
    fits = {"text": isinstance(value, str), "bool": isinstance(value, bool)}
    number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    if not fits.get(kind, number):
        words = {"text": "texts", "bool": "true or false"}.get(kind, "numbers")
        raise BadSetting(key, f"but {column.name} holds {words}", value)
    if kind == "text" and column.choices is not None and value not in column.choices:
        raise BadSetting(key, nearest(value, column.choices), value)
    return value if kind in fits else float(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion: the known name that is most similar to a name, or a list of all known names."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"expected one of {', '.join(names)}"


def _number(text: str, written: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise BadSetting("is", EXPECTED, written)
    return number
