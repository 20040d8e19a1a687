"""The report command as a user types it."""

import re
from pathlib import Path

import numpy as np
import pytest
from command.in_process import invoke
from report.charts_of import study_of

import attnlaw


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
    assert done.stderr == f"wrote {tmp_path}/report.html; no figures were drawn\n"
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize(("options", "status"), [((), 1), (("--figures", "bmp"), 2)])
def test_bad_input_is_one_line(options, status, tmp_path):
    done = invoke("report", tmp_path / "absent", *options, status=status)
    assert done.stderr.startswith("attnlaw: ")
    assert len(done.stderr.splitlines()) == 1
