"""The real command line in a process of its own: bounded in memory and CPU time, and watched while it runs.

Every command is a fork of an interpreter that has imported what most commands need (`fork_server`), so that
what is measured and watched is what the command does. Interpreters start when first asked, and end with the
tests.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FORK_SERVER = Path(__file__).parents[1] / "fork_server.py"
GIGABYTE = 2**30


@dataclass(frozen=True)
class Interpreter:
    """What is imported before the forks. Two of different names differ in their hashes and random states."""

    name: str
    modules: tuple[str, ...] = ()


NEW = Interpreter("new")
CORE = Interpreter("core", ("attnlaw.*", "altair", "scipy.stats", "vl_convert"))
TWIN = Interpreter("twin", CORE.modules)
LENS = Interpreter(
    "lens", ("attnlaw.*", "attnlaw.analysis.forward", "transformers.models.gpt2.modeling_gpt2")
)


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
    interpreter: Interpreter = CORE,
    memory: int | None = 6 * GIGABYTE,
    seconds: int = 60,
    clock: float = 600.0,
    file_size: int | None = None,
    kill_at_rename: int = 0,
    output: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `attnlaw ARGUMENTS` in `folder` under limits of address space, CPU time and the size of files.

    A command that draws needs `memory=None`, or its figures are missing: the JavaScript engine reserves more
    addresses than memory.
    A command that waits for ever takes no CPU time; it is killed when the clock strikes.
    """
    watched = folder / ".watched"
    watched.mkdir(exist_ok=True)
    log, errors = watched / "deeds.log", watched / "errors"
    log.unlink(missing_ok=True)
    streams = (output or watched / "output", errors)
    limits = {"RLIMIT_AS": memory, "RLIMIT_CPU": seconds, "RLIMIT_FSIZE": file_size, "RLIMIT_CORE": 0}
    server = _start(interpreter)
    assert server.stdin is not None
    assert server.stdout is not None
    request = {
        "arguments": [str(argument) for argument in arguments],
        "folder": str(folder),
        "streams": [str(stream) for stream in streams],
        "log": str(log),
        "environment": dict(environment or {}),
        "limits": {name: limit for name, limit in limits.items() if limit is not None},
        "clock": clock,
        "kill_at_rename": kill_at_rename,
    }
    server.stdin.write(json.dumps(request).encode() + b"\n")
    server.stdin.flush()
    line = server.stdout.readline()
    assert line, f"the interpreter {interpreter.name!r} has ended; its standard error says why"
    reply = json.loads(line)
    return Outcome(
        reply["status"],
        "" if output else streams[0].read_text(errors="surrogateescape"),
        errors.read_text(errors="surrogateescape"),
        reply["memory"],
        tuple(log.read_text().splitlines()) if log.exists() else (),
    )


@cache
def _start(interpreter: Interpreter) -> subprocess.Popen[bytes]:
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
    server = subprocess.Popen(
        [sys.executable, "-P", str(FORK_SERVER), *interpreter.modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | one_thread | {"COLUMNS": "200", "PYTHONHASHSEED": "random", "PYTHONUNBUFFERED": ""},
    )
    atexit.register(server.communicate)
    return server
