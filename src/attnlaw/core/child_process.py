"""Call functions of libraries that may crash, hang or fill the memory, in a child process."""

from __future__ import annotations

import atexit
import base64
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Lock
from typing import IO, Any

SERVER = Path(__file__).with_name("child_server.py")
TAIL = 10_000  # bytes at the end of what the process printed before it ended
OUT_OF_MEMORY = (b"memory allocation of", b"out of memory", b"MemoryError")


class CallFailed(Exception):
    """An error that is raised if a function fails in a child process, with the text of the original error."""


class ChildEnded(Exception):
    """An error for a child process that ends during a call. The message has the reason."""


class ChildProcess:
    """A child process that runs the functions of one Python file and starts at the first call.

    The file should import nothing of attnlaw. After a fork, the next call starts a new process. Threads may
    share this object, but only one call runs at a time. A call may take `seconds`, and the process may use
    `megabytes` of address space (None: no limit).
    """

    def __init__(self, file: Path, seconds: float, megabytes: int | None = None) -> None:
        self.file, self.seconds, self.megabytes = file, seconds, megabytes
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: IO[bytes] | None = None
        self._owner = 0
        self._lock = Lock()

    def call(self, function: str, *arguments: Any) -> Any:
        """Return the result of a function of the file: bytes, or a value that JSON can hold.

        Raise `CallFailed` if the function raises an error, and `ChildEnded` if the process ends or cannot
        start.
        """
        request = json.dumps([function, arguments]).encode() + b"\n"
        with self._lock:
            try:
                reply = self._exchange(request)
            except BaseException:  # a reply that nobody reads would answer the next call
                self.close()
                raise
        if "error" in reply:
            raise CallFailed(reply["error"])
        return base64.b64decode(reply["bytes"]) if "bytes" in reply else reply["value"]

    def close(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
        if self._messages is not None:
            self._messages.close()
        self._process = self._messages = None

    def _exchange(self, request: bytes) -> dict[str, Any]:
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise ChildEnded(self._reason_of_end(process))
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _start(self) -> subprocess.Popen[bytes]:
        """Return the process, which runs with the same import path but without the user's site."""
        if self._process is None or self._owner != os.getpid():
            self.close()
            settings = json.dumps([sys.path, str(self.file), self.seconds, self.megabytes])
            try:
                self._messages = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(SERVER), settings],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._messages,
                )
            except OSError as error:
                raise ChildEnded(f"cannot be started: {error.strerror}") from error
            self._owner = os.getpid()
            atexit.register(self.close)
        return self._process

    def _reason_of_end(self, process: subprocess.Popen[bytes]) -> str:
        status = process.wait()
        assert self._messages is not None
        self._messages.seek(max(0, self._messages.seek(0, os.SEEK_END) - TAIL))
        messages = self._messages.read()
        if status == -signal.SIGALRM:
            return f"took more than {self.seconds:g} s"
        if any(words in messages for words in OUT_OF_MEMORY) or status == -signal.SIGKILL:
            if self.megabytes is not None:
                return f"needed more than the {self.megabytes} MB of memory that it is allowed to use"
            return "ran out of memory"
        return f"ended with signal {-status}" if status < 0 else f"ended with status {status}"


def has_address_limit() -> bool:
    """Return whether `ulimit -v` limits the address space of this process and its children."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
