"""Names for the models of a result of audit, fit or diff."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import polars as pl

from attnlaw.core.result import Result
from attnlaw.core.tables import unique_names


def model_names(result: Result) -> list[str]:
    """Return a unique name for the model of each case.

    The name is the one in the table of matrices, with a number if it is not unique. For a case without
    matrices, it is the path that the user gave.
    """
    table = result.tables.get("matrices")
    known = {} if table is None else dict(table.select("case", "model").unique("case").iter_rows())
    return unique_names(known.get(case, given) for case, given in enumerate(result.rows["model"]))


def lines_about_models(lines_by_model: Mapping[str, Iterable[str]]) -> list[str]:
    """Return each line once. If it does not hold for all models, it starts with the names of its models."""
    models_by_line: dict[str, list[str]] = {}
    for model, lines in lines_by_model.items():
        for line in lines:
            models_by_line.setdefault(line, []).append(model)
    return [
        line if len(models) == len(lines_by_model) else f"{', '.join(models)}: {line}"
        for line, models in models_by_line.items()
    ]


def name_models(result: Result) -> Result:
    """Return the result with models named as by `model_names`, in rows and tables."""
    models = pl.Series("model", model_names(result), dtype=pl.String)
    tables = {
        name: table.with_columns(models.gather(table["case"])) if "model" in table.columns else table
        for name, table in result.tables.items()
    }
    return replace(result, rows=result.rows.with_columns(models), tables=tables)
