"""Fuzz every reader: `python tools/fuzz/run.py [READER...] [--minutes 10] [--seed 0]`.

A case is a mutation of an earlier one; those that reach new pairs of lines in attnlaw join the pool (a
greybox fuzzer in the manner of AFL). Allowed: a model or a study, or an `InputError` of one printable line.
Findings (any other exception, more than five seconds of work, more than 4 GB, a crash) are written to
tests/trust/corpus/READER/, where the normal tests replay them. Each reader runs in a process of its own, so
that a crash is a finding too; as many at once as there are cores.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools" / "fuzz")]
CORPUS = ROOT / "tests" / "trust" / "corpus"
SECONDS, MEMORY = 5, 4 * 2**30
WATCHED = str(ROOT / "src" / "attnlaw")


class TooSlow(BaseException):
    """A case took longer than it may."""


class Coverage:
    """Pairs of consecutive lines in attnlaw, collected with a trace function."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int, int]] = set()
        self.new = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(WATCHED):
            return None
        last = frame.f_lineno

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal last
            pair = (name, last, frame.f_lineno)
            last = frame.f_lineno
            if pair not in self.seen:
                self.seen.add(pair)
                self.new = True
            return line

        return line


def fuzz(reader: str, seconds: float, seed: int, folder: Path) -> None:
    """Run one reader and print its numbers; ends when its time is over."""
    from mutate import mutate
    from trust.targets import TARGETS, attempt

    def slow(*_: Any) -> None:
        raise TooSlow

    def tried(trace: Coverage | None) -> str:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        sys.settrace(trace)
        try:
            return attempt(target, folder, data)
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)

    target, random, coverage = TARGETS[reader], Random(seed), Coverage()
    os.chdir(folder)
    target.prepare(folder)
    pool = target.seeds() + [file.read_bytes() for file in sorted((CORPUS / reader).glob("*"))]
    for data in target.seeds():  # also imports what is imported late, before anything is timed
        assert attempt(target, folder, data) == "read", "the examples must be good ones"
    most = MEMORY + _mapped()  # the engine that draws charts reserves more than it uses
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    # Work is counted, not waiting: beside other programs a case takes its time. What waits for ever is caught
    # by the watchdog below.
    signal.signal(signal.SIGPROF, slow)
    warnings.simplefilter("ignore")
    counts, findings = {"read": 0, "refused": 0}, {}
    end, cases = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = pool[cases] if cases < len(pool) and cases < 500 else mutate(random.choice(pool), pool, random)
        cases += 1
        coverage.new = False
        (folder / "case").write_bytes(data)
        faulthandler.dump_traceback_later(12 * SECONDS, exit=True)
        try:
            try:
                outcome = tried(coverage)
            except TooSlow:  # most of the time may be the tracer's
                outcome = tried(None)
            counts[outcome] += 1
        except (Exception, TooSlow) as error:
            place = _place(error)
            if place not in findings:
                findings[place] = keep(reader, data)
                print(f"{reader}: finding: {place} -> {findings[place].name}", flush=True)
        finally:
            faulthandler.cancel_dump_traceback_later()
        if coverage.new:
            pool.append(data)
    print(
        f"{reader}: {cases} cases, {counts['read']} read, {counts['refused']} refused, {len(pool)} in pool, "
        f"{len(coverage.seen)} pairs of lines, {len(findings)} findings",
        flush=True,
    )


def _mapped() -> int:
    """Bytes of the addresses that this process has taken."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _place(error: BaseException) -> str:
    """The kind of an error and the last line of attnlaw that it passed: one finding each."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(WATCHED)
    ]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside"
    return f"{type(error).__name__} at {where}"


def keep(reader: str, data: bytes) -> Path:
    folder = CORPUS / reader
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / hashlib.sha256(data).hexdigest()[:12]
    file.write_bytes(data)
    return file


def main() -> None:
    from trust.targets import TARGETS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "readers", nargs="*", metavar="READER", help=f"of {', '.join(TARGETS)}; all unless given"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = set(given.readers) - set(TARGETS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(TARGETS)}")
    if given.child:
        fuzz(given.readers[0], given.minutes * 60, given.seed, given.child)
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = pool.map(lambda name: supervise(name, given.minutes, given.seed), given.readers or TARGETS)
        sys.exit(any(list(failures)))


def supervise(reader: str, minutes: float, seed: int) -> bool:
    """Run a reader's process, again where it crashed; whether anything was found."""
    before = set((CORPUS / reader).glob("*"))
    end, attempts = time.monotonic() + minutes * 60, 0
    while (left := (end - time.monotonic()) / 60) > 0.01 or attempts == 0:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        command = [
            sys.executable,
            __file__,
            reader,
            f"--minutes={left}",
            f"--seed={seed + attempts}",
            f"--child={folder}",
        ]
        status = subprocess.run(command, check=False).returncode
        attempts += 1
        if status == 0:
            shutil.rmtree(folder)
            break
        case = folder / "case"
        kept = keep(reader, case.read_bytes()).name if case.exists() else "no case"
        print(f"{reader}: finding: the process ended with status {status} -> {kept}", flush=True)
        shutil.rmtree(folder)
        if kept == "no case" or attempts > 20:
            break
    return set((CORPUS / reader).glob("*")) != before


if __name__ == "__main__":
    main()
