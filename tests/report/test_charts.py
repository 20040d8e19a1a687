"""Declared charts hold the numbers of their rows: what varied decides what is drawn."""

from __future__ import annotations

import gc
import json
import math
from dataclasses import replace
from typing import Any
from weakref import ref

import numpy as np
import polars as pl
import pytest
from house.coin import VERB as COIN
from report.charts_of import drawn, layers, named, result_of, values_of

from attnlaw.core.settings import setting_fields
from attnlaw.render.charts.lines import first_quantity
from attnlaw.render.charts.view import ChartView, Drawing, Drawings, chart
from attnlaw.render.describe_rows import ValueLabels
from attnlaw.verbs import STUDY_VERBS, VERBS, find_verb
from attnlaw.verbs.views import figures_of, find_part

LEARN, LIMIT = find_verb("learn"), find_verb("limit")
PROBLEM: dict[str, Any] = {"tokens": 1, "output": "linear", "noise": 0.0, "target_rank": 0.5}
PROBLEM |= {"student": "factorized", "weight_decay": 0.1, "alpha": 0.3}
LAYER = {"tokens": 4, "heads": 2, "scaling": "1/sqrt(n)"}
ALPHAS = (0.1, 0.2, 0.4)


def theory(**columns: Any) -> dict[str, Any]:
    return {**PROBLEM, "estimation_error": 1.0, **columns}


def trained(**columns: Any) -> dict[str, Any]:
    return {**PROBLEM, "simulate": 20, **columns}


def test_learning_curves_show_theory_and_the_means_of_trained_students() -> None:
    rng = np.random.default_rng(0)
    lines = [
        theory(alpha=alpha, student=student, estimation_error=1 / (1 + alpha), threshold_recovery=0.3)
        for alpha in ALPHAS
        for student in ("factorized", "direct")
    ]
    measured = {alpha: rng.normal(1.0, size=4) for alpha in ALPHAS}
    points = [
        trained(alpha=alpha, estimation_error=float(value))
        for alpha, values in measured.items()
        for value in values
    ]
    (figure,) = figures_of(result_of(LEARN, lines, simulated=points))
    assert (figure.name, figure.title) == ("learning", "Learning curves")
    assert {row["x"] for row in drawn(figure, "line")} == set(ALPHAS)
    assert drawn(figure, "text") == [{"x": 0.3, "name": "recovery by factors"}]
    point = next(row for row in drawn(figure) if row["x"] == 0.2)
    assert point["y"] == pytest.approx(measured[0.2].mean(), rel=1e-14)
    assert point["error"] == pytest.approx(measured[0.2].std(ddof=1) / 2, rel=1e-14)
    assert (point["series"], point["size"]) == ("factorized", "trained students, d = 20 (± s.e.)")


def test_errors_that_the_rows_tell_are_those_of_the_mean() -> None:
    points = [trained(alpha=alpha, estimation_error=1.0, estimation_error_error=0.3) for alpha in ALPHAS]
    twice = [*points, *points]
    (figure,) = figures_of(result_of(LEARN, [theory(alpha=alpha) for alpha in ALPHAS], simulated=twice))
    assert [row["error"] for row in drawn(figure)] == pytest.approx([0.3 / math.sqrt(2)] * 3)


@pytest.mark.parametrize("repetitions", [1, 2, 3])
def test_a_caption_says_how_many_students_a_study_trained_for_a_point(repetitions: int) -> None:
    """A study gives every task its own seed, so there are more seeds than repetitions."""
    points = [
        trained(alpha=alpha, estimation_error=1.0 + i, seeds=1, seed=10 * i + place)
        for place, alpha in enumerate(ALPHAS)
        for i in range(repetitions)
    ]
    (figure,) = figures_of(result_of(LEARN, [theory(alpha=alpha) for alpha in ALPHAS], simulated=points))
    words = "seeds 1" if repetitions == 1 else f"seeds 1 in each of {repetitions} repetitions"
    assert f", {words}." in figure.caption_text.replace("\n", " ")


def test_students_of_two_sizes_are_not_pooled() -> None:
    sizes = {20: (1.0, 3.0), 40: (10.0, 14.0)}
    points = [
        trained(alpha=0.1, simulate=size, estimation_error=error)
        for size, errors in sizes.items()
        for error in errors
    ]
    (figure,) = figures_of(result_of(LEARN, [theory(alpha=alpha) for alpha in ALPHAS], simulated=points))
    assert [(row["simulate"], row["y"], row["error"]) for row in drawn(figure)] == [(20, 2, 1), (40, 12, 2)]


def test_thresholds_that_differ_by_student_say_whose_they_are() -> None:
    """Recovery is of clean labels: with noise it is not drawn."""
    places = {"bayes": None, "direct": 0.25, "factorized": 0.15}
    rows = [
        theory(student=student, alpha=alpha, noise=0.5, threshold_interpolation=place, threshold_bayes=0.2)
        for student, place in places.items()
        for alpha in ALPHAS
    ]
    (figure,) = figures_of(result_of(LEARN, rows))
    assert drawn(figure, "text") == [
        {"x": 0.25, "name": "interpolation (direct (ridge))"},
        {"x": 0.15, "name": "interpolation (factorized)"},
    ]


def test_a_setting_chosen_for_each_student_does_not_part_the_curves() -> None:
    rows = [
        theory(alpha=alpha, student=student, weight_decay=decay)
        for student, decay in (("direct", 0.2), ("factorized", 0.1), ("bayes", None))
        for alpha in ALPHAS
    ]
    (figure,) = figures_of(result_of(LEARN, rows))
    assert {row["series"] for row in drawn(figure, "line")} == {
        "direct (ridge)",
        "factorized",
        "Bayes-optimal",
    }


def test_a_student_without_weight_decay_stands_beside_every_decay() -> None:
    points = [("factorized", 0.1), ("factorized", 1.0), ("bayes", None), ("bayes", None)]
    rows = [
        theory(student=student, weight_decay=decay, alpha=alpha, estimation_error=alpha)
        for student, decay in points
        for alpha in (0.1, 0.2)
    ]
    curves = figures_of(result_of(LEARN, rows))
    assert [figure.title for figure in curves] == [f"Learning curves: weight decay {d:g}" for d in (0.1, 1.0)]
    for figure in curves:
        assert sorted((row["series"], row["x"]) for row in drawn(figure, "line")) == [
            (student, alpha) for student in ("Bayes-optimal", "factorized") for alpha in (0.1, 0.2)
        ]


def test_students_without_a_theory_are_drawn_with_their_errors() -> None:
    errors = {("direct", 0.1): (1.0, 3.0), ("direct", 0.2): (0.5, 0.5), ("factorized", 0.1): (0.25,)}
    rows = [
        trained(student=student, alpha=alpha, estimation_error=error)
        for (student, alpha), values in errors.items()
        for error in values
    ]
    alone = find_verb("learn.simulate")
    (figure,) = figures_of(result_of(alone, rows))
    assert {(row["series"], row["x"]): (row["low"], row["y"], row["high"]) for row in drawn(figure)} == {
        ("direct (ridge)", 0.1): (1.0, 2.0, 3.0),
        ("direct (ridge)", 0.2): (0.5, 0.5, 0.5),
        ("factorized", 0.1): (None, 0.25, None),
    }
    assert "standard error" in figure.caption
    assert figures_of(result_of(alone, rows[:2])) == []  # one setting: nothing to draw it against


def test_students_of_a_theory_that_failed_are_drawn_alone() -> None:
    failed = [theory(alpha=alpha, status="failed", estimation_error=None) for alpha in ALPHAS]
    points = [trained(alpha=alpha, estimation_error=alpha) for alpha in ALPHAS]
    (figure,) = figures_of(result_of(LEARN, failed, simulated=points))
    assert [(row["x"], row["y"]) for row in drawn(figure)] == [(alpha, alpha) for alpha in ALPHAS]


def test_a_grid_of_ranks_and_samples_is_a_phase_diagram() -> None:
    grid = [(alpha, rank) for alpha in (0.1, 0.2, 0.3) for rank in (0.2, 0.4, 0.6)]
    rows = [
        theory(alpha=alpha, target_rank=rank, relative_error=alpha * rank, threshold_bayes=rank / 2)
        for alpha, rank in grid
    ]
    (figure,) = figures_of(result_of(LEARN, rows))
    cells, lines = values_of(figure.draw().to_dict())
    assert figure.name == "phases"
    assert [cell["shown"] for cell in cells] == [alpha * rank for alpha, rank in grid]
    assert {(line["x"], line["y"]) for line in lines} == {(0.2, 0.1), (0.4, 0.2), (0.6, 0.3)}


def test_ranks_without_even_steps_are_lines() -> None:
    rows = [
        theory(target_rank=rank, alpha=alpha, estimation_error=rank * alpha, relative_error=rank)
        for rank in (0.1, 0.5, 2.0)
        for alpha in (0.1, 0.2, 0.3)
    ]
    (figure,) = figures_of(result_of(LEARN, rows))
    assert figure.name == "learning"
    assert {row["series"] for row in drawn(figure, "line")} == {f"target rank {r:g}" for r in (0.1, 0.5, 2)}


def scaled(ratio: float, gamma: float, error: float, **more: Any) -> dict[str, Any]:
    """A point of a scaling law: two tokens give three observations a sample, N/d = 3 alpha d."""
    power = {"target_rank": None, "target_exponent": gamma, "target_dimension": 1000, "tokens": 2}
    cells = {"observations": ratio, "estimation_error": error}
    return theory(alpha=ratio / 3000, weight_decay=ratio, **cells, **power, **more)


def test_scaling_laws_tell_the_fitted_and_the_predicted_exponent() -> None:
    rows = [
        scaled(ratio, gamma, 3 * ratio**-slope, leading_error=4 * ratio**-slope, predicted_exponent=-2.0)
        for gamma, slope in ((0.8, 0.5), (1.5, 1.9))
        for ratio in (8.0, 16.0, 64.0)
    ]
    (figure,) = figures_of(result_of(LEARN, rows))
    (line,) = values_of(figure.draw().to_dict())
    assert list(dict.fromkeys(row["label"] for row in line)) == [
        "γ 0.8: −0.50 (−2.00)",
        "γ 1.5: −1.90 (−2.00)",
    ]
    assert [row["observations"] for row in line[:3]] == pytest.approx([8.0, 16.0, 64.0], rel=1e-12)
    assert line[0]["leading_error"] == 4 * 8.0**-0.5


def test_a_fitted_exponent_has_a_standard_error() -> None:
    """Against `np.polyfit`, whose covariance is the residual sum of squares over n - 2 degrees of freedom."""
    ratios, errors = np.array([8.0, 16.0, 32.0, 64.0]), np.array([0.4337, 0.2517, 0.1361, 0.0706])
    rows = [
        scaled(ratio, 1.0, error, leading_error=error, predicted_exponent=-1.0)
        for ratio, error in zip(ratios.tolist(), errors.tolist(), strict=True)
    ]
    (figure,) = figures_of(result_of(LEARN, rows))
    (slope, _), covariance = np.polyfit(np.log(ratios), np.log(errors), 1, cov=True)
    label = f"{slope:.2f} ± {np.sqrt(covariance[0, 0]):.2f} (-1.00)".replace("-", "−")
    (line,) = values_of(figure.draw().to_dict())
    assert {row["label"] for row in line} == {label}


def test_a_spectrum_lies_over_the_students_of_the_same_settings() -> None:
    spike = {"target_spike": 3.0}
    rows = [theory(**spike, atom_at_zero=0.5, outlier_locations=[2.5])]
    points = [trained(**spike, estimation_error=0.1), trained(**spike, estimation_error=0.1, noise=9.0)]
    density = [{"x": x, "density": y, "interval": 0, "case": 0} for x, y in ((0.1, 0.4), (1.0, 0.0))]
    values = [{"eigenvalue": x, "case": 0} for x in (0.0, 0.0, 0.5, 2.4)]
    values += [{"eigenvalue": 7.0, "case": 1}] * 4
    data = result_of(LEARN, rows, {"predicted_spectra": density}, points, {"eigenvalues": values})
    (figure,) = figures_of(data)
    (_, bars), (_, line), (_, outlier) = layers(figure)
    title = figure.draw().to_dict()["title"]
    assert title == "weight at zero: predicted 0.500, trained students 0.500"
    assert bars[-1]["right"] == 2.4  # the student trained with other noise is not among them
    assert [row["density"] for row in line] == [0.4, 0.0]
    assert [(point["x"], point["y"]) for point in outlier] == [(2.5, 0.0)]


def law(width: float, kl: float, **more: Any) -> dict[str, Any]:
    known = {"kl_to_limit": kl, "kl_to_limit_error": kl / 10, "w1_to_limit": kl, "w1_to_limit_error": kl / 10}
    return {**LAYER, "width": width, **known, **more}


def test_densities_stand_beside_the_limit() -> None:
    rows = [law(16.0, 0.1), law(64.0, 0.01), {**LAYER, "width": math.inf, "kurtosis": 3.0}]
    table = [{"y": y, "density": 0.5, "case": i} for i in range(3) for y in (-1.0, 0.0, 1.0)]
    charts = named(result_of(LIMIT, rows, {"densities": table}))
    assert list(charts) == ["densities", "kl_to_limit", "w1_to_limit"]
    (shown,) = values_of(charts["densities"].draw().to_dict())
    assert {row["series"] for row in shown} == {"16", "64", "∞"}
    assert "Dashed: the infinite-width limit" in charts["densities"].caption
    assert [(row["x"], row["y"]) for row in drawn(charts["kl_to_limit"])] == [(16.0, 0.1), (64.0, 0.01)]


def test_ratios_of_a_study_are_to_the_line_of_the_limit() -> None:
    rows = [law(16.0, 0.1), {**LAYER, "width": math.inf, "kurtosis": 3.0}]
    limit = [{"y": y, "density": math.exp(-y), "ratio": 1.0, "case": 1} for y in (0.0, 1.0, 2.0)]
    finite_rows = [{"y": y, "density": 0.5, "ratio": None, "case": 0} for y in (0.5, 1.5, 2.5)]
    figure = named(result_of(LIMIT, rows, {"densities": finite_rows + limit}))["densities"]
    shown = {row["x"]: row["ratio"] for row in values_of(figure.draw().to_dict())[0] if row["series"] == "16"}
    assert [shown[y] for y in (0.5, 1.5)] == pytest.approx([0.5 * math.exp(0.5), 0.5 * math.exp(1.5)])
    assert shown[2.5] is None  # nothing is known of the limit there


def test_heads_in_the_limit_alone_have_no_panel_beside_finite_ones() -> None:
    rows = [
        law(16.0, 0.1, heads=1),
        *({**LAYER, "heads": h, "width": math.inf, "kurtosis": 3.0} for h in (1, 2)),
    ]
    table = [{"y": y, "density": 0.5, "case": i} for i in range(3) for y in (-1.0, 0.0, 1.0)]
    chart = named(result_of(LIMIT, rows, {"densities": table}))["densities"].draw().to_dict()
    assert len(chart["concat"]) == 1


def test_a_kernel_estimate_is_drawn_with_its_deviation_over_seeds() -> None:
    rows = [
        law(width, 2 / width**2, kernel_kl_to_limit=kernel)
        for width in (16.0, 64.0)
        for kernel in (0.01, 0.03)
    ]
    points = drawn(named(result_of(LIMIT, rows))["kl_to_limit"])
    shown = {(row["series"], row["x"]): row for row in points}
    assert len(shown) == 4
    kernel, normals = shown["kernel estimate (paper)", 16.0], shown["from the densities", 16.0]
    assert (kernel["y"], kernel["error"]) == pytest.approx((0.02, 0.01 * math.sqrt(2)), rel=1e-12)
    # Two seeds with an error of a tenth each: their mean has a tenth over the root of two.
    assert (normals["y"], normals["error"]) == pytest.approx((2 / 256, 0.2 / 256 / math.sqrt(2)), rel=1e-12)


def test_scalings_share_a_chart_with_the_distance_to_the_other_limit() -> None:
    other = {"kl_to_other_limit": 0.04, "kl_to_other_limit_error": 1e-3, "other_scaling": "1/sqrt(n)"}
    rows = [law(width, 1 / width**2) for width in (16.0, 64.0)]
    rows += [law(width, 0.5 / width**2, scaling="1/n", **other) for width in (16.0, 64.0)]
    shown = {row["series"]: row["y"] for row in drawn(named(result_of(LIMIT, rows))["kl_to_limit"])}
    assert shown == {
        "1/sqrt(n), its limit": 1 / 64**2,
        "1/n, its limit": 0.5 / 64**2,
        "1/n, limit of 1/sqrt(n)": 0.04,
    }


def test_guides_fall_as_the_distances_of_densities_that_differ_by_one_over_n() -> None:
    """N(0, 1 + 1/n) against N(0, 1): KL = 1/(4 n^2), W1 = 1/(n sqrt(2 pi)), up to factors 1 + O(1/n)."""
    rows = []
    for width in (64.0, 256.0):
        v = 1 + 1 / width
        kl, w1 = (v - 1 - math.log(v)) / 2, math.sqrt(2 / math.pi) * (math.sqrt(v) - 1)
        rows.append(law(width, kl, w1_to_limit=w1, w1_to_limit_error=w1 / 10))
    charts = named(result_of(LIMIT, rows))
    for name, slope in (("kl_to_limit", "slope −2"), ("w1_to_limit", "slope −1")):
        (guide, _), measured = layers(charts[name])[0][1], drawn(charts[name])
        assert guide["slope"] == slope
        assert f"the {slope} that theory predicts" in charts[name].caption
        assert guide["y"] == pytest.approx(measured[0]["y"], rel=2 / 64)


def test_where_heads_set_the_width_distances_are_drawn_against_them() -> None:
    rows = [law(64.0 * heads, 1 / heads, heads=heads, head_width=64) for heads in (1, 4)]
    figure = named(result_of(LIMIT, rows))["kl_to_limit"]
    assert [(row["x"], row["y"]) for row in drawn(figure)] == [(1.0, 1.0), (4.0, 0.25)]
    text = json.dumps(figure.draw().to_dict(), ensure_ascii=False)
    assert "heads H, each of width 64" in text
    assert "slope" not in text


def test_the_way_to_a_gaussian_is_drawn_against_the_heads() -> None:
    errors = {"kl_to_gaussian_error": 1e-5}
    rows = [
        {**LAYER, "width": math.inf, "heads": heads, "kl_to_gaussian": 1e-3 / heads**2, **errors}
        for heads in (1, 2, 4)
    ]
    charts = named(result_of(LIMIT, rows))
    assert list(charts) == ["gaussian"]
    assert [(row["x"], row["y"]) for row in drawn(charts["gaussian"])] == [
        (heads, 1e-3 / heads**2) for heads in (1, 2, 4)
    ]


def test_paths_show_both_quantities_by_depth() -> None:
    path = {
        "path_squared_length": [1.0, 2.0, 4.0],
        "path_squared_length_error": [0.1, 0.1, 0.1],
        "path_cosine": [0.0, 0.3, 0.6],
        "path_cosine_error": [0.01, 0.01, 0.01],
    }
    rows = [{**LAYER, "width": width, "kurtosis": 3.0, **path} for width in (16.0, math.inf)]
    chart = named(result_of(LIMIT, rows))["path"].draw().to_dict()
    assert len(chart["hconcat"]) == 2
    for panel in chart["hconcat"]:
        assert panel["layer"][0]["encoding"]["x"]["axis"]["values"] == [0, 1, 2]
    rows_ = values_of(chart["hconcat"][0])[0]
    assert {row["series"] for row in rows_} == {"width 16", "width ∞"}


def test_a_verb_without_charts_has_its_first_quantity_over_what_varied() -> None:
    rows = [
        {"bias": bias, "tosses": 100, "metal": metal, "mean": bias, "mean_error": 0.05, "heads": 1}
        for metal in ("gold", "paper")
        for bias in (0.25, 0.5, 0.75)
    ]
    (figure,) = first_quantity(result_of(COIN, rows))
    assert (figure.name, figure.title) == ("mean", "Mean p̂ against bias")
    assert figure.caption == "share of heads. Bars are one standard error."
    chart = figure.draw().to_dict()
    assert chart["layer"][0]["encoding"]["x"]["title"] == "bias p"
    assert chart["layer"][0]["encoding"]["y"]["title"] == "mean p̂"
    assert {row["series"] for row in drawn(figure)} == {"gold", "a joke"}
    assert first_quantity(result_of(COIN, rows[:1])) == []


def test_a_decorated_function_has_a_figure_of_each_drawing() -> None:
    @chart(
        "Tosses", "How many.", on_page=False, prepare=lambda result: replace(result, rows=result.rows.head(2))
    )
    def tosses(view: ChartView) -> Drawings:
        for case, rows in view.cases(view.rows, []):
            yield Drawing(dict, case, f"Here: {rows['heads'][0]}.")

    rows = [
        {"bias": bias, "metal": "gold", "heads": heads} for bias, heads in ((0.25, 1), (0.5, 2), (0.75, 3))
    ]
    figures = tosses(result_of(COIN, rows))
    assert [(figure.name, figure.title, figure.caption) for figure in figures] == [
        ("tosses", "Tosses: bias 0.25", "How many. Here: 1."),
        ("tosses", "Tosses: bias 0.5", "How many. Here: 2."),
    ]
    assert not any(figure.on_page for figure in figures)
    assert tosses(result_of(COIN, [])) == []


def test_charts_share_a_view_which_is_forgotten_with_its_result() -> None:
    result = result_of(LEARN, [theory(alpha=alpha) for alpha in ALPHAS], simulated=[trained()])
    assert ChartView.of(result) is ChartView.of(result)
    assert ChartView.of(replace(result)) is not ChartView.of(result)
    figures, known = figures_of(result), ref(result)
    del result
    gc.collect()
    assert known() is None
    assert "layer" in figures[0].draw().to_dict()


@pytest.mark.parametrize("name", VERBS | STUDY_VERBS)
def test_every_declared_chart_is_a_function_that_draws_nothing_of_nothing(name: str) -> None:
    """Of rows that failed, of none, and of rows without a table."""
    verb = find_verb(name)
    for part in (verb, verb.simulation):
        if part is None:
            continue
        module = find_part(part, "charts")
        failed = result_of(part, [{"status": "failed", "remark": "a message"}] * 2)
        for function in part.charts:
            for result in (failed, result_of(part, []), result_of(part, [{}, {}], simulated=[{}])):
                assert not getattr(module, function)(result)


def test_the_gaussian_of_the_limit_is_drawn_beside_it() -> None:
    rows = [law(16.0, 0.1), law(math.inf, 0.1)]
    table = [
        {"case": i, "y": y, "density": 0.4, "gaussian_density": gaussian, "ratio": 1.0}
        for i, gaussian in enumerate((0.3, 0.2))
        for y in (0.0, 1.0)
    ]
    figure = named(result_of(LIMIT, rows, {"densities": table}))["densities"]
    (shown,) = values_of(figure.draw().to_dict())
    guide = [(row["density"], row["ratio"]) for row in shown if row["series"] == "Gaussian"]
    assert guide == [(0.2, pytest.approx(0.5))] * 2  # of the limit alone
    assert "Dotted: the Gaussian" in figure.caption


def test_gaussians_of_density_rows_have_the_moments_of_the_laws() -> None:
    from attnlaw.theory.limit.limit import density_rows
    from attnlaw.theory.limit.mixture import gaussian_law

    rows = pl.DataFrame(density_rows({8: gaussian_law(2.0, 1.0)}, points=9))
    closed = (-((rows["y"] - 1.0) ** 2) / 4.0).exp() / math.sqrt(4.0 * math.pi)
    assert rows["gaussian_density"].to_list() == pytest.approx(closed.to_list(), rel=1e-12)


@pytest.mark.parametrize(("largest", "kind"), [(2000.0, "log"), (200.0, None)])
def test_bars_that_span_decades_are_logarithmic(largest: float, kind: str | None) -> None:
    from attnlaw.verbs.margins.charts import bars_by_place

    rows = pl.DataFrame({"series": ["a"] * 2, "place": ["0", "head"], "kappa": [30.0, largest]})
    chart = bars_by_place(rows, str, {"a": "#000000"}).to_dict()
    assert chart["encoding"]["y"]["scale"].get("type") == kind
    if kind:
        assert chart["encoding"]["y"]["scale"]["domain"] == [10.0, largest]
        assert {row["floor"] for row in json.loads(chart["data"]["values"])} == {10.0}


@pytest.mark.parametrize("name", [*VERBS, *STUDY_VERBS])
def test_every_choice_of_a_setting_has_a_label(name: str) -> None:
    verb = find_verb(name)
    labels = ValueLabels(verb, pl.DataFrame())
    for setting in setting_fields(verb.settings).values():  # the choices may also be a plain tuple
        for choice in setting.rule.choices or ():
            assert labels.label_of(setting.name, choice)
