"""What may be exported from a store, and what may not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest
from study.sample_verbs import PYTHONPATH, exported, rows, study

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.study import Study, read_study, resume, run, status
from attnlaw.study.export import export
from attnlaw.study.store import hold_lock, open_store
from attnlaw.study.task import Ending, write_table

SQUARES = 'verb = "square"\n[grid]\nx = [3, 1, 2]\n'
OTHERS = 'verb = "square"\n[grid]\nx = [7, 8]\n'
ANOTHER = "no row in this directory belongs to this study"


def test_the_file_of_another_study_does_not_empty_the_rows(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(study(tmp_path, SQUARES), out)
    before = rows(out)
    other = study(tmp_path, OTHERS)
    with open_store(out) as store, pytest.raises(InputError, match=ANOTHER):
        export(other, store)
    with pytest.raises(InputError, match="or from models that have moved"):
        status(other, out)
    assert rows(out).equals(before)
    with hold_lock(out):  # its own run may have begun
        assert status(other, out).missing == 2
    assert run(other, out).done == 2
    assert rows(out)["x"].to_list() == [7, 8]


def test_a_run_stopped_before_its_first_task_leaves_the_rows_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run(study(tmp_path, SQUARES), out)
    before = rows(out)
    monkeypatch.setattr(sys.modules["attnlaw.study.run"], "_compute", lambda *_: 0)
    assert run(study(tmp_path, OTHERS), out).missing == 2
    assert rows(out).equals(before)


def test_a_store_without_rows_is_not_exported(tmp_path: Path) -> None:
    sample_study = study(tmp_path, SQUARES)
    with open_store(tmp_path / "out", create=True) as store:
        assert export(sample_study, store) == []
    assert exported(tmp_path / "out") == {}
    assert status(sample_study, tmp_path / "out").missing == 3
    with pytest.raises(InputError, match="has a study without exported rows; once a task is"):
        attnlaw.load(tmp_path / "out")


def test_columns_are_those_that_each_verb_declares(tmp_path: Path) -> None:
    """Whether they have a value or not; the second verb has a directory of its own."""
    text = 'verb = "square"\n[[list]]\nx = 3\n[[list]]\nverb = "cut"\nsquare = true\nonly = "qk"\n'
    run(study(tmp_path, text), tmp_path / "out")
    squares, cuts = rows(tmp_path / "out"), rows(tmp_path / "out" / "cut")
    ends = dict.fromkeys(("status", "remark", "attnlaw_version", "task"), pl.String)
    kinds = {
        "verb": pl.String,
        "x": pl.Float64,
        "seconds": pl.Float64,
        "log": pl.String,
        "square": pl.Float64,
    }
    assert list(squares.schema.items()) == list((kinds | ends).items())
    assert squares.select("square", "log").rows() == [(9.0, None)]
    kinds = {"verb": pl.String, "tool": pl.String, "edge": pl.Float64, "thickness": pl.Float64}
    kinds |= {"slices": pl.Int64, "plates": pl.Int64, "only": pl.List(pl.String), "model": pl.String}
    kinds |= {"square": pl.Boolean, "largest": pl.Float64}
    assert list(cuts.schema.items()) == list((kinds | ends).items())
    assert cuts.select("square", "only", "slices").rows() == [(True, ["qk"], None)]


def learn_study(folder: Path, *verbs: str) -> Study:
    """A point of a curve with its spectrum, two trained students, or both."""
    keys = {"learn": "spectrum = true", "learn.simulate": "simulate = 6"}
    lines = [
        f"verb = {list(verbs)}",
        "[fixed]",
        "alpha = 0.3",
        "noise = 0.5",
        *(keys[verb] for verb in verbs),
    ]
    file = folder / "study.toml"
    file.write_text("\n".join([*lines, "[run]", "seeds = 2\n"]))
    return read_study(file)


def test_a_simulation_is_with_its_theory(tmp_path: Path) -> None:
    """In whichever order the file names them. Tables of both are next to the rows."""
    for verbs in (("learn", "learn.simulate"), ("learn.simulate", "learn")):
        out = tmp_path / verbs[0]
        sample_study = learn_study(tmp_path, *verbs)
        run(sample_study, out)
        result = attnlaw.load(out)
        assert result.simulation is not None
        assert (result.verb.name, len(result)) == ("learn", 1)
        assert (result.simulation.verb.name, len(result.simulation)) == ("learn.simulate", 2)
        tasks = [*result.rows["task"], *result.simulation.rows["task"]]
        assert set(tasks) == {task.key for task in sample_study.tasks}
        assert (list(result.tables), list(result.simulation.tables)) == (
            ["predicted_spectra"],
            ["eigenvalues"],
        )
        assert result.simulation.tables["eigenvalues"]["case"].to_list() == [0] * 6 + [1] * 6
        assert not list(out.glob("*/attnlaw.json"))


def test_simulations_alone_are_a_result(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(learn_study(tmp_path, "learn.simulate"), out)
    result = attnlaw.load(out)
    assert (result.verb.name, len(result), result.simulation) == ("learn.simulate", 2, None)
    # Later their theory is there, too; and then no longer.
    run(learn_study(tmp_path, "learn", "learn.simulate"), out)
    assert len(attnlaw.load(out).simulation) == 2
    run(learn_study(tmp_path, "learn"), out)
    assert attnlaw.load(out).simulation is None
    assert set(exported(out)) == {"attnlaw.json", "rows.parquet", "predicted_spectra.parquet"}


def test_what_is_exported_is_what_is_collected(tmp_path: Path) -> None:
    """Two routes to the same rows and tables: the verb called with the same settings, and the study."""
    sample_study = learn_study(tmp_path, "learn")
    run(sample_study, tmp_path / "out")
    loaded, direct = attnlaw.load(tmp_path / "out"), attnlaw.learn(alpha=0.3, noise=0.5, spectrum=True)
    assert loaded.rows.drop("task").equals(direct.rows)
    assert loaded.tables["predicted_spectra"].equals(direct.tables["predicted_spectra"])
    assert loaded.to_json() == direct.to_json()


def test_the_directory_of_a_further_verb_goes_with_it(tmp_path: Path) -> None:
    """Results of others in the directory of the study stay: of a command, and of another study."""
    text = 'verb = ["learn", "limit"]\n[fixed]\nalpha = 0.3\ndraws = 100\n'
    out, file = tmp_path / "out", tmp_path / "study.toml"
    file.write_text(text)
    run(read_study(file), out)
    assert [attnlaw.load(place).verb.name for place in (out, out / "limit")] == ["learn", "limit"]
    shutil.copytree(out / "limit", out / "copy")
    shutil.copytree(out, out / "learn")
    shutil.rmtree(out / "learn" / "limit")
    file.write_text(text.replace(', "limit"', "").replace("draws = 100\n", ""))
    run(read_study(file), out)
    assert not (out / "limit").exists()
    assert [attnlaw.load(out / name).verb.name for name in ("copy", "learn")] == ["limit", "learn"]
    file.write_text(text.replace('"learn", ', "").replace("alpha = 0.3\n", ""))
    run(read_study(file), out)
    assert attnlaw.load(out).verb.name == "limit"
    assert set(exported(out)) == {"attnlaw.json", "rows.parquet", "densities.parquet"}


DRAWS = 'verb = "draw"\n[grid]\nx = [1, 2]\n'


def test_a_table_changes_with_its_row_and_not_before(tmp_path: Path) -> None:
    """A forced task that is stopped after its table and before its row, or a worker that ends too late."""
    sample_study = study(tmp_path, DRAWS)
    out = tmp_path / "out"
    run(sample_study, out)
    before = exported(out)
    late = write_table(pl.DataFrame({"value": [0.5], "case": [0]}), "values", sample_study.tasks[0].key, out)
    with open_store(out) as store:
        export(sample_study, store)
        assert exported(out) == before
        store.add([Ending(sample_study.tasks[0].key, 0.0, '{"largest": 0.5}', (("values", late),))])
        export(sample_study, store)
    assert rows(out)["largest"][0] == 0.5
    changed = pl.read_parquet(out / "values.parquet")
    assert changed.filter(case=0)["value"].to_list() == [0.5]
    assert changed.filter(case=1).height == 60
    run(sample_study, out)
    with open_store(out) as store:
        named = {path for ending in store.endings().values() for _, path in ending.parts}
    assert {
        str(path.relative_to(out)) for path in (out / "parts" / "values").iterdir()
    } == named  # the rest is swept


def test_a_lost_table_is_missing_and_computed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample_study = study(tmp_path, DRAWS)
    out = tmp_path / "out"
    run(sample_study, out)
    before = exported(out)
    next((out / "parts" / "values").glob(f"{sample_study.tasks[1].key}-*")).unlink()
    assert (status(sample_study, out).done, status(sample_study, out).missing) == (1, 1)
    with (
        open_store(out) as store,
        pytest.raises(InputError, match=r"cannot be read .*delete the file if it exists, and the next run"),
    ):
        export(sample_study, store)
    with monkeypatch.context() as patch:  # a run that is stopped at once keeps what was exported
        patch.setattr(sys.modules["attnlaw.study.run"], "_compute", lambda *_: 0)
        assert run(sample_study, out).missing == 1
    assert exported(out) == before
    report = resume(sample_study, out)
    assert (report.computed, report.done, report.missing) == (1, 2, 0)
    assert exported(out) == before


def test_a_torn_table_is_told(tmp_path: Path) -> None:
    sample_study = study(tmp_path, DRAWS)
    out = tmp_path / "run[1]"  # no pattern
    run(sample_study, out)
    before = exported(out)
    part = next((out / "parts" / "values").iterdir())
    part.write_bytes(part.read_bytes()[:100])
    with open_store(out) as store, pytest.raises(InputError, match=rf"{part.name}: cannot be read"):
        export(sample_study, store)
    assert exported(out) == before


def test_a_table_that_would_not_fit_into_memory_stays_in_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("attnlaw.study.export.MOST_GIGABYTES", 1e-9)
    out = tmp_path / "out"
    with caplog.at_level("INFO", logger="attnlaw"):
        assert run(study(tmp_path, DRAWS), out).done == 2
    assert caplog.messages[0].startswith(f"{out / 'parts' / 'values'}: ")
    assert set(exported(out)) == {"attnlaw.json", "rows.parquet"}
    assert rows(out).height == 2


KILLED = """
import os, sys, tempfile
make = tempfile.mkstemp

def made(*names, **options):
    made = make(*names, **options)
    if sys.argv[1] in options["prefix"]:
        os.kill(os.getpid(), 9)
    return made

tempfile.mkstemp = made
from study.driver import drive
drive(*sys.argv[2:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", ["rows.parquet", "values.parquet"])
def test_a_kill_during_an_export_leaves_nothing_that_a_pattern_finds(tmp_path: Path, at: str) -> None:
    sample_study = study(tmp_path, DRAWS)
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, at, os.devnull, tmp_path / "study.toml", out]
    killed = subprocess.run(command, env=os.environ | {"PYTHONPATH": PYTHONPATH})
    assert killed.returncode == -signal.SIGKILL
    left = [path for path in out.iterdir() if path.name.startswith(".")]
    assert 1 <= len(left) <= 3
    assert exported(out) == {}  # all or nothing
    with open_store(out) as store:  # without a run, which sweeps
        export(sample_study, store)
    assert set(exported(out)) == {"attnlaw.json", "rows.parquet", "values.parquet"}
    assert duckdb.sql(f"SELECT count(*) FROM '{out}/values.parquet'").fetchall() == [(120,)]
    assert rows(out).height == 2
    run(sample_study, out)
    assert not any(path.exists() for path in left)
