"""`attnlaw audit --workers` as a user types it; the workers are this process (real ones: tests/study)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command.in_process import invoke

from attnlaw.study.backends import Backend
from attnlaw.study.engine import Engine, Stop
from attnlaw.study.task import Ending

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"
TABLES = ("matrices", "spectra", "layers", "findings")


class Interrupted(Engine):
    """Somebody presses Ctrl-C when three tasks are done."""

    def run(self, *given: Any, **more: Any) -> Iterator[list[Ending]]:
        for number, endings in enumerate(super().run(*given, **more), start=1):
            yield endings
            if number == 3:
                os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> list[Backend]:
    """The places that were asked for; the first of them is interrupted."""
    asked: list[Backend] = []

    @contextmanager
    def here(self: Backend, out: Path, stop: Stop) -> Iterator[Engine]:
        asked.append(self)
        yield (Interrupted if len(asked) == 1 else Engine)(out.absolute(), stop)

    monkeypatch.setattr(Backend, "open", here)
    return asked


def audit(*words: object, status: int = 0) -> Any:
    return invoke("audit", *words, status=status)


@pytest.mark.slow
def test_the_same_command_goes_on_and_ends_as_in_one_process(tmp_path: Path, asked: list[Backend]) -> None:
    plain, out = tmp_path / "plain", tmp_path / "out"
    shown = audit(TINY, "--out", plain, "--no-laws").stdout
    words = (TINY, "--out", out, "--no-laws", "--workers", 2)
    stopped = audit(*words, status=130)
    assert stopped.stdout == ""
    assert stopped.stderr.splitlines() == [
        "40 of 40 matrices to compute, in 16 tasks",
        "all finished matrices are kept; run the same command to continue",
        "attnlaw: stopped",
    ]
    assert not (out / "summary.json").exists()
    done = audit(*words)
    assert done.stdout == shown
    assert done.stderr.startswith("31 of 40 matrices to compute, in 13 tasks\n")  # of layer 0: QK, VO, FFN in
    for name in (*(f"{table}.parquet" for table in TABLES), "summary.json"):
        assert (out / name).read_bytes() == (plain / name).read_bytes()
    assert asked == [Backend(jobs=2)] * 2
    slurm = ("--slurm", "partition=cpu,cores=2", "--workers", 4)
    assert "40 of 40 matrices to compute" in audit(*words[:4], *slurm, "--force").stderr
    assert asked[2:] == [Backend(jobs=4, slurm="partition=cpu,cores=2")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", 2), "--workers needs --out"),
        (("--force", "--out", "OUT"), "--force needs --workers, --dask or --slurm"),
        (("--workers", 0, "--out", "OUT"), "--workers 0: expected a whole number of at least 1"),
        (("--dask", "host", "--out", "OUT"), "--dask host: expected tcp://HOST:PORT"),
        (
            ("--dask", "tcp://h:1", "--workers", 2, "--out", "OUT"),
            "already has workers; leave out the other options",
        ),
        (("--slurm", "cpus=3", "--out", "OUT"), "--slurm cannot be read: cpus is not a setting of a job"),
    ],
)
def test_options_that_cannot_be(words: tuple[object, ...], message: str, tmp_path: Path) -> None:
    given = [tmp_path / "out" if word == "OUT" else word for word in words]
    done = audit(TINY, *given, status=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
