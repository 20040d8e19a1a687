"""What may be exported from a store, and what may not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest
from study.sample_verbs import PYTHONPATH, rows, study

from attnlaw.core.errors import InputError
from attnlaw.study import resume, run, status
from attnlaw.study.export import export
from attnlaw.study.store import hold_lock, open_store
from attnlaw.study.task import TaskResult, write_table

SQUARES = 'verb = "square"\n[grid]\nx = [3, 1, 2]\n'
OTHERS = 'verb = "square"\n[grid]\nx = [7, 8]\n'
ANOTHER = "holds rows of another study"


def test_the_file_of_another_study_does_not_empty_the_rows(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(study(tmp_path, SQUARES), out)
    before = rows(out)
    other = study(tmp_path, OTHERS)
    with open_store(out) as store, pytest.raises(InputError, match=ANOTHER):
        export(other, store)
    with pytest.raises(
        InputError, match="or of models that have moved: a row belongs to their absolute path"
    ):
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


def test_a_store_without_rows_is_exported_without_rows(tmp_path: Path) -> None:
    sample_study = study(tmp_path, SQUARES)
    with open_store(tmp_path / "out", create=True) as store:
        export(sample_study, store)
    assert rows(tmp_path / "out").height == 0
    assert status(sample_study, tmp_path / "out").missing == 3


def test_columns_are_those_that_the_verbs_declare(tmp_path: Path) -> None:
    """Whether they have a value or not; a switch of one verb and a number of another are numbers."""
    text = 'verb = "square"\n[[list]]\nx = 3\n[[list]]\nverb = "cut"\nsquare = true\nonly = "qk"\n'
    run(study(tmp_path, text), tmp_path / "out")
    frame = rows(tmp_path / "out")
    kinds = {"verb": pl.String, "x": pl.Float64, "seconds": pl.Float64, "log": pl.String, "tool": pl.String}
    kinds |= {"edge": pl.Float64, "thickness": pl.Float64, "slices": pl.Int64, "plates": pl.Int64}
    kinds |= {"only": pl.List(pl.String), "model": pl.String, "square": pl.Float64, "largest": pl.Float64}
    ends = dict.fromkeys(("status", "remark", "error", "attnlaw_version", "task"), pl.String)
    assert list(frame.schema.items()) == list((kinds | ends).items())
    assert frame["square"].to_list() == [9.0, 1.0]
    assert frame["only"].to_list() == [None, ["qk"]]
    assert frame["slices"].to_list() == frame["log"].to_list() == [None, None]


DRAWS = 'verb = "draw"\n[grid]\nx = [1, 2]\n'


def test_a_table_changes_with_its_row_and_not_before(tmp_path: Path) -> None:
    """A forced task that is stopped after its table and before its row, or a worker that ends too late."""
    sample_study = study(tmp_path, DRAWS)
    out = tmp_path / "out"
    run(sample_study, out)
    tables = {path.name: path.read_bytes() for path in (out / "tables" / "values").iterdir()}
    assert set(tables) == {f"{task.key}.parquet" for task in sample_study.tasks}
    late = write_table(pl.DataFrame({"value": [0.5]}), "values", sample_study.tasks[0].key, out)
    with open_store(out) as store:
        export(sample_study, store)
        assert {path.name: path.read_bytes() for path in (out / "tables" / "values").iterdir()} == tables
        store.add([TaskResult(sample_study.tasks[0].key, 0.0, '{"largest": 0.5}', (("values", late),))])
        export(sample_study, store)
    first = rows(out).filter(task=sample_study.tasks[0].key)
    assert first.select("largest", "values_part").rows() == [(0.5, late)]
    changed = pl.read_parquet(out / "tables" / "values" / f"{sample_study.tasks[0].key}.parquet")
    assert changed["value"].to_list() == [0.5]
    run(sample_study, out)
    parts = {str(path.relative_to(out)) for path in (out / "parts" / "values").iterdir()}
    assert parts == set(rows(out)["values_part"])  # the earlier one is swept


def test_a_lost_table_is_missing_and_computed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample_study = study(tmp_path, DRAWS)
    out = tmp_path / "out"
    run(sample_study, out)
    before = rows(out)
    tables = {path.name: path.read_bytes() for path in (out / "tables" / "values").iterdir()}
    (out / before["values_part"][1]).unlink()
    assert (status(sample_study, out).done, status(sample_study, out).missing) == (1, 1)
    with (
        open_store(out) as store,
        pytest.raises(InputError, match="no table is there; compute it anew with: attnlaw study resume"),
    ):
        export(sample_study, store)
    with monkeypatch.context() as patch:  # a run that is stopped at once keeps what was exported
        patch.setattr(sys.modules["attnlaw.study.run"], "_compute", lambda *_: 0)
        assert run(sample_study, out).missing == 1
    assert rows(out).equals(before)
    report = resume(sample_study, out)
    assert (report.computed, report.done, report.missing) == (1, 2, 0)
    assert rows(out).equals(before)
    assert {path.name: path.read_bytes() for path in (out / "tables" / "values").iterdir()} == tables


KILLED = """
import os, sys, tempfile
link, make = os.link, tempfile.mkstemp

def linked(source, target):
    link(source, target)
    os.kill(os.getpid(), 9)

def made(*names, **options):
    made = make(*names, **options)
    if "rows.parquet" in options["prefix"]:
        os.kill(os.getpid(), 9)
    return made

at = sys.argv.pop(1)
if at == "table":
    os.link = linked
else:
    tempfile.mkstemp = made
from study.driver import drive
drive(*sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", ["rows", "table"])
def test_a_kill_during_an_export_leaves_nothing_that_a_pattern_finds(tmp_path: Path, at: str) -> None:
    """Two tasks of 60 lines each: 120 in all, never those of a draft a second time."""
    sample_study = study(tmp_path, DRAWS)
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, at, os.devnull, tmp_path / "study.toml", out]
    killed = subprocess.run(command, env=os.environ | {"PYTHONPATH": PYTHONPATH})
    assert killed.returncode == -signal.SIGKILL
    left = [path for place in ("rows", "tables/values") for path in (out / place).glob(".*")]
    assert len(left) == 1
    with open_store(out) as store:  # without a run, which sweeps
        export(sample_study, store)
    assert pl.read_parquet(out / "tables" / "values" / "*.parquet").height == 120
    assert duckdb.sql(f"SELECT count(*) FROM '{out}/tables/values/*.parquet'").fetchall() == [(120,)]
    assert rows(out).height == 2
    assert duckdb.sql(f"SELECT count(*) FROM '{out}/rows/*.parquet'").fetchall() == [(2,)]
    run(sample_study, out)
    assert not left[0].exists()
