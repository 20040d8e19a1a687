"""Figures for a paper: as wide as a column or two, in readable type, in every format."""

import re
from dataclasses import replace
from importlib.resources import files
from xml.etree import ElementTree

import altair as alt
import numpy as np
import polars as pl
import pytest
from fontTools.ttLib import TTFont
from report.charts_of import named

import attnlaw
from attnlaw.core.settings import setting_fields
from attnlaw.render.charts.paper import (
    COLUMN,
    PAGE,
    WIDTH_TOLERANCE,
    figure_files,
    paper_spec,
    save_chart,
    save_figure,
)
from attnlaw.report import write_report
from attnlaw.verbs import STUDY_VERBS, VERBS, find_verb
from attnlaw.verbs.audit.charts import compare, contribution_curves
from attnlaw.verbs.views import figure_to_plot, figures_of


@pytest.fixture(scope="module", name="audit")
def _audit():
    rng = np.random.default_rng(0)
    parts = {
        **{f"attention.self.{part}": (16, 16) for part in ("query", "key", "value")},
        "attention.output.dense": (16, 16),
        "intermediate.dense": (32, 16),
        "output.dense": (16, 32),
    }
    state = {
        f"bert.encoder.layer.{layer}.{name}.weight": rng.standard_normal(shape)
        for layer in range(2)
        for name, shape in parts.items()
    }
    return attnlaw.audit(state, heads=2, jobs=1, name="model")


def chart_of(audit, name):
    """The chart of a figure of an audit."""
    return named(audit)[name].draw()


@pytest.mark.slow
def test_narrow_and_wide_charts_fill_one_column_and_two(audit, tmp_path):
    for chart, width in (
        (chart_of(audit, "amplification"), COLUMN),
        (contribution_curves(audit.matrices), PAGE),
    ):
        content = save_chart(chart, tmp_path / "figure.pdf").read_bytes()
        box = re.search(rb"MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", content)
        assert float(box[1]) == pytest.approx(width, abs=WIDTH_TOLERANCE)
        assert float(box[2]) < 9 * 72  # the text height of a letter page


def width_of(chart, path):
    box = re.search(rb"MediaBox \[0 0 ([\d.]+)", save_chart(chart, path).read_bytes())
    return float(box[1])


@pytest.mark.slow
def test_models_with_every_kind_of_matrix_are_compared_on_one_page(audit, tmp_path):
    """A gated encoder-decoder has seven kinds of matrix; names of models may be long."""
    kinds = ("qk", "vo", "cross_qk", "cross_vo", "ffn_in", "ffn_gate", "ffn_out")
    heads = audit.matrices.filter(pl.col("kind") == "qk")
    rows = pl.concat(
        heads.with_columns(kind=pl.lit(kind), model=pl.lit(f"a-long-name-of-a-checkpoint-{number}"))
        for number in range(3)
        for kind in kinds
    )
    assert [len(row.hconcat) for row in compare(rows).vconcat] == [4] * len(kinds)
    chart = compare(rows.filter(pl.col("kind") == "ffn_gate"))  # all rows are as wide
    assert width_of(chart, tmp_path / "f.pdf") == pytest.approx(PAGE, abs=WIDTH_TOLERANCE)


@pytest.mark.slow
def test_many_heads_fit_on_a_page(audit, tmp_path):
    heads = pl.concat(
        audit.matrices.filter(pl.col("head") == 0).with_columns(head=pl.lit(head, dtype=pl.Int32))
        for head in range(128)
    )
    chart = chart_of(replace(audit, tables={"matrices": heads.with_columns(case=pl.lit(0))}), "heads")
    drawn = save_chart(chart, tmp_path / "f.svg").read_text()
    width = ElementTree.fromstring(drawn).attrib["viewBox"].split()[2]
    assert float(width) == pytest.approx(PAGE, abs=WIDTH_TOLERANCE)
    shown = [text for text in re.findall(r"<text([^>]*)>(\d+)</text>", drawn) if 'opacity="0"' not in text[0]]
    assert 10 < len(shown) < 2 * 64  # labels that would lie upon each other are left out


def test_a_chart_that_no_page_can_hold_is_refused(tmp_path):
    points = alt.Chart(alt.Data(values=[{"x": 1, "y": "long " * 40}])).mark_point()
    chart = points.encode(x="x:Q", y=alt.Y("y:N", axis=alt.Axis(labelLimit=900)))
    with pytest.raises(attnlaw.InputError, match=r"fit into the width of 6\.9 inches; draw fewer panels"):
        save_chart(chart, tmp_path / "f.pdf")


@pytest.mark.parametrize("kind", ["Q", "O"])
def test_a_chart_without_a_width_gets_one(kind, tmp_path):
    points = alt.Chart(alt.Data(values=[{"x": x, "y": x} for x in range(30)])).mark_point()
    width = width_of(points.encode(x=f"x:{kind}", y="y:Q"), tmp_path / "f.pdf")
    assert width == pytest.approx(COLUMN if kind == "Q" else PAGE, abs=WIDTH_TOLERANCE)


def test_panels_above_a_wide_legend_stay_of_a_size_with_it(monkeypatch):
    """Above a legend of 305.5 points narrow panels change the width by a rounding, of either sign."""
    drawn = []

    def width(spec):
        panel = spec.get("width", 300.0)
        drawn.append(panel)
        below = spec["config"]["legend"].get("orient") == "bottom"
        return max(panel + 68, 305.55 - panel * 1e-4) if below else panel + 155

    monkeypatch.setattr("attnlaw.render.charts.paper._drawing_width", width)
    chart = alt.Chart(pl.DataFrame({"x": [0.0], "y": [0.0]})).mark_point().properties(width=300)
    assert PAGE - WIDTH_TOLERANCE <= width(paper_spec(chart)) <= PAGE + WIDTH_TOLERANCE
    assert max(drawn) < 2 * PAGE


def test_type_is_of_seven_and_eight_points(audit, tmp_path):
    source = save_chart(chart_of(audit, "amplification"), tmp_path / "f.svg").read_text()
    assert set(re.findall(r'font-size="([\d.]+)px"', source)) <= {"7", "8"}


def test_a_bitmap_has_300_pixels_an_inch(audit, tmp_path):
    content = save_chart(chart_of(audit, "amplification"), tmp_path / "f.png").read_bytes()
    width = int.from_bytes(content[16:20], "big")
    assert width == pytest.approx(3.3 * 300, abs=WIDTH_TOLERANCE * 300 / 72)
    # The chunk pHYs: pixels per metre across and down, then 1 for the metre; an inch has 0.0254 of them.
    tag = content.index(b"pHYs") + 4
    across, down = (int.from_bytes(content[tag + 4 * i : tag + 4 * i + 4], "big") for i in range(2))
    assert (across * 0.0254, down * 0.0254, content[tag + 8]) == pytest.approx((300, 300, 1), abs=0.0254)


def test_a_drawing_tells_its_size_in_points(audit, tmp_path):
    source = save_chart(chart_of(audit, "amplification"), tmp_path / "f.svg").read_text()
    root = ElementTree.fromstring(source)
    _, _, width, height = root.attrib["viewBox"].split()
    assert (root.attrib["width"], root.attrib["height"]) == (f"{width}pt", f"{height}pt")
    assert float(width) == pytest.approx(COLUMN, abs=WIDTH_TOLERANCE)


def test_every_figure_of_an_audit_has_a_name_of_its_own(audit):
    figures = figures_of(audit + audit)
    names = [figure.name for figure in figures]
    assert len(set(names)) == len(names)
    model_figures = {"heads_model", "heads_model-2", "contributions_model", "contributions_model-2"}
    assert {"proxies", "amplification", "comparison", "decay"} | model_figures <= set(names)
    assert all(figure.caption.endswith(".") for figure in figures)
    assert "shares" not in names  # the same in all layers


def heights(element, names, at=0.0):
    """How far down the texts of these names stand."""
    moved = re.match(r"translate\([^,]*,([-\d.]+)\)", element.attrib.get("transform", ""))
    at += float(moved[1]) if moved else 0.0
    text_heights = {element.text: at} if element.text in names else {}
    return text_heights | {name: y for child in element for name, y in heights(child, names, at).items()}


@pytest.mark.parametrize("largest", [0.6, 0.9, 1.0])
def test_titles_of_a_row_stand_at_one_height(largest, tmp_path):
    """A label at the top of one axis, as at 1.0, must not lift the title of its panel."""
    panels = [
        alt.Chart(alt.Data(values=[{"x": 0, "y": 0}, {"x": 1, "y": top}]), title=name)
        .mark_line()
        .encode(x="x:Q", y=alt.Y("y:Q", scale=alt.Scale(nice=False)))
        for name, top in (("one", 0.93), ("two", largest))
    ]
    root = ElementTree.fromstring(save_chart(alt.hconcat(*panels), tmp_path / "f.svg").read_text())
    tops = heights(root, {"one", "two"})
    assert tops["one"] == pytest.approx(tops["two"], abs=1.5)  # points


def test_a_figure_of_one_of_several_models_names_it(audit, tmp_path):
    heads = [figure for figure in figures_of(audit + audit) if figure.name.startswith("heads")]
    files = figure_files(heads, tmp_path, "svg")
    drawn = [content.decode() for path, content in files.items() if path.suffix == ".svg"]
    titles = ["model: spectral norm", "model (2): spectral norm"]
    assert [re.findall(r">(model[^<]*)<", source) for source in drawn] == [[title] for title in titles]
    alone = figure_files([named(audit)["heads"]], tmp_path, "svg")
    assert [path.name for path in alone] == ["heads.svg", "heads.caption.txt"]
    assert b">model" not in alone[tmp_path / "heads.svg"]


@pytest.mark.parametrize(("most", "has_note"), [(1, True), (2, False)])
def test_layers_without_a_line_are_told(most, has_note, audit, monkeypatch):
    monkeypatch.setattr("attnlaw.verbs.audit.charts.MOST_LINES", most)
    caption = named(audit)["contributions"].caption
    assert ("1 of 2 layers have a line; every matrix has a dot." in caption) == has_note


def test_unknown_formats_are_refused(audit, tmp_path):
    with pytest.raises(attnlaw.InputError, match="figures: found 'bmp', expected one of pdf, svg, png"):
        write_report([tmp_path], figures="bmp")
    with pytest.raises(
        attnlaw.InputError, match=r"f\.bmp: the file name of a figure must end in one of \.pdf, \.svg"
    ):
        save_chart(chart_of(audit, "amplification"), tmp_path / "f.bmp")


def test_shares_that_are_unknown_are_left_out(audit):
    layers = audit.tables["layers"]
    shares = [name for name in layers.columns if name.startswith("share")]
    proxies = [name for name in audit.rows.columns if name.startswith("log10_")]
    unknown = pl.lit(None, dtype=pl.Float64)
    bare = replace(
        audit,
        rows=audit.rows.with_columns(unknown.alias(name) for name in proxies),
        tables=audit.tables
        | {"layers": layers.with_columns(unknown.alias(name) for name in (*shares, "log10_alpha"))},
    )
    assert not {"proxies", "amplification", "shares"} & {*named(bare)}


def labels_of(verb):
    """Every text that an axis or a legend of a verb may have."""
    groups = (verb.quantities, *(table.columns for table in verb.tables))
    names = [quantity.name for group in groups for quantity in group]
    return {
        text
        for name in [*names, *setting_fields(verb.settings)]
        for text in (verb.label(name), verb.axis(name))
    }


def test_one_font_has_the_glyphs_of_every_label():
    known = TTFont(str(files("attnlaw.render.charts") / "fonts" / "Arimo.ttf")).getBestCmap()
    verbs = [
        verb
        for name in VERBS | STUDY_VERBS
        for verb in (find_verb(name), find_verb(name).simulation)
        if verb is not None
    ]
    texts = set().union(*(labels_of(verb) for verb in verbs)) | {"log₁₀ C(p)", "∞", "slope −2", "± s.e."}
    assert len(texts) > 300
    assert {sign for text in texts for sign in text if ord(sign) not in known} == set()


def test_a_label_of_subscripts_and_greek_is_of_one_font(audit, tmp_path):
    content = save_chart(chart_of(audit, "amplification"), tmp_path / "f.pdf").read_bytes()
    assert {name.partition(b"+")[2] for name in re.findall(rb"/BaseFont */(\S+)", content)} == {
        b"Arimo-Regular"
    }


def test_the_labels_of_a_legend_are_whole(tmp_path):
    long = [
        f"target exponent {gamma}, fitted (-0.8271) against -0.8333 ({gamma})" for gamma in (0.8, 1.0, 1.5)
    ]
    rows = [{"x": x, "y": x, "series": name} for x in (1, 2) for name in long]
    hue = alt.Color("series:N", scale=alt.Scale(domain=long), legend=alt.Legend(title=None))
    lines = alt.Chart(alt.Data(values=rows)).mark_line().encode(x="x:Q", y="y:Q", color=hue)
    drawn = save_chart(lines.properties(width=340, height=220), tmp_path / "f.svg").read_text()
    assert set(long) <= set(re.findall(r">([^<>]+)</text>", drawn))
    width = float(ElementTree.fromstring(drawn).attrib["viewBox"].split()[2])
    assert width == pytest.approx(COLUMN, abs=WIDTH_TOLERANCE)  # below each other, they fit a column


def test_a_caption_beside_a_figure_tells_settings_and_version(tmp_path):
    learned = attnlaw.learn(alpha=[0.1, 0.2, 0.3], noise=0.5)
    save_figure(figure_to_plot(learned), tmp_path / "curve.svg")
    title, settings, version = (tmp_path / "curve.caption.txt").read_text().splitlines()
    assert title.startswith(
        "Learning curves. Error of the learned matrix after each number of samples. Lines: theory"
    )
    assert settings.startswith("Settings: alpha α (0.1, 0.2, 0.3), tokens T 1, output plain scores")
    assert "noise Δ 0.5" in settings
    assert version == f"Computed by attnlaw {attnlaw.__version__}, drawn by attnlaw {attnlaw.__version__}."
