"""What tests read off charts and pages: rows inside a specification, data of a page; results made of rows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert

from attnlaw.core.quantity import column_kinds
from attnlaw.core.result import MANIFEST, ROWS, Result
from attnlaw.core.tables import to_frame, to_schema
from attnlaw.core.verb import Verb
from attnlaw.core.version import version
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.style import house_spec
from attnlaw.verbs.views import figures_of, page_of


def spec_of(chart: Any) -> Any:
    """The compiled specification as plain JSON (no NaN)."""
    return json.loads(json.dumps(house_spec(chart), allow_nan=False))


def values_of(spec: Any) -> list[list[dict[str, Any]]]:
    """All inline rows of a specification, panel by panel in the order of the figure."""
    panels: list[list[dict[str, Any]]] = []
    if isinstance(spec, dict):
        if isinstance(spec.get("data"), dict) and "values" in spec["data"]:
            panels.append(json.loads(spec["data"]["values"]))
        for value in spec.values():
            panels += values_of(value)
    elif isinstance(spec, list):
        for value in spec:
            panels += values_of(value)
    return panels


def layers(figure: Figure) -> list[tuple[str, list[dict[str, Any]]]]:
    """The mark and the rows of every layer; rows that all share stand in the chart itself."""
    chart = figure.draw().to_dict()
    return [
        (layer["mark"]["type"], json.loads(layer.get("data", chart.get("data"))["values"]))
        for layer in chart["layer"]
    ]


def drawn(figure: Figure, mark: str = "point") -> list[dict[str, Any]]:
    """The rows of the first layer of a mark."""
    return next(rows for kind, rows in layers(figure) if kind == mark)


def assert_renders(spec: Any) -> None:
    content = vl_convert.vegalite_to_png(spec)
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.rstrip().endswith(b"IEND\xaeB`\x82")
    assert len(content) > 5000


def data_of(page: str | Path) -> Any:
    """The data of a page as its script reads them."""
    source = page.read_text(encoding="utf-8") if isinstance(page, Path) else page
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', source, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


def page_html(result: Result) -> str:
    """The page of a result."""
    return page_of(result, figures_of(result))


def with_tables(result: Result, **tables: pl.DataFrame) -> Result:
    """The result with other tables of some names."""
    return replace(result, tables={**result.tables, **tables})


def result_of(
    verb: Verb[Any, Any],
    rows: list[dict[str, Any]],
    tables: dict[str, list[dict[str, Any]]] | None = None,
    simulated: list[dict[str, Any]] | None = None,
    simulated_tables: dict[str, list[dict[str, Any]]] | None = None,
) -> Result:
    """A result with these rows, and tables whose lines have a `case`; beside it that of its simulation."""
    simulation = None
    if simulated is not None and verb.simulation is not None:
        simulation = result_of(verb.simulation, simulated, simulated_tables)
    done = {"verb": verb.name, "status": "done"}
    frames = {
        spec.name: to_frame(lines, {"case": pl.Int64(), **to_schema(column_kinds(spec.columns))})
        for spec in verb.tables
        if (lines := (tables or {}).get(spec.name))
    }
    frame = to_frame([done | row for row in rows], to_schema(verb.schema))
    return Result(verb, frame, frames, simulation=simulation)


def named(result: Result) -> dict[str, Figure]:
    """The figures of a result, by name."""
    return {figure.name: figure for figure in figures_of(result)}


def study_of(folder: Path, rows: list[dict[str, Any]] | pl.DataFrame) -> Path:
    """The directory of a result with these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    table = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows, infer_schema_length=None)
    verb = table["verb"][0] if "verb" in table.columns and table.height else "learn"
    (folder / MANIFEST).write_text(json.dumps({"verb": verb, "version": version()}))
    table.write_parquet(folder.absolute() / ROWS)
    return folder
