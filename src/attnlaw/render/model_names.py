"""What the models of an audit, a fit or a diff are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from attnlaw.core.result import Result


def model_names(result: Result) -> list[str]:
    """Return a name for each case, no two alike: that of its matrices, with a number if it is taken.

    A case without matrices is called as it was given.
    """
    from attnlaw.core.tables import unique_names

    table = result.tables.get("matrices")
    pairs = [] if table is None else table.select("case", "model").unique("case").iter_rows()
    known = dict(pairs)
    return unique_names(known.get(case, given) for case, given in enumerate(result.rows["model"]))


def lines_about_models(lines_by_model: Mapping[str, Iterable[str]]) -> list[str]:
    """Return every line once, after the names of its models unless it is about all of them."""
    models_by_line: dict[str, list[str]] = {}
    for model, lines in lines_by_model.items():
        for line in lines:
            models_by_line.setdefault(line, []).append(model)
    return [
        line if len(models) == len(lines_by_model) else f"{', '.join(models)}: {line}"
        for line, models in models_by_line.items()
    ]


def name_models(result: Result) -> Result:
    """Return the result whose rows and tables call the models as `model_names` does."""
    import polars as pl

    models = pl.Series("model", model_names(result), dtype=pl.String)
    tables = {
        name: table.with_columns(models.gather(table["case"])) if "model" in table.columns else table
        for name, table in result.tables.items()
    }
    return replace(result, rows=result.rows.with_columns(models), tables=tables)
