"""Figures of a study's rows: what varied decides what is drawn. Rows are those of `rows/rows.parquet`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from attnlaw.report.figure import Figure
from attnlaw.report.learn_figures import learn_figures, trained_figures
from attnlaw.report.limit_figures import limit_figures
from attnlaw.report.saved import short_names
from attnlaw.report.series_charts import series_chart


def study_figures(rows: pl.DataFrame, folder: Path) -> list[Figure]:
    """Whatever the finished rows of a study allow; `folder` has the tables beside them."""
    done = rows.filter(pl.col("status") != "failed")
    verbs = set(done["verb"])
    figures: list[Figure] = []
    if "learn" in verbs:
        trained = done.filter(pl.col("verb") == "learn.simulate")
        figures += learn_figures(done.filter(pl.col("verb") == "learn"), trained, folder)
    elif "learn.simulate" in verbs:
        figures += trained_figures(done.filter(pl.col("verb") == "learn.simulate"))
    if "limit" in verbs:
        figures += limit_figures(done.filter(pl.col("verb") == "limit"), folder)
    if "audit" in verbs:
        figures += _audits(done.filter(pl.col("verb") == "audit"))
    return _numbered(figures)


def _audits(rows: pl.DataFrame) -> Iterator[Figure]:
    """The proxies of all audited models; their matrices are in the tables beside the rows."""
    known = rows.filter(pl.col("log10_spectrum_adaptive").is_not_null())
    if known.height:
        names = [name for name in known.columns if name.startswith("log10_")]
        labels = short_names(known["model"])
        long = known.unpivot(names, index="model", variable_name="series", value_name="log10").with_columns(
            pl.col("model").replace_strict(labels),
            pl.col("series").str.strip_prefix("log10_").str.replace_all("_", " "),
        )
        caption = (
            "Proxies are leading factors of bounds: compare models along one colour; they are not guarantees."
        )
        yield Figure(
            "proxies",
            "Proxies of all models",
            caption,
            partial(series_chart, long, "model", "log10", "log10 proxy"),
        )


def _numbered(figures: list[Figure]) -> list[Figure]:
    """The figures, with numbers behind a name that several have."""
    many = Counter(figure.name for figure in figures)
    places: Counter[str] = Counter()
    named = []
    for figure in figures:
        places[figure.name] += 1
        ending = f"_{places[figure.name]}" if many[figure.name] > 1 else ""
        named.append(replace(figure, name=f"{figure.name}{ending}"))
    return named
