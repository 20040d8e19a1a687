"""The verbs for studies alone: no command, no function; rows, schemas and the shipped studies."""

from __future__ import annotations

from pathlib import Path

import pytest
from command.in_process import invoke

import attnlaw
from attnlaw.core.errors import BadSetting
from attnlaw.core.progress import no_progress
from attnlaw.study.study_file import read_study
from attnlaw.verbs import STUDY_VERBS, VERBS, find_verb


@pytest.mark.parametrize("name", STUDY_VERBS)
def test_no_command_and_no_function(name: str) -> None:
    assert name not in VERBS
    assert not hasattr(attnlaw, name)
    assert f"{name} is not a command" in invoke(name, status=2).stderr
    assert f"\n  {name} " not in invoke("--help").stdout


@pytest.mark.parametrize(
    ("name", "settings", "quantity", "value"),
    [
        ("two_layer", {"scale": 1.0}, "excess", 0.07784),
        ("shift", {"ridge": 0.01}, "weight_ratio", 0.1301),
        ("ensemble", {"ridge": 0.01, "learners": 4}, "mean_error", 0.60753),
        ("early_stopping", {}, "risk", 0.010904),
        ("complete", {"entry": 0.5}, "corner", 2.0),
    ],
)
def test_a_row(name: str, settings: dict, quantity: str, value: float) -> None:
    verb = find_verb(name)
    (case,) = verb.cases(settings)
    (result,) = verb.run([case], no_progress)
    row = verb.row(case, result)
    assert list(row) == list(verb.schema)
    assert row[quantity] == pytest.approx(value, abs=5.1e-5)
    assert row["status"] == "done"


@pytest.mark.parametrize("name", [name for name in STUDY_VERBS if find_verb(name).simulation is not None])
def test_the_simulation_beside_it(name: str) -> None:
    small = {
        "two_layer": {"weak": 120},
        "shift": {"dimension": 20, "samples": 30},
        "ensemble": {"inputs": 20, "samples": 40, "features": 30},
        "early_stopping": {"samples": 100, "dimension": 50},
        "complete": {"graph": "disconnected"},
    }
    verb = find_verb(f"{name}.simulate")
    (case,) = verb.cases(small[name] | {"seeds": 2})
    (result,) = verb.run([case], no_progress)
    row = verb.row(case, result)
    first = verb.quantities[0].name
    assert row[f"{first}_error"] > 0


def test_bad_settings_are_one_line() -> None:
    with pytest.raises(
        BadSetting, match="samples: found 3000, expected fewer than strong and weak directions"
    ):
        find_verb("two_layer").cases({"samples": 3000})
    with pytest.raises(BadSetting, match="largest needs weighting truncated"):
        find_verb("shift").cases({"largest": 3.0, "weighting": "ones"})
    with pytest.raises(BadSetting, match="noise needs loss square"):
        find_verb("ensemble").cases({"loss": "hinge", "noise": 0.1})


@pytest.mark.parametrize("name", ["scale", "shift", "ensemble"])
def test_the_shipped_studies_can_be_read(name: str) -> None:
    study = read_study(f"regression-{name}")
    study.check(list(study.tasks))
    assert len(study.verbs) == 2


def test_a_small_study_is_run_and_drawn(tmp_path: Path) -> None:
    """Theory and points of a study, in a page with its figure on one logarithmic axis."""
    (tmp_path / "small.toml").write_text(
        'verb = ["shift", "shift.simulate"]\n[fixed]\nsamples = 30\ndimension = 20\n'
        "[grid]\nridge = [0.05, 0.5]\n[run]\nseeds = 3\n"
    )
    out = str(tmp_path / "out")
    invoke("study", "run", str(tmp_path / "small.toml"), "--out", out)
    invoke("report", out, "--figures", "svg")
    assert {path.name for path in (tmp_path / "out" / "figures").glob("*.svg")} == {"weights.svg", "risk.svg"}
    text = (tmp_path / "out" / "figures" / "risk.svg").read_text()
    assert "fitted, p = 20" in text
    assert ">0.1<" in text
