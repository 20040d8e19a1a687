"""A sharded (FSDP2) model is refused, and the lines in the refusal audit it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from training.sharded import build

import attnlaw
from attnlaw.training.monitor.snapshot import GATHER

pytestmark = pytest.mark.slow


def test_the_refusal_has_three_lines_that_work(tmp_path: Path) -> None:
    script = Path(__file__).with_name("sharded.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(rank), tmp_path], env=environment, stderr=subprocess.PIPE
        )
        for rank in range(2)
    ]
    for process in processes:
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stderr.decode()
    for rank in range(2):
        message = (tmp_path / f"message{rank}").read_text()
        assert "split among several processes (FSDP2)" in message
        assert "full_tensor()" in message
        assert "\n" not in message
    assert len(GATHER.strip().splitlines()) == 3
    gathered, whole = attnlaw.load(tmp_path / "step-7"), attnlaw.audit(build().state_dict(), heads=2)
    assert gathered.matrices.drop("model").equals(whole.matrices.drop("model"))


def test_the_page_shows_the_same_lines(request: pytest.FixtureRequest) -> None:
    assert GATHER in (request.config.rootpath / "docs" / "how-to" / "watch-training.md").read_text(
        encoding="utf-8"
    )
