"""The summary of an audit as one flat row of a study, and back.

| column                          | holds                                                                  |
|---------------------------------|------------------------------------------------------------------------|
| `log10_NAME`                    | log10 of a proxy; `log10_fixed_p_P` of that with one index P for all   |
| `per_application_log10_NAME`    | the same with shared layers counted once for each application          |
| `proxy_over_sqrt_samples_log10` | log10 of the spectrum-adaptive proxy over sqrt(samples)                |
| `error_of_COLUMN`               | the error of one of these, where singular values were approximated     |

Other columns are called as in the summary, but for `depth` (its `layers`), `head_count` and `matrix_count`.
"""

from __future__ import annotations

from typing import Any

RENAMED = {"layers": "depth", "heads": "head_count", "matrices": "matrix_count"}
PLAIN = (
    *("family", "layers", "distinct_layers", "hidden_size", "heads", "matrices", "activation"),
    *("value_of_adaptivity", "value_of_adaptivity_error", "rank_count", "extensions", "warnings", "meaning"),
)
# What the columns of the proxies, and of those per application, begin with.
PROXIES = {"proxies": "log10_", "per_application": "per_application_log10_"}
OVER_SAMPLES = "proxy_over_sqrt_samples_log10"
# What the row of every audit has.
COLUMNS = (
    *(RENAMED.get(name, name) for name in PLAIN),
    *(f"{prefix}spectrum_adaptive" for prefix in PROXIES.values()),
    OVER_SAMPLES,
)


def to_row(summary: dict[str, Any]) -> dict[str, Any]:
    """The columns of a summary: all of `COLUMNS`, null where it has nothing, and of what it has, the rest."""
    row = dict.fromkeys(COLUMNS) | {RENAMED.get(name, name): summary.get(name) for name in PLAIN}
    for name, prefix in PROXIES.items():
        proxies = dict(summary[name] or {})
        fixed = proxies.pop("fixed_p", {})
        for key, value in (proxies | {f"fixed_p_{p}": value for p, value in fixed.items()}).items():
            row |= _columns(f"{prefix}{key}", value)
    if "samples" in summary:
        row |= _columns(OVER_SAMPLES, summary["proxy_over_sqrt_samples"])
    return row


def from_row(row: dict[str, Any], model: str) -> dict[str, Any]:
    """The summary of `model` whose row a study keeps, without the amplification per depth."""
    summary = {"model": model} | {name: row[RENAMED.get(name, name)] for name in PLAIN}
    for name, prefix in PROXIES.items():
        values = {
            column.removeprefix(prefix): _value(row, column) for column in row if column.startswith(prefix)
        }
        fixed = {key.removeprefix("fixed_p_"): values.pop(key) for key in list(values) if "fixed_p_" in key}
        known = row[f"{prefix}spectrum_adaptive"] is not None
        summary[name] = {**values, "fixed_p": fixed} if known else None
    if row[OVER_SAMPLES] is not None:
        summary |= {"samples": row["samples"], "proxy_over_sqrt_samples": _value(row, OVER_SAMPLES)}
    return summary | {"attnlaw_version": row["attnlaw_version"]}


def _columns(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """A value, and its error where it has one, in columns.

    >>> _columns("log10_edelman", {"log10": 2.0, "error": 0.1})
    {'log10_edelman': 2.0, 'error_of_log10_edelman': 0.1}
    """
    return {name: value["log10"]} | ({f"error_of_{name}": value["error"]} if "error" in value else {})


def _value(row: dict[str, Any], name: str) -> dict[str, Any]:
    """The value and the error that stand in the columns of a row.

    >>> _value({"log10_edelman": 2.0, "error_of_log10_edelman": None}, "log10_edelman")
    {'log10': 2.0}
    """
    error = row.get(f"error_of_{name}")
    return {"log10": row[name]} | ({} if error is None else {"error": error})
