"""Ordinary damage of one's own store, and files that lie in its directory: one line, and nothing is lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from study.sample_verbs import exported, find, rows, study

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.study import Study, resume, run, status
from attnlaw.study.export import export
from attnlaw.study.store import open_store

DRAWS = 'verb = "draw"\n[grid]\nx = [1, 2]\n'


@pytest.fixture(name="drawn")
def _drawn(tmp_path: Path) -> Study:
    """A study of two tasks with a table each, run in `out`."""
    sample_study = study(tmp_path, DRAWS)
    run(sample_study, tmp_path / "out")
    return sample_study


@pytest.mark.parametrize(
    "damage", ["row = substr(row, 1, 9)", "row = NULL", "row = '[1, 2]'", "parts = substr(parts, 1, 9)"]
)
def test_a_row_that_cannot_be_read_is_told(damage: str, drawn: Study, tmp_path: Path) -> None:
    before = rows(tmp_path / "out")
    with sqlite3.connect(tmp_path / "out" / "store.sqlite") as connection:
        connection.execute(f"UPDATE outcomes SET {damage}")
    connection.close()
    with (
        open_store(tmp_path / "out") as store,
        pytest.raises(InputError, match=r"store.sqlite: its row for task \w+ cannot be read; the store"),
    ):
        export(drawn, store)
    assert rows(tmp_path / "out").equals(before)


def test_a_store_of_other_columns_is_told(drawn: Study, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "out" / "store.sqlite") as connection:
        connection.execute("DROP TABLE outcomes")
        connection.execute("CREATE TABLE outcomes (x)")
    connection.close()
    for action in (status, run):
        with pytest.raises(
            InputError, match=r"store\.sqlite: this file is not a store of a study .no such column"
        ):
            action(drawn, tmp_path / "out")


@pytest.mark.parametrize("name", ["lock", "store.sqlite"])
def test_a_directory_where_a_file_should_be_is_told(name: str, drawn: Study, tmp_path: Path) -> None:
    (tmp_path / "out" / name).unlink()
    (tmp_path / "out" / name).mkdir()
    with pytest.raises(InputError, match=r"cannot be locked|this file is not a store of a study"):
        run(drawn, tmp_path / "out")


def test_names_that_are_too_long_are_told(drawn: Study, tmp_path: Path) -> None:
    for action in (status, resume, run):
        with pytest.raises(InputError, match=r"File name too long|has no study"):
            action(drawn, tmp_path / ("a" * 300))


MINE = (
    "drafts/thesis.tex",
    "drafts/sub/chapter.parquet",
    "running/log.txt",
    "tables/mine/results.csv",
    "parts/values/old.parquet",
    "rows/mine.parquet",
    "mine.parquet",
    ".mine.draft",
    "draw/.mine.draft",
    "summary.json",
)


def test_a_run_keeps_the_files_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.verbs.views.find_verb", find)
    out = tmp_path / "paper"
    for name in MINE:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(name)
    left = [
        out / "drafts" / f"{'0a' * 16}-values-host-name.org-77.parquet",
        out / "running" / ("b1" * 16),
        out / ".rows.parquet.ab_45678.draft",
        out / ".attnlaw.json.ab_45678.draft",
        out / "draw" / ".values.parquet.ab_45678.draft",
    ]
    for path in left:
        path.write_text("of a killed worker")
    assert run(study(tmp_path, DRAWS), out).done == 2
    run(study(tmp_path, DRAWS.replace("1, 2", "3")), out)
    assert {name: (out / name).read_text() for name in MINE} == {name: name for name in MINE}
    assert not any(path.exists() for path in left)


def test_two_studies_in_one_directory_keep_each_others_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlaw.verbs.views.find_verb", find)
    out = tmp_path / "out"
    first = study(tmp_path, DRAWS)
    run(first, out)
    before = exported(out)
    run(study(tmp_path, 'verb = "square"\n[grid]\nx = [5]\n'), out)
    assert rows(out)["verb"].to_list() == ["square"]
    assert "values.parquet" not in exported(out)
    assert status(first, out).done == 2
    with open_store(out) as store:
        export(first, store)
    assert exported(out) == before


@pytest.mark.parametrize("name", ["rows.parquet", "attnlaw.json", "cut/rows.parquet"])
def test_results_without_their_store_are_not_written_over(name: str, tmp_path: Path) -> None:
    """Rows that were copied without their store cannot be exported again, nor what a command wrote."""
    copied = tmp_path / "out" / name
    copied.parent.mkdir(parents=True)
    copied.write_text("mine")
    with pytest.raises(
        InputError, match=rf"{name}: this directory holds a result whose store .*choose another directory"
    ):
        run(study(tmp_path, 'verb = ["square", "cut"]\n[fixed]\nx = 1\n'), tmp_path / "out")
    assert copied.read_text() == "mine"


def test_a_command_does_not_write_over_a_study(drawn: Study, tmp_path: Path) -> None:
    before = exported(tmp_path / "out")
    with pytest.raises(InputError, match="out: this directory has a study, which results would overwrite"):
        attnlaw.learn(alpha=0.3).save(tmp_path / "out")
    assert exported(tmp_path / "out") == before
