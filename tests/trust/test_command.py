"""The watch and the limits themselves: what stands in the place of attnlaw misbehaves, and is found out."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from trust.command import GIGABYTE, NEW, Interpreter, Outcome, run


def misbehaved(
    folder: Path,
    code: str,
    clock: float = 60.0,
    output: Path | None = None,
    interpreter: Interpreter = NEW,
) -> Outcome:
    (folder / "attnlaw").mkdir(exist_ok=True)
    (folder / "canary.py").touch()
    (folder / "attnlaw" / "__init__.py").touch()
    (folder / "attnlaw" / "command.py").write_text(f"import os, sys, time\ndef main():\n    {code}\n")
    return run(folder=folder, interpreter=interpreter, memory=GIGABYTE, seconds=1, clock=clock, output=output)


@pytest.mark.parametrize(
    ("code", "deed"),
    [
        ("os.system('true')", "os.system"),
        ("__import__('subprocess').run(['true'])", "subprocess.Popen"),
        ("os.fork() or os._exit(0)", "os.fork"),
        ("__import__('canary')", "import"),
        ("__import__('socket').create_connection(('127.0.0.1', 9))", "socket.getaddrinfo"),
    ],
)
def test_deeds_are_seen(code: str, deed: str, tmp_path: Path) -> None:
    assert misbehaved(tmp_path, code).deeds[0].startswith(deed)


def test_what_does_nothing_has_done_nothing(tmp_path: Path) -> None:
    outcome = misbehaved(tmp_path, "sys.stdout.write('out'), sys.exit('err')")
    assert (outcome.status, outcome.output, outcome.errors) == (1, "out", "err\n")
    assert outcome.deeds == ()
    assert outcome.memory < 50e6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status"),
    [("while True: pass", -signal.SIGXCPU), ("time.sleep(100)", -signal.SIGKILL), ("sys.exit(3)", 3)],
)
def test_ends(code: str, status: int, tmp_path: Path) -> None:
    """By the limit of CPU time, by the clock, and by itself."""
    assert misbehaved(tmp_path, code, clock=1.0 if "sleep" in code else 60.0).status == status


def test_memory_is_bounded_and_counted(tmp_path: Path) -> None:
    outcome = misbehaved(tmp_path, "b'x' * (300 * 2**20); b'x' * 2**30")
    assert outcome.errors.splitlines()[-1] == "MemoryError"
    assert 300 * 2**20 < outcome.memory < 400 * 2**20


def test_an_output_that_is_full_is_told(tmp_path: Path) -> None:
    outcome = misbehaved(tmp_path, "sys.stdout.write('x')", output=Path("/dev/full"))
    assert outcome.status == 120
    assert "No space left" in outcome.errors


def test_interpreters_differ_in_their_hashes_and_their_forks_do_not(tmp_path: Path) -> None:
    first, two = NEW, Interpreter("another")
    hashes = [
        misbehaved(tmp_path, "sys.stdout.write(str(hash('a')))", interpreter=interpreter).output
        for interpreter in (first, first, two)
    ]
    assert hashes[0] == hashes[1] != hashes[2]
