"""The program of a child process, which calls the functions of one Python file (see `child_process`).

Each request and each reply is one line of JSON. It imports little, so it starts in a few hundredths of a
second, and it ends when its input ends.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any

MEGABYTE = 2**20
MOST_REPLY = 64 * MEGABYTE


def serve(file: str, seconds: float, megabytes: int | None) -> None:
    """Answer requests. The process ends if a call, or loading the file, takes too long."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its children
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    limit_resource(resource.RLIMIT_CORE, 0)
    if megabytes is not None:
        limit_resource(resource.RLIMIT_AS, megabytes * MEGABYTE)
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not become a reply
    signal.setitimer(signal.ITIMER_REAL, seconds)
    functions = runpy.run_path(file)
    for line in requests:
        name, arguments = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        reply = json.dumps(answer(functions[name], arguments))
        if len(reply) > MOST_REPLY:
            reply = json.dumps({"error": f"its answer has more than {MOST_REPLY // MEGABYTE} MB"})
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        replies.write(reply.encode() + b"\n")
        replies.flush()


def answer(function: Callable[..., Any], arguments: list[Any]) -> dict[str, Any]:
    """Return the result of a function, or the text of the error that it raised."""
    try:
        value = function(*arguments)
    except MemoryError:
        os.write(2, b"out of memory")
        os._exit(1)  # there may be no memory left for an answer
    except BaseException as error:  # a panic of a Rust library is no Exception
        return {"error": str(error) or type(error).__name__}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    return {"value": value}


def limit_resource(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (lowest, hard))


if __name__ == "__main__":
    sys.path[:], *settings = json.loads(sys.argv[1])
    serve(*settings)
