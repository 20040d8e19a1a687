"""An audit on real worker processes: to the bit that of threads, whoever is killed on the way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from distributed import Client
from study import driver
from study.processes import forked

import attnlaw
from attnlaw.core.result import Result
from attnlaw.study import Backend
from attnlaw.study import run_split as spread
from attnlaw.study.store import open_store
from attnlaw.verbs.audit import VERB, AuditSettings

pytestmark = pytest.mark.slow

UNITS = 16


@pytest.fixture(scope="module", name="model")
def _model(request: pytest.FixtureRequest) -> str:
    return str(request.config.rootpath / "examples" / "tiny-decoder")


@pytest.fixture(scope="module", name="threaded")
def _threaded(model: str) -> dict[str, bytes]:
    return in_bytes(attnlaw.audit(model, jobs=2))


def in_bytes(result: Result) -> dict[str, bytes]:
    return {name: data for name, data in result.files().items() if name != "rows.parquet"} | {
        "values": str(result.values()).encode()
    }


def finished(store: Path) -> dict[str, int]:
    """The tables of finished units by key, each told by the file that holds it: a new one is another."""
    with open_store(store) as opened:
        return {
            key: (opened.folder / path).stat().st_ino
            for key, ending in opened.endings().items()
            for _, path in ending.parts
        }


def once(store: Path) -> None:
    """Every unit is there once, and nothing beside them."""
    kept = finished(store)
    assert len(kept) == len(list(store.glob("parts/*/*"))) == UNITS
    assert not [*(store / "drafts").glob("*"), *(store / "running").glob("*")]


def on_workers(model: str, store: Path, place: Backend, **options: object) -> Result:
    cases = [AuditSettings(model=model)]
    return Result.collect(VERB, zip(cases, spread(VERB, cases, store, place, **options), strict=True))  # type: ignore[arg-type]


def test_two_workers_give_what_threads_give(
    model: str, threaded: dict[str, bytes], tmp_path: Path, two_workers: Backend
) -> None:
    audit = on_workers(model, tmp_path, two_workers)
    assert in_bytes(audit) == threaded
    once(tmp_path)


@pytest.mark.usefixtures("forks")
def test_a_killed_driver(
    model: str, threaded: dict[str, bytes], tmp_path: Path, two_workers: Backend
) -> None:
    """What was finished is not measured again: its files are the same ones."""
    with forked(driver.audit, tmp_path / "told", model, tmp_path / "s", 8) as process:
        process.join(300)
    assert process.exitcode == -signal.SIGKILL, (tmp_path / "told").read_text()
    kept = finished(tmp_path / "s")
    assert 1 <= len(kept) < UNITS
    audit = on_workers(model, tmp_path / "s", two_workers)
    assert in_bytes(audit) == threaded
    assert kept.items() <= finished(tmp_path / "s").items()
    once(tmp_path / "s")


def test_a_killed_worker(
    model: str, threaded: dict[str, bytes], tmp_path: Path, two_workers: Backend
) -> None:
    kept: dict[str, int] = {}
    with Client(two_workers.dask, set_as_default=False) as client:
        victim = next(iter(client.run(os.getpid).values()))

        def progress(done: int, total: int, left: float | None) -> None:
            if not kept:
                kept.update(finished(tmp_path))
                os.kill(victim, signal.SIGKILL)

        audit = on_workers(model, tmp_path, two_workers, progress=progress)
    assert in_bytes(audit) == threaded
    assert 1 <= len(kept) < UNITS
    assert kept.items() <= finished(tmp_path).items()
    once(tmp_path)
