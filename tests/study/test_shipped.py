"""The studies that ship, and those of examples/: the tasks each speaks of, and a part drawn."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from command.in_process import invoke
from study.small_studies import FILES, SMALL, small

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.study import Backend, read_study, run
from attnlaw.study.shipped import shipped_studies
from attnlaw.verbs.views import figures_of

TASKS = {
    "atlas": {"audit": 16},
    "atlas-hub": {"audit": 26},
    "bounds-growth": {"growth": 1},
    "bounds-miniatures": {"audit": 24},
    "bounds-reference": {"audit": 1},
    "checkpoints": {"audit": 1, "fit": 1},
    "complete-connectivity": {"complete": 10, "complete.simulate": 1152},
    "dynamics-cost": {"dynamics": 3},
    "dynamics-flow": {"dynamics": 7},
    "dynamics-modes": {"dynamics": 4},
    "dynamics-spectra": {"dynamics": 1, "dynamics.simulate": 4},
    "dynamics-students": {"dynamics": 3, "dynamics.simulate": 12},
    "dynamics-training": {"decoder": 1},
    "early-stopping": {"early_stopping": 54, "early_stopping.simulate": 528},
    "init-depth": {"init": 10},
    "init-mup": {"coordinates": 8},
    "init-width": {"init": 10},
    "learn-curves": {"learn": 297, "learn.simulate": 80},
    "learn-error": {"learn": 60},
    "learn-phase-diagram": {"learn": 1600},
    "learn-scaling": {"learn": 42},
    "learn-spectrum": {"learn": 1, "learn.simulate": 6},
    "learn-hardmax": {"learn": 8},
    "learn-tokens": {"learn": 223},
    "learn-untied": {"learn": 160, "learn.simulate": 64},
    "learn-width": {"learn": 48, "learn.simulate": 20},
    "lens-entrywise": {"lens": 1},
    "limit-arrival": {"attention": 8},
    "limit-depth": {"limit": 4},
    "limit-heads": {"limit": 80},
    "limit-low-rank": {"limit": 30},
    "limit-readout": {"attention": 52},
    "limit-relu": {"limit": 40},
    "limit-scaling": {"limit": 90},
    "limit-spectrum": {"attention": 5},
    "limit-spectrum-large": {"attention": 2},
    "limit-width": {"limit": 50},
    "regression-ensemble": {"ensemble": 81, "ensemble.simulate": 384},
    "regression-scale": {"two_layer": 26, "two_layer.simulate": 240},
    "regression-shift": {"shift": 48, "shift.simulate": 288},
}


def test_every_study_is_known_here() -> None:
    assert sorted(FILES) == sorted(TASKS)


def test_a_study_is_found_by_its_name_where_no_file_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_study("learn-curves").path == FILES["learn-curves"]
    Path("learn-curves").write_text('verb = "learn"\n')
    assert len(read_study("learn-curves").tasks) == 1
    with pytest.raises(
        InputError,
        match=r"^no-such: no such file; give a study file, or a name that attnlaw study list shows",
    ):
        read_study("no-such")


def test_the_list_tells_every_study(tmp_path: Path) -> None:
    studies = json.loads(invoke("study", "list", "--json").stdout)
    assert {study["study"]: study["tasks"] for study in studies} == {
        name: sum(TASKS[name].values()) for name in shipped_studies()
    }
    assert all(study["about"] for study in studies)
    (shift,) = (study for study in studies if study["study"] == "regression-shift")
    assert shift["verbs"] == ["shift", "shift.simulate"]
    printed = invoke("study", "list").stdout
    assert all(name in printed for name in shipped_studies())


@pytest.mark.slow
def test_no_study_that_ships_needs_the_repository() -> None:
    for name in shipped_studies():
        for task in read_study(name).tasks:
            assert ".." not in str(task.case.to_row())
            assert "examples" not in str(task.case.to_row())


@pytest.mark.parametrize("name", TASKS)
def test_a_shipped_study_could_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FILES[name]
    if name == "bounds-reference":  # its model lies in a package
        (tmp_path / "rxnfp/models/transformers/bert_pretrained").mkdir(parents=True)
        monkeypatch.syspath_prepend(str(tmp_path))
    if name == "atlas":  # its models are fetched and drawn first
        file = Path(shutil.copy(file, tmp_path))
        for task in read_study(file).tasks:
            (tmp_path / task.case.model).mkdir(parents=True)
    study = read_study(file)
    assert Counter(task.verb.name for task in study.tasks) == TASKS[name]
    study.check(list(study.tasks))


def test_the_atlas_without_its_models_is_refused(tmp_path: Path) -> None:
    file = Path(shutil.copy(FILES["atlas"], tmp_path))
    study = read_study(file)
    with pytest.raises(InputError, match=r"\./atlas/rxnfp-pretrained: no such file or directory"):
        study.check(list(study.tasks))


@pytest.mark.slow
def test_the_study_of_checkpoints_runs(tmp_path: Path) -> None:
    report = run(read_study(FILES["checkpoints"]), tmp_path, Backend())
    assert (report.done, report.failures) == (2, ())
    tables = attnlaw.load(tmp_path).tables | attnlaw.load(tmp_path / "fit").tables
    for name in ("matrices", "spectra", "layers", "fits", "curves"):
        assert tables[name].height > 0


# Laws of other layers, drawn by the same charts as limit-width and limit-spectrum.
SLOW = ("limit-heads", "limit-relu", "limit-scaling", "limit-spectrum-large")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in SMALL]
)
def test_a_small_part_of_a_shipped_study_runs_and_is_drawn(name: str, tmp_path: Path) -> None:
    report = run(small(name), tmp_path, Backend())
    assert not report.failures
    figures = figures_of(attnlaw.load(tmp_path))
    assert [figure.name for figure in figures] == SMALL[name][-1]
    for figure in figures:
        assert figure.draw().to_dict()


def test_every_study_but_those_of_checkpoints_is_drawn_here() -> None:
    audits = {name for name, tasks in TASKS.items() if "audit" in tasks}
    assert SMALL.keys() == TASKS.keys() - audits
