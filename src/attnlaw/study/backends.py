"""Choose where tasks are computed: in this process, on a local Dask cluster, on a running one, or on Slurm,
where dask-jobqueue submits jobs with `cores` workers each, which connect to the scheduler in this process."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, ClassVar

from attnlaw import __version__
from attnlaw.core.errors import BadSetting, InputError, as_input_error, require_extra
from attnlaw.core.files import writable_directory
from attnlaw.core.settings import Settings, require_known, setting, setting_fields, settings_dataclass
from attnlaw.study.engine import Engine, Stop
from attnlaw.verbs.workers import Workers

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
DEATH_TIMEOUT = 60  # seconds
NO_DASHBOARD = "127.0.0.1:0"  # without an address, Dask opens port 8787 to everyone


@settings_dataclass
class SlurmOptions(Settings):
    """The options of one Slurm job, which users pass with `--slurm`."""

    partition: str | None = setting(None, "Slurm partition (queue) that the job runs in.")
    cores: int = setting(1, "Number of worker processes in each Slurm job.", minimum=1, maximum=999_999)
    memory: str | None = setting(
        None, "Memory of the Slurm job, such as 32GB (default: 4 GB for each worker)."
    )
    walltime: str | None = setting(None, "Time limit of the Slurm job, in a form that sbatch accepts.")
    account: str | None = setting(None, "Slurm account that the job is charged to.")
    interface: str | None = setting(
        None, "Network interface through which the Slurm nodes reach this machine."
    )

    def check(self) -> None:
        size = re.fullmatch(r"(?i)(\d{1,9}(\.\d{1,9})?) ?[MGT](i?B)?", self.memory or "4GB")
        if size is None or float(size[1]) < 1.0:
            raise BadSetting("memory", "expected a size from 1MB on, such as 32GB", self.memory)


def parse_options(text: str) -> SlurmOptions:
    """Parse `a=1,b=2` into the options of a Slurm job.

    >>> parse_options("partition=cpu,cores=8,memory=32GB").cores
    8
    """
    given: dict[str, Any] = {}
    known = setting_fields(SlurmOptions)
    try:
        for item in filter(None, text.split(",")):
            name, _, value = (part.strip() for part in item.partition("="))
            if name in given or not value:
                raise InputError(f"found {item!r}, expected NAME=VALUE, each name once")
            given[name] = known[require_known(name, known, "a job")].parse_word(value)
        return SlurmOptions.parse(given, "a job")
    except InputError as error:
        raise BadSetting("slurm", f"cannot be read: {error}") from error


def slurm_cluster(text: str, folder: Path) -> Any:
    """Return the Slurm cluster (dask-jobqueue) for options such as `partition=cpu,cores=8`."""
    with require_extra("--slurm", "cluster"):
        from dask_jobqueue import SLURMCluster
        from dask_jobqueue.slurm import SLURMJob

    class Submitted(SLURMJob):  # type: ignore[misc]
        refusals: ClassVar[list[str]] = []  # Dask only logs them, and tries again

        async def _submit_job(self, script: str) -> Any:
            try:
                return await super()._submit_job(script)
            except RuntimeError as error:
                self.refusals.append(str(error).strip().splitlines()[-1])
                raise

    job = parse_options(text)
    place = {"queue": job.partition, "account": job.account, "interface": job.interface}
    size = {"cores": job.cores, "processes": job.cores, "memory": job.memory or f"{4 * job.cores}GB"}
    try:
        return SLURMCluster(
            job_cls=Submitted,
            **place,
            **size,
            walltime=job.walltime,
            nanny=True,
            death_timeout=DEATH_TIMEOUT,
            job_name="attnlaw",
            job_script_prologue=[f"export {name}={value}" for name, value in THREADS.items()],
            log_directory=str(folder / "slurm"),
            scheduler_options={"dashboard_address": NO_DASHBOARD},
            silence_logs="critical",
        )
    except RuntimeError as error:  # for example an interface that does not exist
        raise InputError(f"--slurm {text}: {error}; correct the option") from error


@contextmanager
def slurm_jobs(text: str, jobs: int, folder: Path, stop: Stop) -> Iterator[Any]:
    """Yield a Dask client with `jobs` workers on Slurm. A Slurm job that runs out of time is replaced."""
    from distributed import Client

    if shutil.which("sbatch") is None:
        raise InputError(
            "--slurm: this machine has no sbatch; run the command on a machine that submits Slurm jobs"
        )
    cluster = slurm_cluster(text, folder)
    try:
        with Client(cluster, set_as_default=False) as client:
            cluster.scale(jobs)
            while not client.nthreads() and not stop.is_requested:  # as long as the queue takes
                if cluster.job_cls.refusals:
                    raise InputError(f"--slurm: sbatch rejected the job: {cluster.job_cls.refusals[0]}")
                time.sleep(0.2)
            yield client
    finally:
        with suppress(AssertionError):  # Dask asserts that every job has started
            cluster.close()


CONFIG = {
    # Dask reports a death at once, and a worker holds only the batch that it computes.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-saturation": 1.0,
    # Dask gives up a worker that is not back after this time. The engine asks for a new one.
    "distributed.deploy.lost-worker-timeout": "20s",
    # Nobody reads the statistics that workers would take every hundredth of a second.
    "distributed.worker.profile.enabled": False,
    # This leaves out Dask's MALLOC_TRIM_THRESHOLD_, which doubles the time to allocate arrays.
    "distributed.nanny.pre-spawn-environ": THREADS,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "logging": {"distributed": "critical"},
}
PATIENCE = 30.0  # seconds for a scheduler and its workers to answer


@settings_dataclass
class Backend(Workers):
    """The place where the tasks of a study are computed.

    Tasks run in this process unless `jobs`, `dask` or `slurm` choose workers.

    >>> with Backend().open("study-dir", Stop()) as engine:
    ...     engine.workers
    1
    """

    def check(self) -> None:
        if self.dask is not None and not re.fullmatch(r"(tcp://|tls://)?[^/\s]+:\d{1,5}", self.dask):
            raise BadSetting("dask", "expected tcp://HOST:PORT, or tls://HOST:PORT", self.dask)
        if self.dask is not None and (self.slurm is not None or self.jobs is not None):
            raise BadSetting(
                "dask", "this cluster already has workers; leave out the other options for workers", self.dask
            )
        if self.slurm is not None:
            parse_options(self.slurm)

    @contextmanager
    def open(
        self, out: str | os.PathLike[str], stop: Stop, time_limit: float | None = None, retries: int = 2
    ) -> Iterator[Engine]:
        """Yield the engine that computes tasks for a store in `out`. When the block ends, the workers stop.

        Other arguments are those of `Engine`. Raise an `InputError` if a cluster does not start, or if its
        workers have another version of attnlaw or cannot see `out`.
        """
        if (self.jobs, self.dask, self.slurm) == (None, None, None):
            yield Engine(Path(out).absolute(), stop, time_limit, retries)
            return
        with require_extra("a cluster", "cluster"):
            import dask

            from attnlaw.study.cluster import DaskEngine
        folder = writable_directory(out).absolute()
        if self.dask is not None:
            cluster = _connect(self.dask)
        elif self.slurm is not None:
            cluster = slurm_jobs(self.slurm, self.jobs or 1, folder, stop)
        else:
            cluster = _local_cluster(self.jobs or 1)
        with _silence_dask(), dask.config.set(CONFIG), cluster as client:
            if not stop.is_requested:
                _check_workers(client, folder)
            planned = None if self.dask else self.jobs or 1
            yield DaskEngine(folder, stop, time_limit, retries, client=client, planned=planned)


@contextmanager
def _local_cluster(jobs: int) -> Iterator[Any]:
    """Yield a Dask client of single-threaded worker processes. Other machines cannot connect to them."""
    from distributed import Client, LocalCluster

    options = {"n_workers": jobs, "threads_per_worker": 1, "env": THREADS, "memory_limit": 0}
    with ExitStack() as stack:
        remedy = "try again, or run without workers"
        with as_input_error("the local cluster did not start", remedy, RuntimeError), _block_interrupts():
            cluster = LocalCluster(
                host="127.0.0.1", dashboard_address=NO_DASHBOARD, silence_logs=logging.CRITICAL, **options
            )
            stack.enter_context(cluster)
            client = stack.enter_context(Client(cluster, set_as_default=False))
        yield client


@contextmanager
def _connect(address: str) -> Iterator[Any]:
    from distributed import Client

    missing = (OSError, TypeError)  # the latter for TLS without certificates
    with as_input_error(
        f"--dask {address}: no Dask scheduler answers at this address", "start one there", *missing
    ):
        client = Client(address, set_as_default=False, timeout=PATIENCE)
    with client:
        remedy = f"start a worker with: dask worker {address}"
        with as_input_error(f"--dask {address}: no workers", remedy, TimeoutError, with_reason=False):
            client.wait_for_workers(1, timeout=PATIENCE)
        yield client


@contextmanager
def _silence_dask() -> Iterator[None]:
    """Silence Dask's log messages about workers that died. The rows already report what failed."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Keep Ctrl-C away from threads and processes that start in the block. They inherit the mask."""
    resource_tracker.ensure_running()  # before the mask is set: starting it unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def probe_worker(token: str) -> tuple[str, bool]:
    """Called on a worker: return its version of attnlaw, and whether it sees a file of the main process."""
    return __version__, Path(token).exists()


def _check_workers(client: Any, folder: Path) -> None:
    """Raise an `InputError` if a worker has another version of attnlaw or cannot see the store."""
    token = folder / f".seen-{uuid.uuid4().hex}"
    token.touch()
    missing, what = (ModuleNotFoundError, AttributeError), "the Dask workers cannot import attnlaw"
    try:
        with as_input_error(f"{what} {__version__}", "install it there", *missing):
            answers: Mapping[str, tuple[str, bool]] = client.run(probe_worker, str(token))
    finally:
        token.unlink()
    for worker, (version, sees) in answers.items():
        problem = "" if sees else f"cannot see {folder}; choose --out on a file system shared with it"
        if version != __version__:
            problem = f"has attnlaw {version}, but this machine has {__version__}; install the same version"
        if problem:
            raise InputError(f"worker {worker} {problem}")
