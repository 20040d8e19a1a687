"""The store and its lock: rows survive a kill, one run at a time, broken files are told."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from attnlaw.core.errors import InputError
from attnlaw.study.store import hold_lock, is_locked, open_store
from attnlaw.study.task import Ending, write_table

HOLDER = """
import sys, time
from attnlaw.study.store import hold_lock, open_store
from attnlaw.study.task import Ending
with hold_lock(sys.argv[1]), open_store(sys.argv[1], create=True) as store:
    for i in range(20):
        store.add([Ending(f"key {i}", 0.0, "{}")])
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    time.sleep(600)
"""


def test_an_ending_comes_back_as_it_was_and_replaces_an_earlier_one(tmp_path: Path) -> None:
    first = Ending("k", 0.5, None, (), "failed", attempts=3)
    second = Ending("k", 1.5, '{"x": 0.1}', (("t", "parts/t/k.parquet"),), None)
    with open_store(tmp_path / "out", create=True) as store:
        store.add([first])
        assert store.endings() == {"k": first}
        assert store.endings(rows=False) == {"k": first}
        store.add([second])
        assert store.endings() == {"k": second}
        assert store.endings(rows=False) == {"k": replace(second, row=None)}


def test_an_outdated_ending_stays_until_another_takes_its_place(tmp_path: Path) -> None:
    with open_store(tmp_path / "out", create=True) as store:
        store.add([Ending("k", 0.5, '{"x": 1}'), Ending("l", 0.5, '{"x": 2}')])
        store.mark_stale(["k", "unknown"])
        assert store.stale_keys() == {"k", "unknown"}
        assert store.endings()["k"].row == '{"x": 1}'
        store.add([Ending("k", 0.7, '{"x": 3}')])
        assert store.stale_keys() == {"unknown"}
        assert store.endings()["k"] == Ending("k", 0.7, '{"x": 3}')


def test_a_look_at_the_lock_does_not_refuse_a_run(tmp_path: Path) -> None:
    """`is_locked` takes a shared lock for an instant, here for longer."""
    with hold_lock(tmp_path):
        pass
    with (tmp_path / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        end = threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        end.start()
        with hold_lock(tmp_path):
            assert is_locked(tmp_path)
        end.join()


@pytest.mark.slow
def test_a_killed_run_keeps_its_rows_and_frees_its_lock(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        assert is_locked(tmp_path)
        refusal = f"another run is using this directory .process {holder.pid} on "
        with pytest.raises(InputError, match=refusal), hold_lock(tmp_path):
            pass
        with open_store(tmp_path) as store:  # readers are welcome meanwhile
            assert len(store.endings()) == 20
    finally:
        holder.kill()  # with SIGKILL
        holder.communicate()
    assert not is_locked(tmp_path)
    with hold_lock(tmp_path), open_store(tmp_path) as store:
        assert set(store.endings()) == {f"key {i}" for i in range(20)}


def test_no_store_and_broken_stores_are_told(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="this directory has no study; start one with: attnlaw study run"),
        open_store(tmp_path),
    ):
        pass
    (tmp_path / "store.sqlite").write_text(
        "this is not a database, but it is long enough to look like a file"
    )
    with pytest.raises(InputError, match="this file is not a store of a study"), open_store(tmp_path):
        pass


def test_a_part_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pl.DataFrame({"value": [1.0, 2.0]})
    place = write_table(table, "values", "k", tmp_path)
    digest = hashlib.sha256((tmp_path / place).read_bytes()).hexdigest()[:16]
    assert place == f"parts/values/k-{digest}.parquet"
    assert pl.read_parquet(tmp_path / place).equals(table)
    before = (tmp_path / place).read_bytes()

    def interrupted(self: Path, data: bytes) -> None:
        with self.open("wb") as file:
            file.write(data[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(OSError, match="No space left on device"):
        write_table(table * 2, "values", "k", tmp_path)
    assert (tmp_path / place).read_bytes() == before
    assert [path.name for path in (tmp_path / "parts" / "values").iterdir()] == [Path(place).name]
