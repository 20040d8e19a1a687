"""Where a study runs: in this process, on a local Dask cluster, on one that is already there, or on Slurm."""

from __future__ import annotations

import logging
import os
import signal
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlaw import __version__
from attnlaw.errors import InputError
from attnlaw.records.files import usable_directory
from attnlaw.study.engine import Engine, InProcess

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
CONFIG = {
    # A death is told at once, and a worker holds what it computes and nothing else.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-saturation": 1.0,
    "logging": {"distributed": "critical"},
}
SLURM = ("partition", "cores", "memory", "walltime", "account", "interface")
PATIENCE = 30.0  # seconds for a scheduler to answer


@dataclass(frozen=True)
class Place:
    """In this process, or: `jobs` local workers, a running cluster at `dask`, or `slurm` options with `jobs`.

    >>> with Place().open("study-dir") as engine:
    ...     engine.workers
    1
    """

    jobs: int | None = None
    dask: str | None = None
    slurm: str | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise InputError(f"--jobs {self.jobs}: expected a number of workers of at least 1")
        if self.dask is not None and (self.slurm is not None or self.jobs is not None):
            raise InputError("--dask: a running cluster has its own workers; drop --jobs and --slurm")
        if self.slurm is not None:
            slurm_options(self.slurm)

    def open(self, out: str | os.PathLike[str]) -> AbstractContextManager[Engine]:
        """The engine for a study in `out`; its workers end with the context."""
        if self.dask is not None:
            return _on(_running, out, self.dask)
        if self.slurm is not None:
            return _on(_slurm, out, self.slurm, self.jobs or 1)
        return nullcontext(InProcess()) if self.jobs is None else _on(_local, out, self.jobs)


@contextmanager
def _on(place: Any, out: str | os.PathLike[str], *arguments: Any) -> Iterator[Engine]:
    """A Dask engine at a place, once its workers are seen to fit."""
    try:
        from attnlaw.study.cluster import Dask
    except ModuleNotFoundError as error:
        raise InputError(
            f"a cluster needs {error.name}; install it: pip install 'attnlaw[cluster]'"
        ) from error
    folder = usable_directory(out).absolute()
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with place(*arguments, folder) as client:
        client.register_plugin(_deaf(), name="attnlaw-deaf")
        client.wait_for_workers(1)
        _check_workers(client, folder)
        yield Dask(client)


@contextmanager
def _local(jobs: int, folder: Path) -> Iterator[Any]:
    """Single-threaded worker processes, reachable from this machine alone; Dask restarts those that die."""
    import dask
    from distributed import Client, LocalCluster

    with (
        dask.config.set(CONFIG),
        LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
            env=THREADS,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(jobs)
        yield client


@contextmanager
def _running(address: str, folder: Path) -> Iterator[Any]:
    """A cluster that is already there."""
    from distributed import Client

    try:
        client = Client(address, set_as_default=False, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--dask {address}: no Dask scheduler answers there; expected tcp://HOST:PORT"
        ) from error
    with client:
        if not client.nthreads():
            raise InputError(
                f"--dask {address}: the scheduler has no workers; start some: dask worker {address}"
            )
        yield client


@contextmanager
def _slurm(text: str, jobs: int, folder: Path) -> Iterator[Any]:
    """Slurm jobs, as the queue lets them start, until `jobs` workers run; new ones replace those that end."""
    import dask
    from distributed import Client

    with (
        dask.config.set(CONFIG),
        slurm_cluster(text, folder) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        cluster.adapt(minimum=jobs, maximum=jobs)
        yield client


def slurm_cluster(text: str, folder: Path) -> Any:
    """The cluster of `partition=...,cores=...,memory=...,walltime=...`; sbatch gets its `job_script()`.

    Every job runs `cores` single-threaded workers.
    """
    try:
        from dask_jobqueue import SLURMCluster
    except ModuleNotFoundError as error:
        raise InputError(f"--slurm needs {error.name}; install it: pip install 'attnlaw[cluster]'") from error
    options = slurm_options(text)
    cores = int(options.pop("cores", "1"))
    return SLURMCluster(
        queue=options.pop("partition", None),
        cores=cores,
        processes=cores,
        memory=options.pop("memory", f"{4 * cores}GB"),
        nanny=True,
        death_timeout=60,
        job_script_prologue=[f"export {name}={value}" for name, value in THREADS.items()],
        log_directory=str(folder / "slurm"),
        scheduler_options={"dashboard_address": None},
        silence_logs="critical",
        **options,
    )


def slurm_options(text: str) -> dict[str, str]:
    """`a=1,b=2` as a dictionary of known options.

    >>> slurm_options("partition=cpu,cores=8,memory=32GB,walltime=02:00:00")
    {'partition': 'cpu', 'cores': '8', 'memory': '32GB', 'walltime': '02:00:00'}
    """
    options = {}
    for item in filter(None, text.split(",")):
        name, _, value = (part.strip() for part in item.partition("="))
        if name not in SLURM or not value:
            raise InputError(
                f"--slurm: found {item!r}, expected NAME=VALUE with a name of {', '.join(SLURM)}"
            )
        options[name] = value
    if not options.get("cores", "1").isdigit() or options.get("cores") == "0":
        raise InputError(f"--slurm: cores={options['cores']}, expected a whole number of at least 1")
    return options


def _deaf() -> Any:
    """A plugin that lets workers ignore Ctrl-C: a terminal sends it to them too, but the driver decides."""
    from distributed import WorkerPlugin

    class Deaf(WorkerPlugin):  # type: ignore[misc]
        def setup(self, worker: Any) -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    return Deaf()


def look_around(token: str) -> tuple[str, bool]:
    """On a worker: its version of attnlaw, and whether it sees a file of the driver's."""
    return __version__, Path(token).exists()


def _check_workers(client: Any, folder: Path) -> None:
    """An `InputError` where workers have another version or do not see the study's directory."""
    token = folder / f".seen-{uuid.uuid4().hex}"
    token.touch()
    try:
        found: Mapping[str, tuple[str, bool]] = client.run(look_around, str(token))
    except (ModuleNotFoundError, AttributeError) as error:
        raise InputError(
            f"the Dask workers cannot import attnlaw {__version__} ({error}); install it there"
        ) from error
    finally:
        token.unlink()
    for worker, (version, sees) in found.items():
        if version != __version__:
            raise InputError(
                f"worker {worker} has attnlaw {version}, this is {__version__}; install the same version"
            )
        if not sees:
            raise InputError(
                f"worker {worker} does not see {folder}; choose --out on a file system shared with it"
            )
