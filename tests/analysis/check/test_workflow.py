"""The workflow of the how-to runs: the job's steps, with the action of this repository among them."""

from __future__ import annotations

import re
import shutil
import tomllib

import pytest
import yaml
from analysis.check.pairs import changed, low_rank, read, write
from house.actions import Machine
from house.shipping import ROOT

PAGE = ROOT / "docs" / "how-to" / "gate-in-ci.md"
TINY = ROOT / "examples" / "tiny-decoder"


def block(title: str) -> str:
    (text,) = re.findall(
        rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return text


@pytest.mark.slow
@pytest.mark.parametrize(("size", "status"), [(0.01, 0), (0.6, 3)])
def test_a_job_of_the_workflow(tmp_path, size, status):
    (job,) = yaml.safe_load(block(".github/workflows/gate.yml"))["jobs"].values()
    job["steps"] += yaml.safe_load(block("one more step"))
    machine = Machine(tmp_path)
    shutil.copytree(TINY, machine.workspace / tomllib.loads(block("gate.toml"))["base"])
    state = read(TINY)
    names = {name for name, array in state.items() if array.ndim == 2}
    write(changed(state, low_rank(2, size), names), TINY, machine.workspace / "models" / "tuned")
    (machine.workspace / "gate.toml").write_text(block("gate.toml"))
    runner = machine.runner
    assert runner.run_job(job) == (status == 0)
    assert runner.status == status
    failed = [] if status == 0 else ["near the base", "no intruders"]
    titles = [f"file=gate.toml,title=attnlaw%3A {name}" for name in failed]
    assert [title for _, title, _ in runner.annotations] == titles
    assert ("### ✅ Gate passed" if status == 0 else "### ❌ Gate failed") in runner.summary
    assert (machine.kept / "attnlaw-report" / "report.html").stat().st_size
    assert '"uri": "gate.toml"' in (machine.kept / "alerts.sarif").read_text() or status == 0
