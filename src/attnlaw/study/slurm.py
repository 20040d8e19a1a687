"""Slurm jobs of single-threaded Dask workers, through dask-jobqueue.

The scheduler lives in the driver; sbatch gets a script that starts `cores` workers. They find the scheduler
by its address, and end when it has gone.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from attnlaw.core.errors import BadSetting, InputError, require_extra
from attnlaw.core.settings import Settings, require_known, setting, setting_fields, settings_dataclass
from attnlaw.study.engine import Stop

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
DEATH_TIMEOUT = 60  # seconds
NO_DASHBOARD = "127.0.0.1:0"  # without an address Dask opens port 8787 to everyone


@settings_dataclass
class SlurmOptions(Settings):
    """What `--slurm` may say of one job."""

    partition: str | None = setting(None, "Queue of the job.")
    cores: int = setting(1, "Workers of the job.", minimum=1, maximum=999_999)
    memory: str | None = setting(None, "Of the job; 4 GB a worker unless given.")
    walltime: str | None = setting(None, "As sbatch takes it.")
    account: str | None = setting(None, "Who pays.")
    interface: str | None = setting(None, "Network that nodes and driver share.")

    def check(self) -> None:
        size = re.fullmatch(r"(?i)(\d{1,9}(\.\d{1,9})?) ?[MGT](i?B)?", self.memory or "4GB")
        if size is None or float(size[1]) < 1.0:
            raise BadSetting("memory", "expected a size from 1MB on, such as 32GB", self.memory)


def parse_options(text: str) -> SlurmOptions:
    """`a=1,b=2` as the options of a job.

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
    """The cluster of `partition=...,cores=...,memory=...,walltime=...`; sbatch gets its `job_script()`."""
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
    try:
        return SLURMCluster(
            job_cls=Submitted,
            queue=job.partition,
            account=job.account,
            walltime=job.walltime,
            interface=job.interface,
            cores=job.cores,
            processes=job.cores,
            memory=job.memory or f"{4 * job.cores}GB",
            nanny=True,
            death_timeout=DEATH_TIMEOUT,
            job_name="attnlaw",
            job_script_prologue=[f"export {name}={value}" for name, value in THREADS.items()],
            log_directory=str(folder / "slurm"),
            scheduler_options={"dashboard_address": NO_DASHBOARD},
            silence_logs="critical",
        )
    except RuntimeError as error:  # for example an interface that is not there
        raise InputError(f"--slurm {text}: {error}; correct the option") from error


@contextmanager
def slurm_jobs(text: str, jobs: int, folder: Path, stop: Stop) -> Iterator[Any]:
    """A client of Slurm jobs with `jobs` workers in all; new jobs replace those whose time is over."""
    from distributed import Client

    if shutil.which("sbatch") is None:
        raise InputError("--slurm: there is no sbatch here; run this where jobs are submitted")
    cluster = slurm_cluster(text, folder)
    try:
        with Client(cluster, set_as_default=False) as client:
            cluster.scale(jobs)
            while not client.nthreads() and not stop.is_requested:  # as long as the queue takes
                if cluster.job_cls.refusals:
                    raise InputError(f"--slurm: sbatch took no job: {cluster.job_cls.refusals[0]}")
                time.sleep(0.2)
            yield client
    finally:
        with suppress(AssertionError):  # Dask holds that every job has started once
            cluster.close()
