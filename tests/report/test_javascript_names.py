"""Models may be called like something of JavaScript's own, such as `constructor`: their figures are drawn."""

import re
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from checkpoints.spoiled import bert_state
from report.charts_of import as_rows, source
from report.charts_of import named as figures_by_name

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.render.charts.paper import save_chart, save_figures
from attnlaw.render.charts.style import inline_svg
from attnlaw.training.charts import step_figures
from attnlaw.verbs import find_verb
from attnlaw.verbs.audit.frames import AuditRows, audit_figures

NAMES = ("constructor", "toString", "__proto__")


@pytest.fixture(scope="module", name="audited")
def _audited() -> AuditRows:
    return as_rows(reduce(add, [attnlaw.audit(bert_state(), heads=2, jobs=1, name=name) for name in NAMES]))


def named(drawn: str) -> list[str]:
    """The models that a drawing names, in the order in which it does."""
    places = {name: drawn.find(f">{name}</text>") for name in NAMES}
    return sorted((name for name, place in places.items() if place >= 0), key=places.__getitem__)


@pytest.mark.parametrize("figure", ["proxies", "amplification", "shares", "comparison", "decay"])
def test_figures_of_several_models_name_all_in_their_order(figure: str, audited: AuditRows) -> None:
    layers = audited.tables["layers"].with_columns(share_qk=0.3 + 0.01 * pl.int_range(pl.len()))
    uneven = AuditRows(audited.summaries, audited.tables | {"layers": layers})
    (chart,) = [drawing.draw() for drawing in audit_figures(uneven) if drawing.name == figure]
    assert named(inline_svg(chart, figure)) == list(NAMES)


@pytest.mark.slow
def test_one_model_alone_is_drawn(audited: AuditRows) -> None:
    tables = {name: table.filter(model="constructor") for name, table in audited.tables.items()}
    for figure in audit_figures(AuditRows(audited.summaries[:1], tables)):
        assert "</text>" in inline_svg(figure.draw(), figure.name)


def test_a_map_of_one_of_several_has_the_name_as_its_title(audited: AuditRows, tmp_path: Path) -> None:
    heads = [figure for figure in audit_figures(audited) if figure.name == "heads_constructor"]
    (path,) = save_figures(heads, tmp_path, "svg")
    assert re.findall(r">(constructor[^<]*)<", path.read_text()) == ["constructor: spectral norm"]


def test_names_as_categories_and_as_dashes() -> None:
    rows = [{"model": name, "log10_edelman": 1.0} for name in NAMES]
    figure = figures_by_name(source(find_verb("audit"), rows))["proxies"]
    assert set(named(inline_svg(figure.draw(), "a"))) == set(NAMES)
    steps = pl.DataFrame({"step": [0, 1] * 3, "model": [*NAMES, *NAMES], "stable_rank_qk": [1.0] * 6})
    (drawn,) = step_figures(steps)
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
