"""A store that somebody else wrote or damaged: one line, nothing linked from outside, nothing printed raw."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from study.sample_verbs import rows, study
from typer.testing import CliRunner

from attnlaw.base.errors import InputError
from attnlaw.command.app import app
from attnlaw.study import Study, resume, run, status
from attnlaw.study.export import export
from attnlaw.study.store import is_locked, locked, open_store
from attnlaw.study.task import Outcome

DRAWS = 'verb = "draw"\n[grid]\nx = [1, 2]\n'
NEST = "[" * 5000


def changed(out: Path, *statements: str) -> None:
    connection = sqlite3.connect(out / "store.sqlite")
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def exported(found: Study, out: Path) -> None:
    with open_store(out) as store:
        export(found, store)


@pytest.fixture(name="drawn")
def _drawn(tmp_path: Path) -> Study:
    """A study of two tasks with a table each, run in `out`."""
    found = study(tmp_path, DRAWS)
    run(found, tmp_path / "out")
    return found


@pytest.mark.parametrize(
    "setting",
    [
        "row = 'not json'",
        "row = '[1, 2]'",
        'row = \'{"largest": [1, "a"]}\'',
        "row = '{\"largest\": [[1], [2]]}'",
        'row = \'{"largest": {"a": 1}}\'',
        "row = '{\"largest\": NaN}'",
        "row = '{\"largest\": 1e999}'",
        f"row = '{{\"largest\": {10**400}}}'",
        f"row = '{{\"largest\": {2**63}}}'",
        f"row = '{{\"a\": {NEST}'",
        "row = x'00ff'",
        "row = NULL",
        "row = '{\"status\": 3}' WHERE key = (SELECT min(key) FROM outcomes)",
        "parts = '[1]'",
        "parts = '[[1, 2]]'",
        "parts = 'zz'",
        f"parts = '{NEST}'",
        "parts = x'00'",
        'parts = \'[["values", "parts/values/other.parquet"]]\'',
        "parts = json_array(json_array('..', 'parts/../' || key || '.parquet'))",
        "parts = json_array(json_array('gone', 'parts/gone/' || key || '.parquet'))",
        "error = x'00ff', row = NULL",
        "seconds = 'abc'",
        "seconds = 9e999",
        "seconds = -1",
        "attempts = 'many'",
    ],
)
def test_what_a_store_should_not_hold_is_refused_in_one_line(
    setting: str, drawn: Study, tmp_path: Path
) -> None:
    changed(tmp_path / "out", f"UPDATE outcomes SET {setting}")
    before = rows(tmp_path / "out")
    with pytest.raises(
        InputError, match=r"store\.sqlite: .*; the store is damaged|no table is there"
    ) as raised:
        exported(drawn, tmp_path / "out")
    assert str(raised.value).isprintable()
    assert rows(tmp_path / "out").equals(before)


def test_no_file_outside_the_directory_is_linked(drawn: Study, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("secret")
    out = tmp_path / "out"
    for part in (out / "parts" / "values").iterdir():
        part.unlink()
        part.symlink_to(victim)
    with pytest.raises(InputError, match="no table is there; compute it anew with: attnlaw study resume"):
        exported(drawn, out)
    changed(out, """UPDATE outcomes SET parts = '[["../../../evil", "../victim"]]'""")
    with pytest.raises(InputError, match=r"has a table that is not parts/NAME/"):
        exported(drawn, out)
    assert victim.stat().st_nlink == 1
    assert not (tmp_path / "evil").exists()


def test_keys_that_cannot_be_names_of_files_are_no_matter(drawn: Study, tmp_path: Path) -> None:
    """Rows of other studies stay; their tables are looked for and not found."""
    for key in ("a" * 300, "a\0b", "/../../victim", "(", "\n"):
        part = (("values", f"parts/values/{key}.parquet"),)
        with open_store(tmp_path / "out") as store:
            store.add([Outcome(key, 0.0, "{}", part)])
            assert store.lost().keys() >= {key}
    assert status(drawn, tmp_path / "out").done == 2
    assert run(drawn, tmp_path / "out").computed == 0


def test_errors_of_a_store_are_printed_without_escapes(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('verb = "learn"\n[grid]\nalpha = [0.1]\n')
    done = CliRunner().invoke(app, ["study", "run", str(file), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    owned = "error = char(27) || '[2Jowned' || char(10) || 'second', row = NULL"
    changed(tmp_path / "out", f"UPDATE outcomes SET {owned}")
    shown = CliRunner().invoke(app, ["study", "status", str(file), "--out", str(tmp_path / "out")])
    assert "1 x \\x1b[2Jowned\\nsecond\n" in shown.output
    assert "\x1b" not in shown.output


def test_a_row_does_not_say_otherwise_than_its_task(drawn: Study, tmp_path: Path) -> None:
    changed(
        tmp_path / "out", """UPDATE outcomes SET row = '{"verb": 3, "x": "no", "task": "t", "largest": 1}'"""
    )
    exported(drawn, tmp_path / "out")
    found = rows(tmp_path / "out")
    assert found["x"].to_list() == [1.0, 2.0]
    assert found["verb"].to_list() == ["draw", "draw"]
    assert found["task"].to_list() == [task.key for task in drawn.tasks]


def test_numbers_in_lists_keep_their_fractions(drawn: Study, tmp_path: Path) -> None:
    first, second = (task.key for task in drawn.tasks)
    changed(
        tmp_path / "out",
        f"""UPDATE outcomes SET row = '{{"path": [1, 2]}}' WHERE key = '{first}'""",
        f"""UPDATE outcomes SET row = '{{"path": [0.5, null]}}' WHERE key = '{second}'""",
    )
    exported(drawn, tmp_path / "out")
    assert rows(tmp_path / "out")["path"].to_list() == [[1.0, 2.0], [0.5, None]]


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE outcomes", f"CREATE VIEW outcomes AS {ENDLESS} SELECT i AS key, 0.0 AS seconds FROM n"],
        ["CREATE TRIGGER t AFTER INSERT ON outcomes BEGIN DELETE FROM outcomes; END"],
        ["CREATE TABLE mine (x)"],
        ["DROP TABLE outcomes", "CREATE VIRTUAL TABLE outcomes USING fts5(key, seconds, error)"],
        ["DROP TABLE outcomes", "CREATE TABLE outcomes (x)"],
    ],
    ids=["view", "trigger", "other table", "virtual", "other columns"],
)
def test_other_databases_are_refused(statements: list[str], drawn: Study, tmp_path: Path) -> None:
    changed(tmp_path / "out", *statements)
    for action in (status, run):
        with pytest.raises(InputError, match=r"store\.sqlite: not a .*choose another directory"):
            action(drawn, tmp_path / "out")


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("name", ["lock", "store.sqlite"])
@pytest.mark.parametrize("instead", [as_directory, as_pipe])
def test_no_file_where_one_should_be(
    instead: Callable[[Path], None], name: str, drawn: Study, tmp_path: Path
) -> None:
    instead(tmp_path / "out" / name)
    for action in (status, resume, run):
        with pytest.raises(InputError, match=f"{name}: not a plain file; choose another directory"):
            action(drawn, tmp_path / "out")


def test_a_lock_that_is_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("all my notes\n")
    (tmp_path / "out" / "lock").symlink_to(tmp_path / "precious")
    with (
        pytest.raises(InputError, match="lock: a file of another program has this name"),
        locked(tmp_path / "out"),
    ):
        pass
    assert (tmp_path / "precious").read_text() == "all my notes\n"
    assert not is_locked(tmp_path / "out")


def test_names_that_are_too_long_are_told(drawn: Study, tmp_path: Path) -> None:
    for action in (status, resume, run):
        with pytest.raises(InputError, match="File name too long"):
            action(drawn, tmp_path / ("a" * 5000))
