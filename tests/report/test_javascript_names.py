"""Models may be called like something of JavaScript's own, such as `constructor`: their figures are drawn."""

import re
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from checkpoints.spoiled import bert_state
from report.charts_of import named as figures_by_name
from report.charts_of import result_of, with_tables

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.core.result import Result
from attnlaw.render.charts.paper import figure_files, save_chart
from attnlaw.render.charts.style import inline_svg
from attnlaw.verbs import find_verb

NAMES = ("constructor", "toString", "__proto__")


@pytest.fixture(scope="module", name="audited")
def _audited() -> Result:
    return reduce(add, [attnlaw.audit(bert_state(), heads=2, jobs=1, name=name) for name in NAMES])


def named(drawn: str) -> list[str]:
    """The models that a drawing names, in the order in which it does."""
    places = {name: drawn.find(f">{name}</text>") for name in NAMES}
    return sorted((name for name, place in places.items() if place >= 0), key=places.__getitem__)


@pytest.mark.parametrize("figure", ["proxies", "amplification", "shares", "comparison", "decay"])
def test_figures_of_several_models_name_all_in_their_order(figure: str, audited: Result) -> None:
    layers = audited.tables["layers"].with_columns(share_qk=0.3 + 0.01 * pl.int_range(pl.len()))
    chart = figures_by_name(with_tables(audited, layers=layers))[figure].draw()
    assert named(inline_svg(chart, figure)) == list(NAMES)


@pytest.mark.slow
def test_one_model_alone_is_drawn(audited: Result) -> None:
    for figure in figures_by_name(audited[0]).values():
        assert "</text>" in inline_svg(figure.draw(), figure.name)


def test_a_map_of_one_of_several_has_the_name_as_its_title(audited: Result, tmp_path: Path) -> None:
    files = figure_files([figures_by_name(audited)["heads_constructor"]], tmp_path, "svg")
    drawn = files[tmp_path / "heads_constructor.svg"].decode()
    assert re.findall(r">(constructor[^<]*)<", drawn) == ["constructor: spectral norm"]


def test_names_as_categories_and_as_dashes() -> None:
    rows = [{"model": name, "log10_edelman": 1.0} for name in NAMES]
    figure = figures_by_name(result_of(find_verb("audit"), rows))["proxies"]
    assert set(named(inline_svg(figure.draw(), "a"))) == set(NAMES)
    steps = [
        {"case": 0, "step": step, "model": name, "stable_rank_qk": 1.0} for step in (0, 1) for name in NAMES
    ]
    (drawn,) = figures_by_name(result_of(find_verb("monitor"), [{}], {"steps": steps})).values()
    assert named(inline_svg(drawn.draw(), "b")) == list(NAMES)


@pytest.mark.parametrize("part", [False, True])
def test_what_vega_cannot_draw_is_one_line(part: bool, tmp_path: Path) -> None:
    """A whole chart fails with an error, one of several panels with a blank drawing."""
    import altair as alt

    chart: Any = alt.Chart(alt.Data(values=[{"x": 1}]), title="constructor").mark_point().encode(x="x:Q")
    if part:
        chart = alt.vconcat(alt.hconcat(chart, chart))
    for draw in (lambda: inline_svg(chart, "a"), lambda: save_chart(chart, tmp_path / "a.pdf")):
        with pytest.raises(
            InputError, match=r"^figure: cannot be drawn \(.*\); give the models other names$"
        ):
            draw()
