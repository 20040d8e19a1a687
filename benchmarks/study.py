"""What a study adds to its tasks, and how long it takes to find that nothing is left to do.

    python benchmarks/study.py [TASKS]          10,000 unless given

1. Tasks that do nothing, in process and on a local Dask cluster of two workers: time for each task, all that
   a study does included (markers, store, export), the start of the cluster apart.
2. The plain way on the same two workers: one Dask future for each task, results gathered, nothing kept.
3. A finished study resumed in a fresh process: reading, expanding, hashing, looking up, exporting.
4. Cases solved together: a linear learning curve of 1,500 points, in process and on the two workers, against
   the same study that hands one case at a time to the verb (every 30th point of it), in CPU time. And the
   shipped phase diagram, 1,600 points with their thresholds.

Ends with status 1 when a goal is missed: 2 ms for a task in process and on Dask, two seconds to resume,
8 times less for a point of a curve (7 on Dask), and 40 CPU seconds for the phase diagram.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from claims import Claims
from nothing import VERB

from attnlaw.study import Backend, Study, read_study, run
from attnlaw.study.engine import Stop
from attnlaw.study.run import Cost
from attnlaw.study.task import run_batch

GOAL_TASK, GOAL_RESUME, GOAL_DIAGRAM = 2e-3, 2.0, 40.0
# On workers the CPU time of the driver and of Dask itself counts too: .4 ms of the 2.9 that a point takes.
GOAL_TOGETHER, GOAL_WORKERS = 8.0, 7.0
CURVE = 'verb = "learn"\n[fixed]\nnoise = 0.5\ntokens = 2\n[grid]\nalpha = "0.02:1:1500"\n'
DIAGRAM = "learn-phase-diagram"
EVERY = 30


def read(file: str | Path) -> Study:
    return read_study(file, find=lambda name: VERB)


def plain(x: float) -> dict[str, float]:
    """The same without a study."""
    return {"x": x, "square": x * x}


def timed_run(file: str | Path, out: Path, place: Backend | None) -> float:
    """Seconds from the first task's end to that of the run: workers have started and imported by then."""
    began: list[float] = []

    def announce(cost: Cost) -> None:
        began.append(time.perf_counter())

    report = run(read(file), out, place, announce=announce)
    assert report.missing == 0
    assert not report.failures
    return time.perf_counter() - began[0]


def alone(study: Study) -> Study:
    """Every 30th task of a study, one case at a time."""
    chosen = study.tasks[::EVERY]
    return replace(
        study, tasks=tuple(replace(task, verb=replace(task.verb, batch_key=None)) for task in chosen)
    )


def cpu_here(study: Study, out: Path) -> float:
    """CPU seconds of a run in this process, the first task apart: modules are loaded by then."""
    began: list[float] = []

    def progress(done: int, total: int) -> None:
        if not began:
            began.append(time.process_time())

    assert run(study, out, progress=progress).missing == 0
    return time.process_time() - began[0]


def cpu_there(study: Study, out: Path, client: Any) -> float:
    """CPU seconds of a run on workers: theirs and the driver's; their modules are loaded before."""
    client.run(run_batch, study.tasks[:1], out.parent, None)

    def spent() -> float:
        return time.process_time() + sum(client.run(time.process_time).values())

    before = spent()
    assert run(study, out, Backend(dask=client.scheduler_info()["address"])).missing == 0
    return spent() - before


def together(folder: Path) -> Claims:
    """A learning curve whose points are solved together, and the phase diagram."""
    file = folder / "curve.toml"
    file.write_text(CURVE)
    study = read_study(file)
    reference = alone(study)
    slow = cpu_here(reference, folder / "alone") / (len(reference.tasks) - 1)
    here = cpu_here(study, folder / "together") / len(study.tasks)
    with Backend(jobs=2).open(folder, Stop()) as engine:
        there = cpu_there(study, folder / "workers", engine.client) / len(study.tasks)  # type: ignore[attr-defined]
    diagram = cpu_here(read_study(DIAGRAM), folder / "diagram")
    claims = Claims()
    ways = (("in process", here, GOAL_TOGETHER), ("on Dask, two workers", there, GOAL_WORKERS))
    for where, seconds, goal in ways:
        claims.add(
            f"a point of a linear learning curve of {len(study.tasks):,}, as a study {where}",
            f"{1e3 * seconds:.1f} ms",
            f"one case at a time: {1e3 * slow:.1f} ms",
            slow / seconds,
            goal,
        )
    claims.add(
        "the phase diagram of 1,600 points, CPU seconds",
        f"{diagram:.1f} s",
        "no peer",
        diagram,
        GOAL_DIAGRAM,
        least=False,
    )
    return claims


def main(tasks: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "study.toml"
        file.write_text(f'verb = "nothing"\n[grid]\nx = "1:{tasks}:{tasks}"\n')
        here = timed_run(file, Path(folder) / "here", None)
        print(f"{tasks} tasks that do nothing")
        print(f"  in process                {1e3 * here / tasks:8.3f} ms per task   ({here:.1f} s)")
        with Backend(jobs=2).open(folder, Stop()) as engine:
            client = engine.client  # type: ignore[attr-defined]
            there = timed_run(file, Path(folder) / "there", Backend(dask=client.scheduler_info()["address"]))
            print(f"  Dask, 2 workers           {1e3 * there / tasks:8.3f} ms per task   ({there:.1f} s)")
            start = time.perf_counter()
            client.gather(client.map(plain, range(tasks), pure=False))
            single = time.perf_counter() - start
        print(f"  one future for each task  {1e3 * single / tasks:8.3f} ms per task   ({single:.1f} s)")
        start = time.perf_counter()
        subprocess.run([sys.executable, __file__, "resume", file, Path(folder) / "there"], check=True)
        again = time.perf_counter() - start
        claims = together(Path(folder))
    task = f"overhead of one of {tasks:,} tasks"
    for where, seconds in (("in process", here), ("on Dask, two workers", there)):
        claims.add(
            f"{task} {where}, ms",
            f"{1e3 * seconds / tasks:.2f} ms",
            "no peer",
            1e3 * seconds / tasks,
            1e3 * GOAL_TASK,
            least=False,
        )
    claims.add(
        f"{task} on Dask",
        f"{1e3 * there / tasks:.2f} ms",
        f"one future for each task: {1e3 * single / tasks:.2f} ms",
        single / there,
        1.0,
    )
    claims.add(
        f"resuming a finished study of {tasks:,} tasks, seconds",
        f"{again:.2f} s",
        "no peer",
        again,
        GOAL_RESUME,
        least=False,
    )
    return claims.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["resume"]:
        assert run(read(sys.argv[2]), sys.argv[3]).computed == 0
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
