"""Charts of the limit are drawn from rows alone, in every format."""

from __future__ import annotations

import math

import polars as pl
import pytest

from attnlaw.report.limit_charts import density_chart, distance_chart, path_chart
from attnlaw.report.style import FORMATS, save_chart


def densities(ratio: bool) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"heads": 2, "width": width, "y": y, "density": math.exp(-y * y), "ratio": 1.0 if ratio else None}
            for width in (16.0, 1024.0, math.inf)
            for y in (-1.0, 0.0, 1.0)
        ],
        schema_overrides={"ratio": pl.Float64},
    )


@pytest.mark.parametrize("ending", FORMATS)
def test_densities_are_saved_in_every_format(tmp_path, ending):
    path = save_chart(density_chart(densities(ratio=True)), tmp_path / f"densities{ending}")
    assert path.stat().st_size > 1000


def test_densities_name_widths_and_leave_out_an_empty_panel():
    full, plain = (str(density_chart(densities(ratio)).to_dict()) for ratio in (True, False))
    assert "∞" in full
    assert "1 024" in full
    assert "density of the limit" in full
    assert "density of the limit" not in plain


def test_densities_alone_stand_in_two_columns():
    several = pl.concat([densities(ratio=False).with_columns(heads=pl.lit(heads)) for heads in (1, 2, 3, 4)])
    assert density_chart(several).to_dict()["columns"] == 2
    assert density_chart(several.with_columns(ratio=pl.lit(1.0))).to_dict()["columns"] == 1


def test_distances_keep_error_bars_above_zero(tmp_path):
    rows = pl.DataFrame(
        {
            "x": [16, 64, 256],
            "series": ["KL"] * 3,
            "value": [0.02, 0.002, -1e-6],
            "error": [1e-3, 5e-3, 1e-5],
        }
    )
    chart = distance_chart(rows, "KL to the limit", "width n", -2).to_dict()
    shown = chart["layer"][2]["data"]["values"]
    assert [row["x"] for row in shown] == [16, 64]  # a value below zero has no logarithm
    assert all(0 < row["low"] < row["value"] < row["high"] for row in shown)
    assert len(distance_chart(rows, "KL", "n").to_dict()["layer"]) == 3
    save_chart(distance_chart(rows, "KL to the limit", "width n", -2), tmp_path / "kl.svg")


def test_paths_show_both_quantities(tmp_path):
    rows = pl.DataFrame(
        [
            {
                "series": series,
                "depth": depth,
                "squared_length": 2.0**depth,
                "squared_length_error": 0.1,
                "cosine": 0.3 * depth,
                "cosine_error": 0.01,
            }
            for series in ("n = ∞", "n = 16")
            for depth in range(3)
        ]
    )
    chart = path_chart(rows)
    assert len(chart.to_dict()["hconcat"]) == 2
    save_chart(chart, tmp_path / "path.svg")
    assert [panel["layer"][0]["encoding"]["x"]["axis"]["values"] for panel in chart.to_dict()["hconcat"]] == [
        [0, 1, 2],
        [0, 1, 2],
    ]
