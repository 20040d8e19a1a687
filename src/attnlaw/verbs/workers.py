"""Options that choose the workers for the tasks of a study, or for the parts of one large case."""

from __future__ import annotations

from functools import partial

from attnlaw.core.settings import OptionPanel, Settings, setting, settings_dataclass

_worker_setting = partial(setting, None, panel=OptionPanel.WORKERS)


@settings_dataclass
class Workers(Settings):
    """The choice of workers: `jobs` local ones, a running cluster at `dask`, or `jobs` on Slurm."""

    jobs: int | None = _worker_setting(
        help="Number of worker processes, on this machine or in Slurm jobs.", minimum=1, metavar="N"
    )
    dask: str | None = _worker_setting(
        help="Address of a running Dask cluster whose workers compute: tcp://HOST:PORT.", metavar="ADDRESS"
    )
    slurm: str | None = _worker_setting(
        help="Run the workers as Slurm jobs with these options, such as partition=cpu,cores=16 (also: "
        "memory, walltime, account, interface).",
        metavar="OPTIONS",
    )
