"""Figures of studies hold the numbers of their rows: further distances, exponents, spectra."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from attnlaw.report.figure import Figure
from attnlaw.report.study_figures import study_figures

LAYER = {
    "verb": "limit",
    "status": "done",
    "tokens": 4,
    "heads": 2,
    "scaling": "1/sqrt(n)",
    "head_width": None,
}
PROBLEM = {"verb": "learn", "status": "done", "tokens": 1, "output": "linear", "beta": 1.0, "noise": 0.0}
PROBLEM |= {"student": "factorized", "weight_decay": 0.1, "alpha": 0.3, "target_rank": 0.5}


def figures(rows: list[dict[str, Any]], folder: Path) -> dict[str, Figure]:
    named = [{"task": f"t{place}", **row} for place, row in enumerate(rows)]
    found = study_figures(pl.DataFrame(named, infer_schema_length=None), folder)
    return {figure.name: figure for figure in found}


def layers(figure: Figure) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The mark and the rows of every layer; rows that all share stand in the chart itself."""
    chart = figure.draw().to_dict()
    return [(layer["mark"], layer.get("data", chart.get("data"))["values"]) for layer in chart["layer"]]


def points(figure: Figure) -> list[dict[str, Any]]:
    """The rows of the one layer of points."""
    (found,) = (rows for mark, rows in layers(figure) if mark["type"] == "point")
    return found


def law(width: float, kl: float, **more: Any) -> dict[str, Any]:
    known = {"kl_to_limit": kl, "kl_to_limit_error": kl / 10, "w1_to_limit": kl, "w1_to_limit_error": kl / 10}
    return {**LAYER, "width": width, **known, **more}


def test_a_kernel_estimate_is_drawn_with_its_deviation_over_seeds(tmp_path: Path) -> None:
    rows = [
        law(width, 2 / width**2, kernel_kl_to_limit=kernel)
        for width in (16.0, 64.0)
        for kernel in (0.01, 0.03)
    ]
    drawn = {(row["series"], row["x"]): row for row in points(figures(rows, tmp_path)["kl_to_limit"])}
    assert len(drawn) == 4
    kernel, normals = drawn["kernel estimate", 16.0], drawn["averages of normals", 16.0]
    assert (kernel["value"], kernel["error"]) == pytest.approx((0.02, 0.01 * math.sqrt(2)), rel=1e-12)
    # Two seeds with an error of a tenth each: their mean has a tenth over the root of two.
    assert (normals["value"], normals["error"]) == pytest.approx(
        (2 / 256, 0.2 / 256 / math.sqrt(2)), rel=1e-12
    )


def test_scalings_share_a_chart_with_the_distance_to_the_other_limit(tmp_path: Path) -> None:
    other = {"kl_to_other_limit": 0.04, "kl_to_other_limit_error": 1e-3, "other_scaling": "1/sqrt(n)"}
    rows = [law(width, 1 / width**2) for width in (16.0, 64.0)]
    rows += [law(width, 0.5 / width**2, scaling="1/n", **other) for width in (16.0, 64.0)]
    drawn = {row["series"]: row["value"] for row in points(figures(rows, tmp_path)["kl_to_limit"])}
    assert drawn == {
        "scaling 1/sqrt(n), its limit": 1 / 64**2,
        "scaling 1/n, its limit": 0.5 / 64**2,
        "scaling 1/n, limit of 1/sqrt(n)": 0.04,
    }


def test_guides_fall_as_the_distances_of_densities_that_differ_by_one_over_n(tmp_path: Path) -> None:
    """N(0, 1 + 1/n) against N(0, 1): KL = 1/(4 n^2), W1 = 1/(n sqrt(2 pi)), up to factors 1 + O(1/n)."""
    rows = []
    for width in (64.0, 256.0):
        v = 1 + 1 / width
        kl, w1 = (v - 1 - math.log(v)) / 2, math.sqrt(2 / math.pi) * (math.sqrt(v) - 1)
        rows.append(law(width, kl, w1_to_limit=w1, w1_to_limit_error=w1 / 10))
    found = figures(rows, tmp_path)
    for name, told in (("kl_to_limit", "slope −2"), ("w1_to_limit", "slope −1")):
        drawn = layers(found[name])
        (guide, _), measured = drawn[0][1], points(found[name])
        assert guide["text"] == told
        assert f"guide of {told} the" in found[name].caption
        assert guide["value"] == pytest.approx(measured[0]["value"], rel=2 / 64)


def test_where_heads_set_the_width_distances_are_drawn_against_them(tmp_path: Path) -> None:
    rows = [law(64.0 * heads, 1 / heads, heads=heads, head_width=64) for heads in (1, 4)]
    figure = figures(rows, tmp_path)["kl_to_limit"]
    assert [(row["x"], row["value"]) for row in points(figure)] == [(1.0, 1.0), (4.0, 0.25)]
    text = figure.draw().to_json(ensure_ascii=False)
    assert "heads H, each of width 64" in text
    assert "slope" not in text


def test_the_way_to_a_gaussian_is_drawn_against_the_heads(tmp_path: Path) -> None:
    told = {"kl_to_gaussian_error": 1e-5, "kl_to_limit": None, "kl_to_limit_error": None}
    rows = [
        {**LAYER, "width": math.inf, "heads": heads, "kl_to_gaussian": 1e-3 / heads**2, **told}
        for heads in (1, 2, 4)
    ]
    found = figures(rows, tmp_path)
    assert list(found) == ["gaussian"]
    assert [(row["x"], row["value"]) for row in points(found["gaussian"])] == [
        (heads, 1e-3 / heads**2) for heads in (1.0, 2.0, 4.0)
    ]


def test_scaling_laws_tell_the_fitted_and_the_predicted_exponent(tmp_path: Path) -> None:
    rows = [
        {**PROBLEM, "target_exponent": gamma, "target_dimension": 1000, "alpha": ratio / 3000, "tokens": 2}
        | {"estimation_error": 3 * ratio**-slope, "leading_error": 4 * ratio**-slope}
        | {"predicted_exponent": -2.0, "weight_decay": ratio}
        for gamma, slope in ((0.8, 0.5), (1.5, 1.9))
        for ratio in (8.0, 16.0, 64.0)
    ]
    (figure,) = figures(rows, tmp_path).values()
    (_, line), (_, dashed) = layers(figure)
    assert list(dict.fromkeys(row["label"] for row in line)) == [
        "γ 0.8: −0.50 (−2.00)",
        "γ 1.5: −1.90 (−2.00)",
    ]
    # Two tokens give three observations a sample: N/d = 3 alpha d.
    assert [row["ratio"] for row in line[:3]] == pytest.approx([8.0, 16.0, 64.0], rel=1e-12)
    assert dashed[0]["leading"] == 4 * 8.0**-0.5


def test_a_spectrum_lies_over_the_students_of_the_same_settings(tmp_path: Path) -> None:
    predicted = {
        "predicted_spectra_part": "parts/x",
        "atom_at_zero": 0.5,
        "outlier": 2.5,
        "target_spike": 3.0,
    }
    trained = {**PROBLEM, "verb": "learn.simulate", "target_spike": 3.0, "estimation_error": 0.1}
    trained["simulate"] = 20
    rows = [{**PROBLEM, **predicted, "estimation_error": 0.1}, trained, {**trained, "noise": 9.0}]
    tables = {
        "predicted_spectra/t0": {"x": [0.1, 1.0], "density": [0.4, 0.0], "interval": [0, 0]},
        "eigenvalues/t1": {"eigenvalue": [0.0, 0.0, 0.5, 2.4]},
        "eigenvalues/t2": {"eigenvalue": [7.0, 7.0, 7.0, 7.0]},
    }
    for place, table in tables.items():
        path = tmp_path / "tables" / f"{place}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame(table).write_parquet(path)
    (figure,) = figures(rows, tmp_path).values()
    (_, bars), (_, line), (_, outlier) = layers(figure)
    assert figure.draw().to_dict()["title"] == "weight at zero: predicted 0.500, trained 0.500"
    assert bars[-1]["right"] == 2.4  # the student trained with other noise is not among them
    assert [row["density"] for row in line] == [0.4, 0.0]
    assert [(point["x"], point["y"]) for point in outlier] == [(2.5, 0.0)]


def test_ranks_without_even_steps_are_lines(tmp_path: Path) -> None:
    rows = [
        {**PROBLEM, "target_rank": rank, "alpha": alpha, "estimation_error": rank * alpha}
        for rank in (0.1, 0.5, 2.0)
        for alpha in (0.1, 0.2, 0.3)
    ]
    (figure,) = figures(rows, tmp_path).values()
    assert figure.title == "Error against alpha"
    assert "target rank 0.5" in figure.draw().to_json()
