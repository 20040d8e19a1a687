"""Charts of one shape are compiled once and drawn as if each had been compiled by itself."""

from __future__ import annotations

import json
import re
from typing import Any

import altair as alt
import polars as pl
import pytest
import vl_convert

from attnlaw.core.errors import InputError
from attnlaw.render.charts import style
from attnlaw.render.charts.densities import draw_spectrum
from attnlaw.render.charts.encodings import inline_data
from attnlaw.render.charts.style import draw_svg, house_spec

ODD = 'a "quoted" \\ title\ue0000'


def chart(scale: float, title: str, outliers: tuple[float, ...] = (), values: Any = None) -> dict[str, Any]:
    line = pl.DataFrame(
        {"x": [0.0, scale, 2 * scale], "density": [0.1, 0.4, 0.0], "detail": [0, 0, 0]},
    )
    made = draw_spectrum(line, "eigenvalue", values, atom=0.5, outliers=outliers, name="students, d = 3")
    return house_spec(made.properties(title=title))


def without_numbers(drawing: str) -> str:
    """The drawing without the numbers that Vega gives ids in the order of drawing."""
    return re.sub(r"clip\d+|gradient_\d+", "id", drawing)


@pytest.mark.parametrize(
    "spec",
    [
        chart(1.0, "first"),
        chart(30.0, "second", outliers=(40.0,)),
        chart(2.0, ODD, values=[0.0, 1.0, 1.5]),
        chart(2.0, ""),
        house_spec(
            alt.hconcat(alt.Chart(inline_data([{"a": 1}])).mark_point().encode(x="a:Q"), title="joined")
        ),
    ],
)
def test_a_drawing_is_the_one_that_vega_lite_gives(spec: dict[str, Any]) -> None:
    assert without_numbers(draw_svg(spec)) == without_numbers(vl_convert.vegalite_to_svg(spec))


def test_other_rows_and_another_title_are_not_compiled_anew() -> None:
    style._compile_outline.cache_clear()
    draw_svg(chart(1.0, "first"))
    assert "another" in draw_svg(chart(5.0, "another"))
    assert style._compile_outline.cache_info()[:2] == (1, 1)
    draw_svg(chart(5.0, "another", outliers=(11.0,)))
    assert style._compile_outline.cache_info()[:2] == (1, 2)


def test_what_cannot_be_compiled_is_one_line() -> None:
    with pytest.raises(InputError, match=r"^figure: cannot be drawn \(.*\); give the models other names$"):
        draw_svg({"title": "a", "mark": 3})


def test_a_table_has_the_rows_of_its_dictionaries() -> None:
    table = pl.DataFrame(
        {
            "x": [1e-9, float("nan"), float("inf"), 0.1 + 0.2],
            "name": ["a", "é", '"q"\\', None],
            "many": [[1.0, float("nan")], None, [], [2.0]],
            "flag": [True, None, False, True],
        }
    )
    fast, slow = (json.loads(inline_data(rows).to_dict()["values"]) for rows in (table, table.to_dicts()))
    assert fast == slow
    assert [row["x"] for row in fast] == [1e-9, None, None, 0.1 + 0.2]
