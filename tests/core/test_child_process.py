"""Functions in a child process: whatever they do, the caller goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlaw.core.child_process import CallFailed, ChildEnded, ChildProcess

FUNCTIONS = """
import os, sys, time

def add(first, second):
    print("not a reply")
    return first + second

def as_bytes(text):
    return text.encode()

def fail():
    raise ValueError("said so")

def abort():
    os.abort()

def end():
    os._exit(3)

def number():
    return os.getpid()

def repeat(text, count):
    return text * count

def reserve(size):
    return len(bytearray(size))

def work():
    while True:
        pass
"""


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    file = tmp_path / "functions.py"
    file.write_text(FUNCTIONS)
    return file


@pytest.fixture(name="child")
def _child(file: Path) -> Iterator[ChildProcess]:
    child = ChildProcess(file, seconds=60, megabytes=500)
    yield child
    child.close()


def test_values_bytes_and_errors_come_back(child: ChildProcess) -> None:
    assert child.call("add", [1, None], ["é\ud800"]) == [1, None, "é\ud800"]
    assert child.call("as_bytes", "é") == b"\xc3\xa9"
    with pytest.raises(CallFailed, match=r"^said so$"):
        child.call("fail")
    assert child.call("add", 1, 2) == 3


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        ("abort", (), "ended with signal 6"),
        ("end", (), "ended with status 3"),
        ("reserve", (10**9,), "needed more than the 500 MB of memory that it is allowed to use"),
    ],
)
def test_the_next_call_after_an_end_is_answered(
    child: ChildProcess, function: str, arguments: tuple[Any, ...], reason: str
) -> None:
    with pytest.raises(ChildEnded, match=f"^{reason}$"):
        child.call(function, *arguments)
    assert child.call("reserve", 10**7) == 10**7


def test_an_answer_that_is_too_long_is_an_error(child: ChildProcess) -> None:
    with pytest.raises(CallFailed, match="more than 64 MB"):
        child.call("repeat", "a", 65 * 2**20)
    assert child.call("repeat", "a", 3) == "aaa"


def test_a_call_without_end_is_ended(file: Path) -> None:
    child = ChildProcess(file, seconds=0.2)
    with pytest.raises(ChildEnded, match=r"^took more than 0\.2 s$"):
        child.call("work")


def test_what_is_no_python_file_is_an_end(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there")
    with pytest.raises(ChildEnded, match=r"^ended with status 1$"):
        ChildProcess(tmp_path / "broken.py", seconds=60).call("add")


def test_an_interrupted_call_does_not_answer_the_next(child: ChildProcess) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            child.call("work")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert child.call("add", 1, 2) == 3


def test_a_fork_has_a_process_of_its_own(child: ChildProcess) -> None:
    first = child.call("number")
    reading, writing = os.pipe()
    fork = os.fork()
    if not fork:
        try:
            os.write(writing, str(child.call("number")).encode())
            child.close()
        finally:
            os._exit(0)
    os.waitpid(fork, 0)
    assert int(os.read(reading, 20)) != first
    assert child.call("number") == first
    os.close(reading)
    os.close(writing)
