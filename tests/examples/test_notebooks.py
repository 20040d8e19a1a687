"""The scripts in cells run from top to bottom, and end where they say."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.py"))
ELSEWHERE = "tour"  # needs downloads; tests/notebooks/test_jupyter.py runs it
WRITES = {
    "audit": "audit-notebook/report.html",
    "fit": "fit-notebook/figures/laws.png",
    "limit": "densities.png",
    "study": "study-notebook/report.html",
}


HERE = [path for path in NOTEBOOKS if path.stem != ELSEWHERE]


@pytest.mark.parametrize("notebook", HERE, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path, monkeypatch, capsys):
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(notebook))
    assert capsys.readouterr().out.strip()
    if notebook.stem in WRITES:
        assert (tmp_path / WRITES[notebook.stem]).stat().st_size > 1000


def test_each_is_made_of_cells():
    names = ["audit", "fit", "learn", "lens", "limit", "results", "study", "tour"]
    assert [path.stem for path in NOTEBOOKS] == names
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# %% [markdown]\n# # ")
        assert text.count("\n# %%") >= 5
