"""A directory that holds more than one study: nothing of the user or of another study is lost."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from study.sample_verbs import rows, study
from typer.testing import CliRunner

from attnlaw.base.errors import InputError
from attnlaw.command.app import app
from attnlaw.study import run, status
from attnlaw.study.export import export
from attnlaw.study.store import open_store

DRAWS = 'verb = "draw"\n[grid]\nx = [1, 2]\n'
MINE = (
    "drafts/thesis.tex",
    "drafts/sub/chapter.parquet",
    "drafts/0123456789abcdef0123456789abcdef.parquet",
    "running/log.txt",
    "running/deep/0123456789abcdef0123456789abcdef",
    "tables/mine/results.csv",
    "tables/mine/rows.parquet",
    "tables/values/notes.txt",
    "tables/values/0123456789abcdef0123456789abcdef.parquet/inside",
    "parts/values/old.parquet",
    "rows/mine.parquet",
    "rows/.mine.draft",
    "tables/values/.notes.txt.draft",
    "slurm/out.log",
    "summary.json",
    "report.html",
)


def test_a_run_keeps_the_files_of_the_user(tmp_path: Path) -> None:
    out = tmp_path / "paper"
    for name in MINE:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(name)
    left = [
        out / "drafts" / f"{'0a' * 16}-values-host-name.org-77.parquet",
        out / "running" / ("b1" * 16),
        out / "rows" / ".rows.parquet.ab_45678.draft",
        out / "tables" / "values" / f".{'0a' * 16}.parquet.ab_45678.draft",
    ]
    for path in left:
        path.write_text("of a killed worker")
    assert run(study(tmp_path, DRAWS), out).done == 2
    run(study(tmp_path, DRAWS.replace("1, 2", "3")), out)
    assert {name: (out / name).read_text() for name in MINE} == {name: name for name in MINE}
    assert not any(path.exists() for path in left)


def test_two_studies_in_one_directory_keep_each_others_tasks(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = study(tmp_path, DRAWS)
    run(first, out)
    before = rows(out)
    tables = {path.name: path.read_bytes() for path in (out / "tables" / "values").iterdir()}
    run(study(tmp_path, 'verb = "square"\n[grid]\nx = [5]\n'), out)
    assert rows(out)["verb"].to_list() == ["square"]
    assert status(first, out).done == 2
    with open_store(out) as store:
        export(first, store)
    assert rows(out).equals(before)
    assert {path.name: path.read_bytes() for path in (out / "tables" / "values").iterdir()} == tables


def test_rows_without_their_store_are_not_written_over(tmp_path: Path) -> None:
    """Rows that were copied without their store cannot be exported again."""
    copied = tmp_path / "out" / "rows" / "rows.parquet"
    copied.parent.mkdir(parents=True)
    pl.DataFrame({"verb": ["draw"], "x": [9.0]}).write_parquet(copied)
    with pytest.raises(
        InputError, match=r"rows\.parquet: rows without their store .*choose another directory"
    ):
        run(study(tmp_path, DRAWS), tmp_path / "out")
    assert pl.read_parquet(copied)["x"].to_list() == [9.0]


def test_names_with_escapes_are_written_out(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('verb = "learn"\n[grid]\nalpha = [0.1]\n')
    out = tmp_path / "a\x1b[2Jb\nc"
    for verb in ("run", "export"):
        shown = CliRunner().invoke(app, ["study", verb, str(file), "--out", str(out)])
        assert shown.exit_code == 0
        assert "\x1b" not in shown.output
    assert f"wrote {tmp_path}/a\\x1b[2Jb\\nc/rows/rows.parquet\n" in shown.output
    more = tmp_path / "more.toml"
    more.write_text('verb = "learn"\n[grid]\nalpha = [0.1, 0.2]\n')
    shown = CliRunner().invoke(app, ["study", "status", str(more), "--out", str(out)])
    assert "go on with: " in shown.output
    assert "a\\x1b[2Jb\\nc'\n" in shown.output
