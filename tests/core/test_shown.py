"""Results in a notebook: their lines, tables and charts say what the rows say, escaped, without a network."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import altair as alt
import polars as pl
import pytest

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import format_with_error
from attnlaw.core.old_result import DisplayMixin, Results, html_table
from attnlaw.theory.limit import AttentionLayer, Depth, RandomInputs, compare_widths
from attnlaw.verbs import VERBS, find_verb

EXAMPLE = "examples/tiny-decoder"


class Cells(HTMLParser):
    """The cells of the tables of a page, row by row."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.cell = [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell = False

    def handle_data(self, data):
        if self.cell:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def prediction():
    return attnlaw.learn(alpha=0.2, noise=0.5)


@pytest.fixture(scope="module")
def curve():
    return attnlaw.learn(alpha=[0.1, 0.2, 0.4], noise=0.5)


def test_a_line_holds_the_brief_quantities(prediction):
    brief = [
        getattr(prediction, quantity.name)
        for quantity in find_verb("learn").quantities
        if quantity.in_summary
    ]
    numbers = re.findall(r" ([\d.]+)[,>]", repr(prediction))
    assert numbers == [f"{value.value:.6g}" for value in brief if value is not None]
    assert len(numbers) >= 4


def test_a_table_holds_every_quantity_with_its_meaning_and_the_settings(prediction):
    page = prediction._repr_html_()
    known = {row[0]: row[1:] for row in Cells(page).rows[1:]}
    for quantity in find_verb("learn").quantities:
        value = getattr(prediction, quantity.name, None)
        if quantity.hidden or value is None or value == []:
            assert quantity.label not in known
        else:
            assert known[quantity.label][1] == quantity.description
    assert known["estimation error E"][0] == f"{prediction.estimation_error.value:.6g}"
    assert "alpha 0.2" in page
    assert "noise 0.5" in page


def test_several_cases_are_a_list_a_table_and_a_chart(curve):
    assert isinstance(curve, list)
    errors = [point.estimation_error.value for point in curve]
    assert isinstance(curve.rows, pl.DataFrame)
    assert curve.rows["alpha"].to_list() == [0.1, 0.2, 0.4]
    assert curve.rows["estimation_error"].to_list() == errors
    head, *rows = Cells(curve._repr_html_()).rows
    assert [row[0] for row in rows] == ["0.1", "0.2", "0.4"]
    assert [row[head.index("E")] for row in rows] == [f"{error:.6g}" for error in errors]
    assert "0 cases" in Results("learn", [], [])._repr_html_()


def test_functions_of_the_library_return_the_same_rows(curve):
    same = attnlaw.curve(curve[0].problem, [0.1, 0.2, 0.4])
    names = ["alpha", "student", "estimation_error", "training_loss", "edges"]
    assert same.rows.select(names).equals(curve.rows.select(names))
    widths = compare_widths(Depth(AttentionLayer(RandomInputs(4), heads=2)), (16, math.inf), 500, 3)
    assert widths.rows["width"].to_list() == [16.0, math.inf]
    assert widths.rows["kurtosis"].to_list() == [row.kurtosis.value for row in widths]
    assert f"kurtosis {format_with_error(*vars_of(widths[0].kurtosis))}" in repr(widths[0])


def vars_of(estimate):
    return estimate.value, estimate.error


def test_charts_are_altairs_and_are_drawn_without_a_network(prediction, curve):
    for result, words in (
        (prediction, "eigenvalue"),
        (curve, "estimation error"),
        (attnlaw.state_evolution(prediction.problem), "eigenvalue"),
    ):
        chart = result.plot()
        assert isinstance(chart, alt.TopLevelMixin)
        bundle = chart._repr_mimebundle_()
        assert list(bundle) == ["image/svg+xml"]
        assert bundle["image/svg+xml"].startswith("<svg")
        assert words in bundle["image/svg+xml"]
    assert isinstance(prediction.plot() | curve.plot(), alt.HConcatChart)
    assert prediction.plot("spectrum").to_dict() == prediction.plot().to_dict()
    with pytest.raises(InputError, match="found no chart 'spectra'; expected one of spectrum"):
        prediction.plot("spectra")


def test_a_chart_has_the_style_of_the_house_under_its_own(prediction):
    def sizes(chart):
        return set(re.findall(r'font-size="(\d+)px"', chart._repr_mimebundle_()["image/svg+xml"]))

    plain = prediction.plot()
    assert sizes(plain) == {"10", "11", "12"}
    assert sizes(plain.configure_axis(labelFontSize=17)) == {"10", "11", "12", "17"}


def test_what_was_trained_draws_itself_without_the_theory(prediction):
    measured = attnlaw.simulate(prediction.problem, size=10, seeds=2)
    drawn = measured.plot()._repr_mimebundle_()["image/svg+xml"]
    share = float((measured.eigenvalues == 0).mean())
    assert f"weight at zero: trained students {share:.3f}" in drawn
    assert "theory" not in drawn


def test_trajectories_and_widths_draw_themselves():
    dynamics = attnlaw.dynamics(times="0.01:0.05:3")
    problem = dynamics.path.problem
    path = attnlaw.trajectory(problem, dynamics.path.schedule)
    assert repr(path).partition(" ")[2] == repr(dynamics).partition(" ")[2]
    assert Cells(path._repr_html_()).rows == Cells(dynamics._repr_html_()).rows
    assert len(repr(path)) < 300
    flowing = attnlaw.Schedule(times=(0.01, 0.03), learning_rate=0.5)
    runs = attnlaw.simulate_dynamics(problem, flowing, size=10, seeds=2)
    widths = compare_widths(Depth(AttentionLayer(RandomInputs(4), heads=2)), (16, math.inf), 500, 3)
    for result, words in (
        (path, "alignment"),
        (dynamics, "alignment"),
        (runs, "alignment"),
        (widths, "width n"),
    ):
        assert words in result.plot()._repr_mimebundle_()["image/svg+xml"]


@pytest.mark.slow
def test_a_model_tells_its_matrices_and_draws_its_audit():
    model = attnlaw.open_model(EXAMPLE)
    assert repr(model) == "<Model examples/tiny-decoder: gpt2, layers 4, hidden size 128, heads 4>"
    counts = {tuple(row[:2]): int(row[2]) for row in Cells(model._repr_html_()).rows[1:]}
    measured = attnlaw.audit(EXAMPLE).matrices
    assert counts[("QK", "128 x 128")] == measured.filter(pl.col("kind") == "qk").height
    assert sum(counts.values()) >= measured.height
    same = attnlaw.audit(EXAMPLE).plot("amplification")
    assert model.plot("amplification").to_dict() == same.to_dict()


def test_every_verb_returns_what_shows_itself(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(f"line {number}: x = {number}" for number in range(12)))
    results = {
        "audit": attnlaw.audit(EXAMPLE),
        "fit": attnlaw.fit(EXAMPLE),
        "diff": attnlaw.diff(EXAMPLE, EXAMPLE),
        "check": attnlaw.check(EXAMPLE),
        "lens": attnlaw.lens(EXAMPLE, text="x = 1", only="heads"),
        "margins": attnlaw.margins(EXAMPLE, file=str(lines)),
        "limit": attnlaw.limit(width=8, draws=500),
        "learn": attnlaw.learn(alpha=0.2),
    }
    assert set(results) <= set(VERBS)
    for name, result in results.items():
        assert isinstance(result, DisplayMixin), name
        assert result._verb == name
        assert len(repr(result)) < 300
        assert Cells(result._repr_html_()).rows, name
    for name in ("audit", "fit", "diff", "limit"):
        assert "<svg" in results[name].plot()._repr_mimebundle_()["image/svg+xml"]


def test_findings_come_first_and_names_are_escaped():
    whole = attnlaw.audit(EXAMPLE)
    row = dict.fromkeys(whole.findings.columns) | {"rule": "<b>", "level": "error", "meaning": "dead"}
    audit = replace(whole, findings=pl.DataFrame([row], schema=whole.findings.schema))
    page = audit._repr_html_()
    assert Cells(page).rows[:2] == [["level", "rule", "meaning"], ["error", "<b>", "dead"]]
    assert "&lt;b&gt;" in page
    assert "no findings" in whole._repr_html_()
    assert html_table(["<i>"], [["&"]]).count("&lt;i&gt;") == 1
