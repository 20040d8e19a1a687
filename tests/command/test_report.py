"""The report command as a user types it."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from command.in_process import invoke
from report.charts_of import study_of

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.report import write_report

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"


@pytest.fixture(scope="module", name="saved")
def _saved(tmp_path_factory):
    rng = np.random.default_rng(0)
    state = {"in_proj_weight": rng.standard_normal((24, 8)), "out_proj.weight": rng.standard_normal((8, 8))}
    folder = attnlaw.audit(state, heads=2, only="qk").save(tmp_path_factory.mktemp("saved"))
    (folder / "report.html").unlink()
    return folder


def test_page_and_figures_are_written_from_rows(saved, tmp_path):
    done = invoke("report", saved, "--out", tmp_path / "out", "--figures", "svg")
    assert done.stdout == ""
    figures = (tmp_path / "out" / "figures").glob("*.*")
    drawn = [path.name for path in figures if path.suffix not in (".json", ".txt")]
    match = re.fullmatch(r"wrote (.*/out)/report\.html and in \1/figures: (.*)\n", done.stderr)
    assert sorted(match[2].split(", ")) == sorted(drawn)
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert {Path(name).suffix for name in drawn} == {".svg"}
    assert not (saved / "report.html").exists()


def test_rows_without_figures_are_told(tmp_path):
    """One case that failed: there is nothing to draw, and no directory of figures."""
    study_of(tmp_path, [{"verb": "limit", "status": "failed", "remark": "too wide; choose less"}])
    done = invoke("report", tmp_path, "--figures", "pdf")
    assert done.stderr == f"wrote {tmp_path}/report.html, but no figures\n"
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(("options", "status"), [((), 1), (("--figures", "bmp"), 2)])
def test_bad_input_is_one_line(options, status, tmp_path):
    done = invoke("report", tmp_path / "absent", *options, status=status)
    assert done.stderr.startswith("attnlaw: ")
    assert len(done.stderr.splitlines()) == 1


def test_an_unreadable_directory_does_not_stop_the_others(saved, tmp_path):
    copies = [Path(shutil.copytree(saved, tmp_path / name)) for name in ("first", "second")]
    (copies[1] / "rows.parquet").write_bytes(b"no rows")
    words = (*copies, tmp_path / "<absent>", "--out", tmp_path / "out", "--figures", "svg")
    done = invoke("report", *words, status=1)
    lines = done.stderr.splitlines()
    assert [line.split(":")[1].strip() for line in lines[:2]] == [
        str(copies[1] / "rows.parquet"),
        str(tmp_path / "<absent>"),
    ]
    assert lines[2].startswith(f"wrote {tmp_path / 'out' / 'report.html'} and in ")
    assert len(lines) == 3
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"Could not read: {copies[1] / 'rows.parquet'}: " in page
    assert "&lt;absent&gt;: no such directory" in page
    with pytest.raises(InputError, match=r"rows\.parquet"):
        write_report(copies, tmp_path / "python")
    assert not (tmp_path / "python").exists()


def test_of_a_study_the_readable_verbs_are_shown(tmp_path):
    (tmp_path / "study.toml").write_text(
        f'verb = ["audit", "fit"]\n[fixed]\nonly = "qk"\nlayers = 0\nmodel = "{TINY}"\n'
    )
    out = tmp_path / "out"
    invoke("study", "run", tmp_path / "study.toml", "--out", out)
    (out / "fit" / "attnlaw.json").write_text("{")
    done = invoke("report", out, status=1)
    assert f"attnlaw: {out / 'fit' / 'attnlaw.json'}: this file was not written by attnlaw" in done.stderr
    assert "Could not read: " in (out / "report.html").read_text()
