"""What tests read off charts and pages: rows inside a specification, data of a page, audits as rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert

from attnlaw.core.quantity import column_kinds
from attnlaw.core.tables import to_frame, to_schema
from attnlaw.core.verb import Verb
from attnlaw.render.charts.data import ChartData
from attnlaw.render.charts.draw import draw_figures
from attnlaw.render.charts.figure import Figure
from attnlaw.render.charts.style import with_house_style
from attnlaw.verbs.audit.frames import AuditRows


def as_rows(audit: Any) -> AuditRows:
    """An audit as a report reads it."""
    return AuditRows(audit.summaries, audit.tables())


def spec_of(chart: Any) -> Any:
    """The compiled specification as plain JSON (no NaN)."""
    return json.loads(json.dumps(with_house_style(chart).to_dict(), allow_nan=False))


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


def source(
    verb: Verb[Any, Any],
    rows: list[dict[str, Any]],
    tables: dict[str, list[dict[str, Any]]] | None = None,
    beside: list[dict[str, Any]] | None = None,
    beside_tables: dict[str, list[dict[str, Any]]] | None = None,
) -> ChartData:
    """Rows as a study has them, of a verb and of that beside it; tasks are t0, t1, ... and b0, b1, ..."""
    second = None
    if beside is not None and verb.simulation is not None:
        second = _of(verb.simulation, beside, beside_tables or {}, "b", None)
    return _of(verb, rows, tables or {}, "t", second)


def _of(verb: Verb[Any, Any], rows: Any, tables: Any, letter: str, beside: ChartData | None) -> ChartData:
    placed = [
        {"verb": verb.name, "status": "done", "task": f"{letter}{i}", **row} for i, row in enumerate(rows)
    ]
    schema = {"task": pl.String(), **to_schema(verb.schema)}
    made = {
        table.name: to_frame(
            tables.get(table.name, []), {"task": pl.String(), **to_schema(column_kinds(table.columns))}
        )
        for table in verb.tables
    }
    return ChartData(verb, to_frame(placed, schema), made, "task", beside)


def named(data: ChartData) -> dict[str, Figure]:
    """The figures of a source, by name."""
    return {figure.name: figure for figure in draw_figures(data)}


def study_of(folder: Path, rows: list[dict[str, Any]] | pl.DataFrame) -> Path:
    """The directory of a study with these rows."""
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    table = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows, infer_schema_length=None)
    table.write_parquet(folder.absolute() / "rows" / "rows.parquet")
    return folder
