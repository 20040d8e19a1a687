"""The real command line in a process of its own: bounded in memory and time, and watched while it runs.

The child imports a `sitecustomize` that adds an audit hook (PEP 578) before anything else. The hook logs
every attempt to start a program, to open a connection, or to import a canary: `Outcome.deeds`.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

ATTNLAW = (sys.executable, "-c", "from attnlaw.command import main; main()")
GIGABYTE = 2**30
WATCH = """
import atexit, os, sys

def tell_peak():
    # The most memory of this program alone: `wait4` counts that of the tests it was forked from, too.
    with open("/proc/self/status") as status, open({peak!r} + str(os.getpid()), "w") as file:
        file.writelines(line.split()[1] for line in status if line.startswith("VmHWM"))

if os.path.exists("/proc/self/status"):
    atexit.register(tell_peak)

log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
DEEDS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pty.spawn",
         "socket.connect", "socket.getaddrinfo")

# What numpy 2.0 and threadpoolctl 3.1 start when they are imported, to look at the machine.
LOOKS = (["lscpu"], ["/sbin/ldconfig", "-p"])

renames = 0

def watch(event, arguments):
    global renames
    if event == "os.rename" and {kill_at_rename}:
        renames += 1
        if renames == {kill_at_rename}:
            os.kill(os.getpid(), 9)
    if event == "subprocess.Popen" and arguments[1] in LOOKS:
        return
    if event in DEEDS or (event == "import" and "canary" in str(arguments[0])):
        os.write(log, (event + " " + repr(arguments)[:200] + "\\n").encode())

sys.addaudithook(watch)
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended: exit status, both outputs, its largest memory in bytes, and what it did."""

    status: int
    output: str
    errors: str
    memory: int
    deeds: tuple[str, ...]

    def refusals(self) -> list[str]:
        """The lines on standard error, without announcements."""
        return [line for line in self.errors.splitlines() if not line.startswith("expected time")]


def run(
    *arguments: str | Path,
    folder: Path,
    memory: int | None = 6 * GIGABYTE,
    seconds: float = 60.0,
    file_size: int | None = None,
    kill_at_rename: int = 0,
) -> Outcome:
    """Run `attnlaw ARGUMENTS` in `folder` under limits of address space, time and the size of files.

    A command that draws needs `memory=None`: its JavaScript engine reserves more addresses than memory.
    """
    watched = folder / ".watched"
    watched.mkdir(exist_ok=True)
    log, peak = watched / "deeds.log", watched / "peak"
    for file in watched.iterdir():
        file.unlink()
    watch = WATCH.format(log=str(log), peak=str(peak), kill_at_rename=kill_at_rename)
    (watched / "sitecustomize.py").write_text(watch)
    environment = dict(os.environ, PYTHONPATH=f"{watched}{os.pathsep}{folder}", COLUMNS="200")
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}

    def limit() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if file_size is not None:
            # Past the limit a write fails (EFBIG), as on a full disk, instead of ending the process.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

    output, errors = watched / "output", watched / "errors"
    with output.open("wb") as out, errors.open("wb") as err:
        child = subprocess.Popen(
            [*ATTNLAW, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder,
            env=environment,
            preexec_fn=limit,
        )
        timer = _deadline(child, seconds)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
    own = peak.with_name(f"peak{child.pid}")  # workers that it started tell their own
    return Outcome(
        child.returncode,
        output.read_text(errors="surrogateescape"),
        errors.read_text(errors="surrogateescape"),
        1024 * (int(own.read_text()) if own.exists() else usage.ru_maxrss),
        tuple(log.read_text().splitlines()) if log.exists() else (),
    )


def _deadline(child: subprocess.Popen[bytes], seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, child.kill)
    timer.start()
    return timer
