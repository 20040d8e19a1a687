"""Options that choose the workers for the tasks of a study, or for the parts of one large case."""

from __future__ import annotations

from attnlaw.core.settings import Settings, setting, settings_dataclass


@settings_dataclass
class Workers(Settings):
    """The choice of workers: `jobs` local ones, a running cluster at `dask`, or `jobs` on Slurm."""

    jobs: int | None = setting(
        default=None, help="Workers of a local Dask cluster, or on Slurm.", minimum=1, metavar="N"
    )
    dask: str | None = setting(
        default=None, help="A running Dask cluster: tcp://HOST:PORT.", metavar="ADDRESS"
    )
    slurm: str | None = setting(
        default=None,
        help="Slurm jobs: also memory, walltime, account, interface; as many as make N workers.",
        metavar="partition=...,cores=...",
    )
