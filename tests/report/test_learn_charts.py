"""Charts of what attention learns: they hold the rows they were given, and they render."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from attnlaw.report import learn_charts
from attnlaw.report.paper import COLUMN, NEAR
from attnlaw.report.style import save_chart


def legend(chart: Any, folder: Path) -> set[str]:
    """The words beside the symbols of the legends as drawn."""
    drawn = ElementTree.parse(save_chart(chart, folder / "legend.svg"))
    found = drawn.iterfind(".//{*}g[@class='mark-text role-legend-label']//{*}text")
    return {text.text or "" for text in found}


def test_learning_curves_layer_lines_points_and_thresholds(tmp_path: Path) -> None:
    theory = pl.DataFrame(
        {
            "alpha": [0.1, 0.2, 0.1, 0.2],
            "student": ["direct"] * 2 + ["bayes"] * 2,
            "estimation_error": [1.0, 0.8, 0.5, 0.3],
        }
    )
    points = pl.DataFrame({"alpha": [0.1], "student": ["direct"], "size": [20], "mean": [1.02]})
    points = points.with_columns(standard_error=pl.lit(None, pl.Float64))
    thresholds = pl.DataFrame({"alpha": [0.15, 0.9], "name": ["recovery", "beyond the axis"]})
    chart = learn_charts.learning_curves(theory, points, thresholds).to_dict()
    assert len(chart["layer"]) == 5
    shown = [row["name"] for layer in chart["layer"] for row in layer["data"]["values"]]
    assert legend(learn_charts.learning_curves(theory, points), tmp_path) == {
        "direct (ridge)",
        "Bayes-optimal",
        "theory",
        "trained, d = 20",
    }
    measured = points.with_columns(standard_error=pl.lit(0.1))
    assert "trained, d = 20 (± s.e.)" in legend(learn_charts.learning_curves(theory, measured), tmp_path)
    assert "beyond the axis" not in shown
    assert "direct (ridge)" in shown
    assert save_chart(learn_charts.learning_curves(theory), tmp_path / "curve.svg").stat().st_size > 2000


def test_histogram_keeps_the_weight_of_the_atom_out(tmp_path: Path) -> None:
    density = pl.DataFrame({"x": [0.0, 1.0], "density": [0.5, 0.0], "interval": [0, 0]})
    values = np.concatenate([np.zeros(60), np.random.default_rng(0).random(40)])
    chart = learn_charts.spectrum(density, pl.DataFrame({"eigenvalue": values}), atom=0.58, outliers=(1.4,))
    bars = chart.to_dict()["layer"][0]["data"]["values"]
    area = sum(bar["height"] * (bar["right"] - bar["left"]) for bar in bars)
    assert area == pytest.approx(0.4, rel=1e-12)
    assert "trained 0.600" in chart.to_dict()["title"]
    assert legend(chart, tmp_path) == {"theory", "trained", "outlier, theory"}
    table = pl.DataFrame({"eigenvalue": values})
    assert legend(learn_charts.spectrum(density, table, sizes=(40,)), tmp_path) == {
        "theory",
        "trained, d = 40",
    }


def test_spectrum_of_what_was_cut_entirely(tmp_path: Path) -> None:
    empty = pl.DataFrame([], schema=learn_charts.DENSITY)
    for kept in ([], [0.3]):
        values = pl.DataFrame({"eigenvalue": [0.0, 0.0, *kept]})
        chart = learn_charts.spectrum(empty, values, atom=1.0)
        bars = chart.to_dict()["layer"][0]["data"]["values"]
        assert sum(bar["height"] * (bar["right"] - bar["left"]) for bar in bars) == pytest.approx(
            len(kept) / len(values)
        )
        drawn = ElementTree.parse(save_chart(chart, tmp_path / "cut.svg")).getroot()
        assert float(drawn.attrib["viewBox"].split()[2]) == pytest.approx(COLUMN, abs=NEAR)


def test_phase_diagram_clips_and_covers_the_grid(tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {
            "target_rank": [0.1, 0.1, 0.2, 0.2],
            "alpha": [0.1, 0.2, 0.1, 0.2],
            "relative_error": [1.2, 0.5, 1.1, 0.0],
        }
    )
    lines = pl.DataFrame({"target_rank": [0.1, 0.2], "alpha": [0.15, 0.2], "name": ["factorized"] * 2})
    chart = learn_charts.phase_diagram(rows, lines)
    assert chart.to_dict()["layer"][0]["encoding"]["x"]["title"].endswith("κ₀ = m₀/d")
    cells = chart.to_dict()["layer"][0]["data"]["values"]
    assert max(cell["shown"] for cell in cells) == 1.0
    assert save_chart(chart, tmp_path / "phase.pdf").stat().st_size > 2000


def test_scaling_law_with_points(tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {"ratio": [8.0, 16.0], "label": ["clean"] * 2, "estimation_error": [0.4, 0.2], "leading": [0.5, 0.25]}
    )
    points = pl.DataFrame({"ratio": [8.0], "label": ["clean"], "mean": [0.45], "standard_error": [0.02]})
    chart = learn_charts.scaling_law(rows, points)
    assert len(chart.to_dict()["layer"]) == 4
    assert save_chart(chart, tmp_path / "scaling.png").stat().st_size > 2000
