"""What a study adds to its tasks, and how long it takes to find that nothing is left to do.

    python benchmarks/study.py [TASKS]          10,000 unless given

1. Tasks that do nothing, in process and on a local Dask cluster of two workers: time for each task, all that
   a study does included (markers, store, export), the start of the cluster apart.
2. The plain way on the same two workers: one Dask future for each task, results gathered, nothing kept.
3. A finished study resumed in a fresh process: reading, expanding, hashing, looking up, exporting.

Ends with status 1 when a goal is missed: 2 ms for a task in process and on Dask, two seconds to resume.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from claims import Claims
from nothing import VERB

from attnlaw.study import Place, Study, read_study, run
from attnlaw.study.engine import Stop
from attnlaw.study.run import Cost

GOAL_TASK, GOAL_RESUME = 2e-3, 2.0


def read(file: str | Path) -> Study:
    return read_study(file, find=lambda name: VERB)


def plain(x: float) -> dict[str, float]:
    """The same without a study."""
    return {"x": x, "square": x * x}


def timed_run(file: Path, out: Path, place: Place | None) -> float:
    """Seconds from the first task's end to that of the run: workers have started and imported by then."""
    began: list[float] = []

    def announce(cost: Cost) -> None:
        began.append(time.perf_counter())

    report = run(read(file), out, place, announce=announce)
    assert report.missing == 0
    assert not report.failures
    return time.perf_counter() - began[0]


def main(tasks: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "study.toml"
        file.write_text(f'verb = "nothing"\n[grid]\nx = "1:{tasks}:{tasks}"\n')
        here = timed_run(file, Path(folder) / "here", None)
        print(f"{tasks} tasks that do nothing")
        print(f"  in process                {1e3 * here / tasks:8.3f} ms per task   ({here:.1f} s)")
        with Place(jobs=2).open(folder, Stop()) as engine:
            client = engine.client  # type: ignore[attr-defined]
            there = timed_run(file, Path(folder) / "there", Place(dask=client.scheduler_info()["address"]))
            print(f"  Dask, 2 workers           {1e3 * there / tasks:8.3f} ms per task   ({there:.1f} s)")
            start = time.perf_counter()
            client.gather(client.map(plain, range(tasks), pure=False))
            single = time.perf_counter() - start
        print(f"  one future for each task  {1e3 * single / tasks:8.3f} ms per task   ({single:.1f} s)")
        start = time.perf_counter()
        subprocess.run([sys.executable, __file__, "resume", file, Path(folder) / "there"], check=True)
        again = time.perf_counter() - start
    claims = Claims()
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
