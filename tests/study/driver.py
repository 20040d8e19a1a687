"""What tests do in processes of their own, to be killed: run a study, hold a cluster, be a worker of it.

Each has a session of its own; the first argument of two is a file for all that they say.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from types import ModuleType

from distributed.cli.dask_worker import main as dask_worker
from study.sample_verbs import PYTHONPATH, VERBS, find

from attnlaw.study import Backend, read_study, run, task
from attnlaw.study import run_split as spread
from attnlaw.study.engine import Stop
from attnlaw.verbs import find_verb

CPU_SECONDS = 120  # far more than any of these needs
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")


def drive(transcript: str, file: str, out: str, jobs: str | None = None) -> None:
    """Run a study, and say how it stands."""
    _alone(transcript)
    standing = run(read_study(file, find), out, Backend(jobs=int(jobs) if jobs else None))
    sys.stdout.write(json.dumps(standing.describe()))
    sys.stdout.flush()


def sum_up(transcript: str, store: str, terms: str, seconds: str, log: str, kill_at: str) -> None:
    """Spread a sum over two workers; killed when so many things are found."""
    _alone(transcript)
    case = VERBS["total"].settings(terms=int(terms), seconds=float(seconds), log=log)
    list(spread(VERBS["total"], [case], store, Backend(jobs=2), progress=_killing(int(kill_at))))


def audit(transcript: str, model: str, store: str, kill_at: str) -> None:
    """Audit a model on two workers; killed when so many matrices are measured."""
    _alone(transcript)
    case = find_verb("audit").settings(model=model)
    list(spread(find_verb("audit"), [case], store, Backend(jobs=2), progress=_killing(int(kill_at))))


def _killing(kill_at: int) -> Callable[[int, int, float | None], None]:
    def progress(done: int, total: int, left: float | None) -> None:
        if done >= kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return progress


def serve(transcript: str, out: str) -> None:
    """A cluster of one worker, and its address."""
    _alone(transcript)
    with Backend(jobs=1).open(out, Stop()) as engine:
        sys.stdout.write(engine.client.scheduler_info()["address"] + "\n")  # type: ignore[attr-defined]
        sys.stdout.flush()
        time.sleep(600)


def work(transcript: str, version: str, address: str) -> None:
    """A worker that says of itself that it is of another version."""
    _alone(transcript)
    task.__version__ = version  # of which keys are made
    dask_worker([address, "--name", version, "--nthreads", "1", "--no-nanny", "--no-dashboard"])


def _alone(transcript: str) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    for stream in (1, 2):
        os.dup2(os.open(transcript, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.environ["PYTHONPATH"] = PYTHONPATH
    sys.modules["__main__"] = ModuleType("__main__")  # or workers would import pytest
