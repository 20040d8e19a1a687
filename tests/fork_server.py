"""An interpreter that imports modules once and forks for every command: `python -P fork_server.py MODULE...`.

It reads requests and writes replies, one line of JSON each, and ends when its input does. A fork bounds and
watches itself, then calls `attnlaw.command.main` and ends as any interpreter does. `PACKAGE.*` stands for all
modules of a package. Without modules a fork is as good as a new interpreter: nothing is imported yet.

Only the standard library is imported here, so that nothing comes before the watch of a fork.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import types
from typing import Any

DEEDS = (
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pty.spawn"),
    *("socket.connect", "socket.getaddrinfo"),
)
# The program of attnlaw's own child processes, which are limited themselves.
CHILD = "/attnlaw/core/child_server.py"
# What numpy 2.0 and threadpoolctl 3.1 start when they are imported, to look at the machine.
LOOKS = (["lscpu"], ["/sbin/ldconfig", "-p"])
# These need PyTorch, whose import costs more than all others.
HEAVY = ("attnlaw.analysis.forward", "attnlaw.training")


def serve(modules: list[str]) -> dict[str, Any]:
    """Answer requests for ever; in a fork, return what it is to do."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    for name in modules:
        for module in in_package(name.removesuffix(".*")) if name.endswith(".*") else [name]:
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a fork that never visits these objects shares their memory
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            requests.close()
            replies.close()
            return request
        replies.write(json.dumps(ended(child, request["clock"])).encode() + b"\n")
        replies.flush()
    os._exit(0)


def in_package(name: str) -> list[str]:
    package = importlib.import_module(name)
    modules = (module.name for module in pkgutil.walk_packages(package.__path__, f"{name}."))
    return [module for module in modules if not module.startswith(HEAVY) and not module.endswith("__main__")]


def ended(child: int, clock: float) -> dict[str, int]:
    """Exit status and most memory in bytes of a child, which is killed when the clock strikes."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, clock)
    _, status, usage = os.wait4(child, 0)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    return {
        "status": os.waitstatus_to_exitcode(status),
        "memory": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }


def become(request: dict[str, Any]) -> None:
    """Take on the streams, directory, environment and limits of a request, and watch what is done."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for stream in (1, 2):
        os.dup2(os.open(request["streams"][stream - 1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    sys.argv = ["attnlaw", *request["arguments"]]
    sys.path.insert(0, request["folder"])
    sys.modules["__main__"] = types.ModuleType("__main__")  # processes that it starts do not import this file
    watch(os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), request["kill_at_rename"])
    for name, limit in request["limits"].items():
        kind = getattr(resource, name)
        resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))


def watch(log: int, kill_at_rename: int) -> None:
    """Log every attempt to start a program, to open a connection, or to import a canary (PEP 578)."""
    renames = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal renames
        if event == "os.rename" and kill_at_rename:
            renames += 1
            if renames == kill_at_rename:
                os.kill(os.getpid(), signal.SIGKILL)
        if event == "subprocess.Popen" and (arguments[1] in LOOKS or is_own(arguments[1])):
            return
        if event in DEEDS or (event == "import" and "canary" in str(arguments[0])):
            os.write(log, f"{event} {arguments!r:.200}\n".encode())

    sys.addaudithook(hook)


def is_own(words: list[Any]) -> bool:
    """Whether the words start a child process of attnlaw: Python's options, then its program."""
    return words[1:3] == ["-I", "-S"] and words[3].endswith(CHILD)


def command() -> None:
    """`attnlaw.command.main`, which tells at once how it ends: `leave` is the last to be called."""
    from attnlaw.command import main

    try:
        main()
        ending.append(0)
    except SystemExit as end:
        ending.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise


def leave() -> None:
    """End after all threads and all that is registered for the end, but do not empty every module for it."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # the interpreter has words for that
    os._exit(ending[-1])


if __name__ == "__main__":
    this = sys.modules["__main__"]  # held, or it would be emptied when another takes its place
    ending = [1]
    atexit.register(leave)  # the first to be registered is the last to be called
    become(serve(sys.argv[1:]))
    command()
