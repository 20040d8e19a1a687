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

from attnlaw.base.errors import InputError
from attnlaw.study.engine import Stop

OPTIONS = ("partition", "cores", "memory", "walltime", "account", "interface")
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
DEATH_TIMEOUT = 60  # seconds
NO_DASHBOARD = "127.0.0.1:0"  # without an address Dask opens port 8787 to everyone


def parse_options(text: str) -> dict[str, str]:
    """`a=1,b=2` as a dictionary of known options.

    >>> parse_options("partition=cpu,cores=8,memory=32GB,walltime=02:00:00")
    {'partition': 'cpu', 'cores': '8', 'memory': '32GB', 'walltime': '02:00:00'}
    """
    options = {}
    for item in filter(None, text.split(",")):
        name, _, value = (part.strip() for part in item.partition("="))
        if name not in OPTIONS or not value:
            raise InputError(f"--slurm: found {item!r}, expected NAME=VALUE, a name of {', '.join(OPTIONS)}")
        if name in options:
            raise InputError(f"--slurm: {name} is given twice; keep one of them")
        options[name] = value
    cores = options.setdefault("cores", "1")
    if not re.fullmatch(r"\d{1,6}", cores) or int(cores) < 1:
        raise InputError(f"--slurm: cores={cores}, expected a whole number from 1 to 999999")
    memory = re.fullmatch(r"(?i)(\d{1,9}(\.\d{1,9})?) ?[MGT](i?B)?", options.get("memory", "4GB"))
    if memory is None or float(memory[1]) < 1.0:
        raise InputError(f"--slurm: memory={options['memory']}, expected a size from 1MB on, such as 32GB")
    return options


def slurm_cluster(text: str, folder: Path) -> Any:
    """The cluster of `partition=...,cores=...,memory=...,walltime=...`; sbatch gets its `job_script()`."""
    try:
        from dask_jobqueue import SLURMCluster
        from dask_jobqueue.slurm import SLURMJob
    except ModuleNotFoundError as error:
        raise InputError(f"--slurm needs {error.name}; install it: pip install 'attnlaw[cluster]'") from error

    class Job(SLURMJob):  # type: ignore[misc]
        refusals: ClassVar[list[str]] = []  # Dask only logs them, and tries again

        async def _submit_job(self, script: str) -> Any:
            try:
                return await super()._submit_job(script)
            except RuntimeError as error:
                self.refusals.append(str(error).strip().splitlines()[-1])
                raise

    options = parse_options(text)
    cores = int(options.pop("cores"))
    settings = dict(
        job_cls=Job,
        queue=options.pop("partition", None),
        cores=cores,
        processes=cores,
        memory=options.pop("memory", f"{4 * cores}GB"),
        nanny=True,
        death_timeout=DEATH_TIMEOUT,
        job_name="attnlaw-study",
        job_script_prologue=[f"export {name}={value}" for name, value in THREADS.items()],
        log_directory=str(folder / "slurm"),
        scheduler_options={"dashboard_address": NO_DASHBOARD},
        silence_logs="critical",
        **options,
    )
    try:
        return SLURMCluster(**settings)
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
            while not client.nthreads() and not stop.asked:  # as long as the queue takes
                if cluster.job_cls.refusals:
                    raise InputError(f"--slurm: sbatch took no job: {cluster.job_cls.refusals[0]}")
                time.sleep(0.2)
            yield client
    finally:
        with suppress(AssertionError):  # Dask holds that every job has started once
            cluster.close()
