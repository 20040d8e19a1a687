"""The workflow of the how-to: its commands run, and write what its other steps take."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml
from analysis.check.pairs import changed, low_rank, read, write
from command.in_process import invoke

PAGE = Path("docs/how-to/gate-in-ci.md").resolve()
TINY = Path("examples/tiny-decoder").resolve()
# Steps that take a file which the gate writes, and where they name it.
USED = (("github/codeql-action/upload-sarif", "sarif_file"), ("actions/upload-artifact", "path"))


def block(title: str) -> str:
    (text,) = re.findall(
        rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return text


@pytest.mark.slow
@pytest.mark.parametrize(("size", "status"), [(0.01, 0), (0.6, 3)])
def test_a_job_of_the_workflow(tmp_path, monkeypatch, size, status):
    (job,) = yaml.safe_load(block(".github/workflows/gate.yml"))["jobs"].values()
    steps = {step.get("name", step.get("uses", "").partition("@")[0]): step for step in job["steps"]}
    shutil.copytree(TINY, tmp_path / tomllib.loads(block("gate.toml"))["base"])
    state = read(TINY)
    names = {name for name, array in state.items() if array.ndim == 2}
    write(changed(state, low_rank(2, size), names), TINY, tmp_path / "models" / "tuned")
    (tmp_path / "gate.toml").write_text(block("gate.toml"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    program, *words = shlex.split(steps["Gate"]["run"])
    assert program == "attnlaw"
    ended = invoke(*words, status=status)
    titles = re.findall("^::error file=gate.toml,title=attnlaw%3A (.*?)::", ended.stdout, re.MULTILINE)
    assert titles == ([] if status == 0 else ["near the base", "no intruders"])
    mark = "### ✅ Gate passed" if status == 0 else "### ❌ Gate failed"
    assert mark in (tmp_path / "summary.md").read_text()
    taken = [steps[use]["with"][key] for use, key in USED]
    assert all((tmp_path / name).stat().st_size for name in taken)
    assert '"uri": "gate.toml"' in (tmp_path / taken[0]).read_text() or status == 0
