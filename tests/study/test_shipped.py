"""The studies that ship: each is read, expands into the tasks it speaks of, and could run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from attnlaw.study import Place, read_study, run
from attnlaw.study.verbs import VERBS

STUDIES = Path(__file__).resolve().parents[2] / "studies"
TASKS = {
    "atlas": {"audit": 1, "fit": 1},
    "learn-curves": {"learn": 240, "learn.simulate": 80},
    "learn-phase-diagram": {"learn": 1600},
    "learn-scaling": {"learn": 42},
    "learn-spectrum": {"learn": 1, "learn.simulate": 6},
    "learn-tokens": {"learn": 180},
    "limit-depth": {"limit": 4},
    "limit-heads": {"limit": 80},
    "limit-low-rank": {"limit": 30},
    "limit-relu": {"limit": 40},
    "limit-scaling": {"limit": 90},
    "limit-width": {"limit": 50},
}


def test_every_study_is_known_here() -> None:
    assert sorted(path.stem for path in STUDIES.glob("*.toml")) == sorted(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_a_shipped_study_could_run(name: str) -> None:
    study = read_study(STUDIES / f"{name}.toml", VERBS)
    assert Counter(task.verb for task in study.tasks) == TASKS[name]
    study.check(list(study.tasks))


def test_the_atlas_runs(tmp_path: Path) -> None:
    report = run(read_study(STUDIES / "atlas.toml", VERBS), tmp_path, Place())
    assert (report.done, report.failures) == (2, ())
    for table in ("matrices", "spectra", "layers", "fits", "curves"):
        assert (
            pl.scan_parquet(tmp_path / "tables" / table / "*.parquet").select(pl.len()).collect().item() > 0
        )
