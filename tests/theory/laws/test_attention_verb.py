"""The study verb `multi_head`: its rows, tables and errors, and what a study of it draws."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command.in_process import invoke

import attnlaw
from attnlaw.core.errors import BadSetting
from attnlaw.core.progress import no_progress
from attnlaw.study import read_study
from attnlaw.theory.laws.multi_head import MultiHeadLaw
from attnlaw.verbs import find_verb
from attnlaw.verbs.views import figures_of

VERB = find_verb("multi_head")
SMALL = {"tokens": 60, "heads": 3, "head_size": 20, "draws": 2}


@pytest.fixture(scope="module")
def small_result() -> attnlaw.Result:
    return VERB(**SMALL)


def test_a_row_has_law_draws_and_readout(small_result: attnlaw.Result) -> None:
    content = json.loads(json.dumps(small_result.summary))
    assert set(content) == {"verb", "settings", "quantities", "status", "remark", "version"}
    quantities = content["quantities"]
    law = MultiHeadLaw(1.0, 3, 1.0, 1.0, 1.0)
    assert quantities["mean"] == law.mean
    assert quantities["edges"] == list(law.intervals[0])
    assert quantities["atom_at_zero"] == 0.0
    for name in ("equivalent_w1", "equivalent_distance", "law_w1", "law_distance", "spike_found"):
        assert quantities[name]["value"] > 0
        assert quantities[name]["error"] > 0
    assert quantities["coefficient_error"] > 0
    assert "too sharp for 60 tokens" in content["remark"]


def test_without_draws_it_is_the_law_alone() -> None:
    row = VERB.row(*pair(draws=0, matrix="attention", tokens=4096, head_size=512))
    assert row["law_distance"] is None
    assert row["coefficient_error"] is None
    assert row["arrival_time"] is None
    assert row["mean"] == pytest.approx(np.e - 1)
    assert row["remark"] is None


def pair(**given: object) -> tuple[object, object]:
    (case,) = VERB.cases(given)
    return case, VERB(**given).record


def test_tables_are_the_density_and_the_first_draw(small_result: attnlaw.Result) -> None:
    densities, values = (small_result.tables[table.name] for table in VERB.tables)
    draws = small_result.record.draws
    assert values["value"].to_list() == draws.values.tolist()
    law = draws.layer.law
    assert densities["density"].to_numpy() == pytest.approx(law.density(densities["x"].to_numpy()))
    assert VERB.tables[1].name not in VERB(**SMALL | {"draws": 0}).tables


@pytest.mark.slow
def test_one_seed_one_result(small_result: attnlaw.Result) -> None:
    again, other = (VERB(**SMALL, seed=seed).record.draws for seed in (0, 1))
    assert again.law_w1 == small_result.record.draws.law_w1
    assert other.law_w1 != again.law_w1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sharing": "tied", "value_size": 9}, r"value_size.*expected the .*head_size"),
        ({"sharing": "tied", "second_order": True}, "no such law for K = V"),
        ({"beta": 6.0}, "beta"),
        ({"matrix": "scores"}, "attention, mean, values, output"),
    ],
)
def test_bad_settings_are_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        VERB.cases(given)


@pytest.mark.slow
def test_the_study_of_readouts_has_the_published_numbers() -> None:
    """arXiv 2610.10033: errors cross at beta .559; a tenth of the loss at times 41.22, 7.80, 7.76."""
    tasks = read_study("limit-readout").tasks
    arrivals = read_study("limit-arrival").tasks
    sizes = {task.case.head_size: task.case for task in arrivals}
    times = [record.arrival_time for record in VERB.run([sizes[64], sizes[105], sizes[106]], no_progress)]
    assert times == pytest.approx([41.22, 7.80, 7.76], abs=5.1e-3)
    near = [task for task in tasks if task.case.beta == pytest.approx(0.55)]
    next_ = [task for task in tasks if task.case.beta == pytest.approx(0.6)]
    ratios = []
    for pair in (near, next_):
        wide, equal = VERB.run([task.case for task in pair], no_progress)
        ratios.append(np.log(wide.coefficient_error / equal.coefficient_error))
    crossing = 0.55 + 0.05 * ratios[0] / (ratios[0] - ratios[1])
    # A line through two points 0.05 apart; the log ratio bends by about 10 in beta^2.
    assert crossing == pytest.approx(0.5587, abs=10 * 0.05**2 / 8 / abs(ratios[1] - ratios[0]) * 0.05)


@pytest.mark.slow
def test_a_study_draws_a_panel_a_layer(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        'verb = "multi_head"\n[fixed]\ndraws = 1\nhead_size = 8\ncentring = "mean"\n'
        '[[list]]\nname = "zeros"\ntokens = 80\nheads = 4\n'
        "[[list]]\ntokens = 60\nheads = 16\n"
    )
    invoke("study", "run", str(file), "--out", str(tmp_path / "out"))
    result = attnlaw.load(tmp_path / "out")
    (figure,) = figures_of(result)
    assert figure.name == "spectra"
    assert "Zeros are written" in figure.caption
    panels = figure.draw().to_dict()["concat"]
    titles = [panel["title"]["text"].strip() for panel in panels]
    assert titles == ["zeros (zeros 0.600)", "tokens 60, heads 16"]
    for panel, count in zip(panels, (32, 60), strict=True):
        bars, line = (json.loads(layer["data"]["values"]) for layer in panel["layer"][:2])
        # A histogram of what is not zero, and the law's density of the root: areas are the same.
        area = sum(bar["height"] * (bar["right"] - bar["left"]) for bar in bars)
        assert area == pytest.approx(count / (80 if count == 32 else 60))
        s, density = np.array([[point["x"], point["density"]] for point in line]).T
        assert np.trapezoid(density, s) == pytest.approx(area, abs=0.05)
    assert result.rows["name"].to_list() == ["zeros", None]
