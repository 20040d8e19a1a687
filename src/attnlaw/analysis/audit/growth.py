"""How proxies grow with depth and width over the models of an audit (arXiv 2605.07297).

The rows are those of an audit: one row for each model, with its depth, hidden size and proxies.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import polars as pl

from attnlaw.core.estimate import Outcome, format_with_error
from attnlaw.core.quantity import Quantity, cells_to_json
from attnlaw.core.result import Result
from attnlaw.core.tables import quantity_frame
from attnlaw.theory.bounds import BOUNDS
from attnlaw.theory.bounds.proxy_growth import LEAST_MODELS, growth, why_no_growth

EXPONENTS = (
    Quantity("proxy", "name of the generalization proxy", kind="text", choices=BOUNDS),
    Quantity(
        "depth", "exponent of the power law with which the generalization proxy grows with depth", error=True
    ),
    Quantity(
        "width", "exponent of the power law with which the generalization proxy grows with width", error=True
    ),
    Quantity(
        "residual",
        "typical distance of a model from the fitted power law: standard deviation of log10 of the proxy",
    ),
    Quantity(
        "seed_spread",
        "typical difference between models of equal size: standard deviation of log10 of the proxy",
    ),
    Quantity(
        "exponential",
        "whether the proxy grows exponentially with depth and not as a power law (judged by the better fit)",
        kind="bool",
    ),
)
ADAPTIVE, NORM_BASED = "spectrum_adaptive", "edelman"  # the proxies that the sentence compares
NO_DIGITS = ".3g"  # format of an exponent without an error


def growth_reason(rows: pl.DataFrame) -> str | None:
    """Return the reason why the growth of the proxies cannot be fitted, or None if it can."""
    counted = _counted(rows)
    for row in counted.iter_rows(named=True) if counted.height >= LEAST_MODELS else ():
        if row[f"log10_{ADAPTIVE}"] is None or row["depth"] is None or row["hidden_size"] is None:
            why = row["remark"] or "it has several towers" if "remark" in row else "its proxies are not known"
            return f"no growth: {row['model']} has no proxies ({why.removeprefix('no proxies: ')})"
    reason = why_no_growth(counted["depth"], counted["hidden_size"])
    if reason is None:
        return None
    twice = "; the same checkpoint counts once" if counted.height < _finished(rows).height else ""
    return f"no growth: {reason}{twice}"


def growth_table(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the exponents of every proxy over three models or more, with the columns of `EXPONENTS`.

    >>> rows = pl.DataFrame({"depth": [2, 4, 8], "hidden_size": [64] * 3, "log10_edelman": [3.0, 6.0, 12.0]})
    >>> growth_table(rows).select("proxy", "width", "exponential").rows()
    [('edelman', None, True)]
    """
    rows = _counted(rows)
    fits = []
    for name in BOUNDS:
        column = f"log10_{name}"
        if column in rows.columns and rows[column].null_count() == 0:
            fit = growth(rows["depth"], rows["hidden_size"], rows[column])
            fits.append({"proxy": name, **vars(fit)})
    return quantity_frame(EXPONENTS, fits)


def growth_summary(result: Result) -> dict[str, Any]:
    """Return the keys that the JSON of three models or more has for their growth. Fewer have none."""
    if _finished(result.rows).height < LEAST_MODELS:
        return {}
    reason = growth_reason(result.rows)
    if reason is not None:
        return {"growth": None, "growth_remark": reason}
    table = growth_table(result.rows)
    lines = [cells_to_json(EXPONENTS, line) for line in table.iter_rows(named=True)]
    return {"growth": lines, "growth_remark": growth_sentence(result.rows, table)}


def growth_sentence(rows: pl.DataFrame, table: pl.DataFrame) -> str:
    """Return the exponents of the spectrum-adaptive and the norm-based proxy, with warnings, in sentences."""
    return " ".join([_exponents_sentence(rows, table), *_warnings(_counted(rows), table)])


def _warnings(rows: pl.DataFrame, table: pl.DataFrame) -> list[str]:
    """Return sentences that say why not to rely on the exponents."""
    lines = []
    exponents = [name for name in ("depth", "width") if table[name].count()]
    if table["residual"].null_count():
        lines.append(
            f"The exponents have no errors: {rows.height} models only determine {len(exponents) + 1} numbers."
        )
    families = sorted(rows["family"].drop_nulls().unique()) if "family" in rows.columns else []
    if len(families) > 1:
        lines.append(
            f"The models belong to different families ({', '.join(families)}), which also changes the "
            "exponents."
        )
    lines += [
        f"{row['model']} has matrices of zeros, so its proxies mean nothing. Leave it out."
        for row in rows.iter_rows(named=True)
        if _is_degenerate(row)
    ]
    return lines


def _is_degenerate(row: Mapping[str, Any]) -> bool:
    """Return whether the amplification of a model or all its ranks are zero."""
    ranks = row.get("log10_fixed_p_0")
    zero = ranks is not None and ranks <= 0.5 * math.log10(row["depth"]) + 1e-9
    return zero or row.get("log10_amplification", 0.0) is None


def _exponents_sentence(rows: pl.DataFrame, table: pl.DataFrame) -> str:
    fits = {row["proxy"]: row for row in table.iter_rows(named=True)}
    words = (
        f"Over {_counted(rows).height} models the spectrum-adaptive proxy grows as {_power(fits[ADAPTIVE])}"
    )
    if NORM_BASED not in fits:
        return f"{words}."
    words = f"{words}, the norm-based one as {_power(fits[NORM_BASED])}."
    if fits[NORM_BASED]["exponential"]:
        low, high = (
            int(end) for end in rows.select(pl.col("depth").min(), high=pl.col("depth").max()).row(0)
        )
        words += (
            " Norm-based proxies grow exponentially with depth, so their exponent is only an average "
            f"over depths {low} to {high}."
        )
    return words


def exponent_text(row: Mapping[str, Any], name: str) -> str:
    """Return an exponent with its error in parentheses, or an empty text if there is no exponent.

    >>> exponent_text({"depth": 1.3316, "depth_error": 0.0029}, "depth")
    '1.332(3)'
    """
    if row[name] is None:
        return ""
    error = row[f"{name}_error"]
    return format_with_error(row[name], error) if error and error > 1e-9 else format(row[name], NO_DIGITS)


def _power(row: Mapping[str, Any]) -> str:
    exponents = {name: exponent_text(row, name) for name in ("depth", "width")}
    return " ".join(f"{name}^{text}" for name, text in exponents.items() if text)


def _counted(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the finished rows. The same checkpoint with the same adapter and layers counts once."""
    rows = _finished(rows)
    if "model" not in rows.columns:
        return rows
    paths = pl.Series("path", [model and os.path.realpath(model) for model in rows["model"]], pl.String)
    key = ["path", *(name for name in ("adapter", "layers") if name in rows.columns)]
    return rows.with_columns(paths).unique(key, keep="first", maintain_order=True).drop("path")


def _finished(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("status") != str(Outcome.FAILED)) if "status" in rows.columns else rows
