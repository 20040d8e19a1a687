"""Slurm through dask-jobqueue: the job script, a stand-in sbatch that really starts workers, and refusals."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from dask.utils import parse_bytes
from study.sample_verbs import PYTHONPATH, exported, find

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.study import Backend, read_study, run
from attnlaw.study.backends import slurm_cluster

STANDIN = Path(__file__).parent / "standin"
OPTIONS = "partition=cpu,cores=2,memory=8GB,walltime=02:30:00,account=theory"


def test_the_job_script(tmp_path: Path) -> None:
    with slurm_cluster(OPTIONS, tmp_path) as cluster:
        script = cluster.job_script()
        address = cluster.scheduler_address
    lines = script.splitlines()
    for directive in ("-p cpu", "-A theory", "-t 02:30:00", "--cpus-per-task=2", "--mem=8G", "-n 1"):
        assert f"#SBATCH {directive}" in lines
    assert f"#SBATCH -o {tmp_path}/slurm/attnlaw-%J.out" in lines
    assert "export OMP_NUM_THREADS=1" in lines
    assert lines.index("export OPENBLAS_NUM_THREADS=1") < len(lines) - 1
    command = lines[-1]
    assert command.startswith(f"{sys.executable} -m distributed.cli.dask_worker {address}")
    for option in (
        "--nthreads 1 ",
        "--nworkers 2 ",
        "--nanny ",
        "--death-timeout 60",
    ):  # processes, not threads
        assert option in command


@pytest.mark.slow
def test_a_study_on_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{STANDIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN", str(tmp_path / "jobs"))
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    file = tmp_path / "study.toml"
    file.write_text('verb = "draw"\n[grid]\nx = "1:8:8"\n[run]\nseeds = 2\n')
    study = read_study(file, find)
    workers = []
    report = run(
        study,
        tmp_path / "slurm",
        Backend(jobs=2, slurm="partition=cpu,cores=1,memory=1GB"),
        announce=lambda cost: workers.append(cost.workers),
    )
    assert (report.done, workers) == (16, [2])
    run(study, tmp_path / "here")
    assert exported(tmp_path / "here") == exported(tmp_path / "slurm")
    started = (tmp_path / "jobs" / "started").read_text().split()
    assert set((tmp_path / "jobs" / "cancelled").read_text().split()) == set(started)
    assert "#SBATCH -p cpu" in (tmp_path / "jobs" / "job.sh").read_text()


def test_refusals_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "study.toml"
    file.write_text('verb = "draw"\n[fixed]\nx = 1\n')
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="this machine has no sbatch"):
        run(read_study(file, find), tmp_path / "out", Backend(slurm="cores=1"))
    refusing = tmp_path / "sbatch"
    refusing.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: gpu' >&2\nexit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(
        InputError, match="sbatch rejected the job: sbatch: error: invalid partition specified: gpu"
    ):
        run(read_study(file, find), tmp_path / "out", Backend(slurm="partition=gpu"))


LONG = f"cores={'9' * 5000}"


@pytest.mark.parametrize(
    "text",
    [
        "partition",
        "queue=cpu",
        "cores=0",
        "cores=many",
        LONG,
        "memory=",
        "memory=lots",
        "memory=-1GB",
        "memory=8",
        "memory=0GB",
        "memory=0.0001MB",
        f"memory={'9' * 400}GB",
        "cores=2,cores=1",
    ],
)
def test_bad_options_are_told(text: str) -> None:
    with pytest.raises(BadSetting, match="slurm cannot be read: ") as caught:
        Backend(slurm=text)
    assert caught.value.name == "slurm"


@pytest.mark.parametrize("memory", ["1.5GB", "64gb"])
def test_sizes_that_sbatch_gets(memory: str, tmp_path: Path) -> None:
    with slurm_cluster(f"memory={memory}", tmp_path) as cluster:
        (given,) = (line for line in cluster.job_script().splitlines() if "--mem=" in line)
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}[given[-1]]
    size = int(given.removeprefix("#SBATCH --mem=")[:-1]) * unit
    assert parse_bytes(memory) <= size < parse_bytes(memory) + unit  # rounded up


def test_an_interface_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'nosuch' is not a valid network interface") as caught:
        slurm_cluster("interface=nosuch", tmp_path)
    assert "\n" not in str(caught.value)
