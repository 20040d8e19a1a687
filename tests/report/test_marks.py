"""What charts are drawn with: marks hold the rows they were given, and they render in every format."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from report.charts_of import named, result_of

from attnlaw.analysis.fit import LAWS
from attnlaw.render.charts.cells import Shades, draw_field
from attnlaw.render.charts.densities import draw_spectrum
from attnlaw.render.charts.lines import draw_lines
from attnlaw.render.charts.paper import COLUMN, WIDTH_TOLERANCE, save_chart
from attnlaw.render.charts.style import inline_svg, palette
from attnlaw.render.output_options import ENDINGS
from attnlaw.verbs import find_verb
from attnlaw.verbs.limit.charts import draw_densities
from attnlaw.verbs.margins.charts import bars_by_place

NO_DENSITY = pl.DataFrame(schema={"x": pl.Float64, "density": pl.Float64, "detail": pl.Int64})


def legend(chart: Any, folder: Path) -> set[str]:
    """The words beside the symbols of the legends as drawn."""
    drawn = ElementTree.parse(save_chart(chart, folder / "legend.svg"))
    labels = drawn.iterfind(".//{*}g[@class='mark-text role-legend-label']//{*}text")
    return {text.text or "" for text in labels}


def rows_of(layer: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(layer["data"]["values"])
    return rows


LINES = pl.DataFrame(
    {"x": [0.1, 0.2, 0.1, 0.2], "y": [1.0, 0.8, 0.5, 0.3], "series": ["direct"] * 2 + ["bayes"] * 2}
).with_columns(error=pl.lit(None, pl.Float64))


def test_curves_layer_lines_points_and_thresholds(tmp_path: Path) -> None:
    points = LINES.head(1).with_columns(size=pl.lit("trained, d = 20"), error=pl.lit(0.1))
    thresholds = pl.DataFrame({"x": [0.15, 0.9], "name": ["recovery", "beyond the axis"]})
    colours = palette(LINES["series"])
    chart = draw_lines(LINES, "alpha", "error", colours, points=points, thresholds=thresholds)
    assert len(chart.to_dict()["layer"]) == 5  # line, rule and its name, bar, point
    assert legend(chart, tmp_path) == {"direct", "bayes", "theory", "trained, d = 20"}
    text = json.dumps(chart.to_dict())
    assert "recovery" in text
    assert "beyond the axis" not in text
    assert save_chart(draw_lines(LINES, "alpha", "error", colours), tmp_path / "c.svg").stat().st_size > 2000


def test_logarithmic_axes_keep_bars_above_zero(tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {"x": [16, 64, 256], "y": [0.02, 0.002, -1e-6], "error": [1e-3, 5e-3, 1e-5], "series": ["KL"] * 3}
    )
    chart = draw_lines(rows, "width n", "KL", {"KL": "black"}, log=True, slope=-2)
    shown = rows_of(chart.to_dict()["layer"][1] | {"data": chart.to_dict()["layer"][1]["data"]})
    assert [row["x"] for row in shown] == [16, 64]  # a value below zero has no logarithm
    assert all(0 < row["low"] < row["y"] < row["high"] for row in shown)
    assert "slope −2" in json.dumps(chart.to_dict(), ensure_ascii=False)
    assert "slope" not in json.dumps(draw_lines(rows, "n", "KL", {"KL": "black"}, log=True).to_dict())
    save_chart(chart, tmp_path / "kl.svg")
    guide, *points = chart.to_dict()["layer"]
    assert {(row["x"], row["slope"]) for row in rows_of(guide)} == {(16, "slope −2"), (64, "slope −2")}
    # The guide replaces a line through the points, and the legend names it: no label can cover a bar.
    assert {layer["mark"]["type"] for layer in points} == {"rule", "point"}


def test_names_of_places_are_turned_only_where_they_have_no_room() -> None:
    def angle(places: list[str]) -> float:
        rows = pl.DataFrame({"series": "m", "place": places, "kappa": [2.0] * len(places)})
        encoding = bars_by_place(rows, str, {"m": "black"}).to_dict()["encoding"]
        return float(encoding["x"]["axis"]["labelAngle"])

    assert angle(["0", "1", "2", "3", "lm_head"]) == 0
    assert angle([*map(str, range(24)), "lm_head"]) != 0


def test_a_histogram_keeps_the_weight_of_the_atom_out(tmp_path: Path) -> None:
    density = pl.DataFrame({"x": [0.0, 1.0], "density": [0.5, 0.0], "detail": [0, 0]})
    values = np.concatenate([np.zeros(60), np.random.default_rng(0).random(40)]).tolist()
    chart = draw_spectrum(density, "x", values, atom=0.58, outliers=(1.4,), name="trained, d = 40")
    bars = rows_of(chart.to_dict()["layer"][0])
    area = sum(bar["height"] * (bar["right"] - bar["left"]) for bar in bars)
    assert area == pytest.approx(0.4, rel=1e-12)
    assert chart.to_dict()["title"] == "weight at zero: predicted 0.580, trained 0.600"
    assert legend(chart, tmp_path) == {"theory", "trained, d = 40", "outlier, theory"}


@pytest.mark.parametrize("kept", [[], [0.3]])
def test_a_spectrum_that_was_cut_entirely(kept: list[float], tmp_path: Path) -> None:
    values = [0.0, 0.0, *kept]
    chart = draw_spectrum(NO_DENSITY, "x", values, atom=1.0, name="trained")
    bars = rows_of(chart.to_dict()["layer"][0])
    area = sum(bar["height"] * (bar["right"] - bar["left"]) for bar in bars)
    assert area == pytest.approx(len(kept) / len(values))
    drawn = ElementTree.parse(save_chart(chart, tmp_path / "cut.svg")).getroot()
    assert float(drawn.attrib["viewBox"].split()[2]) == pytest.approx(COLUMN, abs=WIDTH_TOLERANCE)


def test_a_field_clips_and_covers_the_grid(tmp_path: Path) -> None:
    rows = pl.DataFrame({"x": [0.1, 0.1, 0.2, 0.2], "y": [0.1, 0.2] * 2, "colour": [1.2, 0.5, 1.1, 0.0]})
    lines = pl.DataFrame({"x": [0.1, 0.2], "y": [0.15, 0.2], "name": ["recovery"] * 2})
    chart = draw_field(rows, lines, "rank", "alpha", "error", Shades(domain=(0.0, 1.0)))
    heat = chart.to_dict()["layer"][0]
    assert heat["encoding"]["x"]["title"] == "rank"
    assert max(cell["shown"] for cell in rows_of(heat)) == 1.0
    assert save_chart(chart, tmp_path / "phase.pdf").stat().st_size > 2000


def densities(ratio: str | None) -> Any:
    rows = pl.DataFrame(
        [
            {"x": x, "density": math.exp(-x * x), "ratio": 1.0, "series": series}
            for series in ("16", "1024", "∞")
            for x in (-1.0, 0.0, 1.0)
        ]
    )
    return draw_densities(rows, "y", palette(rows["series"]), "width n", ratio, "heads 2")


@pytest.mark.parametrize("ending", ENDINGS)
def test_densities_are_saved_in_every_format(tmp_path: Path, ending: str) -> None:
    path = save_chart(densities("density relative to the limit"), tmp_path / f"densities.{ending}")
    assert path.stat().st_size > 1000


def test_the_limit_is_dashed_and_an_empty_panel_left_out() -> None:
    full, plain = (densities(ratio).to_dict() for ratio in ("density relative to the limit", None))
    dash = full["hconcat"][0]["encoding"]["strokeDash"]["scale"]
    assert dict(zip(dash["domain"], dash["range"], strict=True))["∞"] == [5, 3]
    assert (len(full["hconcat"]), len(plain["hconcat"])) == (2, 1)


def fits() -> Any:
    """A map of laws: heads, matrices without heads, experts, and one beside the layers."""
    place = {"case": 0, "model": "some/model", "kind": "qk"}
    heads = [
        place | {"layer": layer, "head": head, "law": "random" if head else "learned"}
        for layer in range(2)
        for head in range(3)
    ]
    plain = [place | {"kind": "ffn_in", "layer": layer, "law": "neither"} for layer in range(2)]
    experts = [plain[0] | {"kind": "ffn_out", "expert": expert} for expert in range(4)]
    outside = [place | {"kind": "embedding", "law": "neither"}]
    return [*heads, *plain, *experts, *outside]


def test_a_map_has_a_cell_for_every_head_and_matrix_of_a_layer(tmp_path: Path) -> None:
    figure = named(result_of(find_verb("fit"), [{"model": "some/model"}], {"fits": fits()}))["laws"]
    chart = figure.draw()
    panels = chart.to_dict()["hconcat"]
    cells = [rows_of(panel) for panel in panels]
    assert [len(panel) for panel in cells] == [6, 2, 4]
    assert {cell["colour"] for cell in cells[0]} == {"random", "learned"}
    assert [panel["encoding"]["x"].get("title") for panel in panels] == ["head", None, "expert"]
    assert panels[1]["encoding"]["x2"] == {"value": "width"}  # as wide as its panel, scaled or not
    assert [panel["title"]["text"].strip() for panel in panels] == ["QK", "FFN in", "FFN out"]
    laws = ["random", "learned", "heavy-tailed", "power-law tail", "power-law spectrum", "neither"]
    domain = panels[0]["encoding"]["color"]["scale"]["domain"]
    assert domain == list(LAWS)
    assert [law for law in domain if law in laws] == laws
    assert "</svg>" in save_chart(chart, tmp_path / "map.svg").read_text()


@pytest.mark.parametrize("kind", ["qk", "ffn_in"])
def test_a_map_narrower_than_its_legend_fits_a_column(kind: str, tmp_path: Path) -> None:
    cells = [cell for cell in fits() if cell["kind"] == kind]
    figure = named(result_of(find_verb("fit"), [{"model": "some/model"}], {"fits": cells}))["laws"]
    text = save_chart(figure.draw(), tmp_path / "map.svg").read_text()
    width = re.search(r'width="([\d.]+)pt"', text)
    assert width is not None
    assert float(width[1]) == pytest.approx(COLUMN, abs=WIDTH_TOLERANCE)


def test_cells_tell_their_values_under_the_pointer() -> None:
    cells = [
        {"case": 0, "output": i, "output_id": 7, "input": j, "input_id": 9, "norm": 2.0, "norm_error": 0.0}
        | {"share": 0.25 * (i + j), "rollout": 0.5}
        for i in range(2)
        for j in range(2)
    ]
    row = {"model": "m", "ids": [7, 9], "offset_share": 0.5}
    figure = named(result_of(find_verb("lens"), [row], {"token_map": cells}))["lens_map"]
    drawn = inline_svg(figure.draw(), "map")
    titles = re.findall(r"<title>([^<]*)</title>", drawn)
    assert len(titles) == 2 * 4
    assert "output token 1" in titles[-1]
    assert "share through the whole network (exact) 0.5;" in titles[-1]
    assert "<script" not in drawn
    assert len(drawn) < 60_000
