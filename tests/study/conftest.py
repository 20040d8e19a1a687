"""Clusters whose workers start quickly: forks of a server that has imported all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing import forkserver
from unittest import mock

import dask
import pytest
from distributed.utils import get_mp_context
from study import driver
from study.sample_verbs import PYTHONPATH

from attnlaw.study import Backend
from attnlaw.study.engine import Stop

PRELOADED = ["study.driver", "attnlaw.study.cluster", "distributed.cli.dask_worker"]


@pytest.fixture(scope="module")
def forks() -> Iterator[None]:
    """The server is started, and Dask told to use it."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(PRELOADED)  # in place of Dask's own choice
        with mock.patch.dict(os.environ, driver.ONE_THREAD | {"PYTHONPATH": PYTHONPATH}):
            forkserver.ensure_running()
        yield


@pytest.fixture(scope="module")
def two_workers(forks: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A scheduler with two worker processes, which studies use by its address."""
    with Backend(jobs=2).open(tmp_path_factory.mktemp("cluster"), Stop()) as engine:
        yield Backend(dask=engine.client.scheduler_info()["address"])  # type: ignore[attr-defined]
