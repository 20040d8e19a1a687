"""The chart of fits: built from rows alone, with what the rows say in it."""

import re

import polars as pl
import pytest

from attnlaw.base.tables import frame
from attnlaw.report.fit_charts import LAW_COLOURS, law_map
from attnlaw.report.paper import COLUMN, NEAR
from attnlaw.report.saved import SCHEMAS
from attnlaw.report.style import save_chart


def rows():
    place = {"model": "some/model", "kind": "qk"}
    heads = [
        place | {"layer": layer, "head": head, "law": "random" if head else "learned"}
        for layer in range(2)
        for head in range(3)
    ]
    plain = [
        {"model": "some/model", "kind": "ffn_in", "layer": layer, "law": "neither"} for layer in range(2)
    ]
    experts = [plain[0] | {"kind": "ffn_out", "expert": expert} for expert in range(4)]
    outside = [{"model": "some/model", "kind": "embedding", "law": "neither"}]
    return frame(heads + plain + experts + outside, SCHEMAS["fits"])


def test_map_has_a_cell_for_every_head_and_matrix_of_a_layer(tmp_path):
    chart = law_map(rows())
    (line,) = chart.to_dict()["vconcat"]
    cells = [panel["data"]["values"] for panel in line["hconcat"]]
    assert [len(panel) for panel in cells] == [6, 2, 4]
    assert {cell["law"] for cell in cells[0]} == {"random", "learned"}
    fields = [panel["encoding"]["x"].get("field") for panel in line["hconcat"]]
    assert fields == ["head", None, "expert"]
    assert line["hconcat"][1]["encoding"]["x2"] == {"value": "width"}  # as wide as its panel, scaled or not
    assert line["title"]["text"].strip() == "model"
    assert line["hconcat"][0]["encoding"]["color"]["scale"]["domain"] == list(LAW_COLOURS)
    assert "</svg>" in save_chart(chart, tmp_path / "map.svg").read_text()


@pytest.mark.parametrize("kind", ["qk", "ffn_in"])
def test_a_map_narrower_than_its_legend_fits_a_column(kind, tmp_path):
    source = save_chart(law_map(rows().filter(pl.col("kind") == kind)), tmp_path / "map.svg").read_text()
    assert float(re.search(r'width="([\d.]+)pt"', source)[1]) == pytest.approx(COLUMN, abs=NEAR)
