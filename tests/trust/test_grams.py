"""Files that attack `limit --gram`, through the real command line: one line each, in bounded memory."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trust.command import GIGABYTE, run
from trust.targets import TARGETS

from attnlaw.core.errors import InputError
from attnlaw.theory.limit.inputs import GivenInputs, read_gram


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, gram=np.eye(2))
    return buffer.getvalue()


def header(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + data


def shaped(shape: str, data: bytes = bytes(32)) -> bytes:
    return header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}", data)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def hole(path: Path) -> None:
    """As long as it says, and empty."""
    path.write_bytes(shaped("(100000, 100000)", b""))
    os.truncate(path, path.stat().st_size + 8 * 10**10)


NONE = "does not hold a matrix of numbers"
BYTES: dict[str, tuple[bytes, str]] = {
    "complex": (npy(np.eye(2) + 1j), "complex128, expected real numbers"),
    "structured": (npy(np.zeros((2, 2), dtype=[("a", "f8")])), "expected real numbers"),
    "text": (npy(np.array([["1", "0"], ["0", "1"]])), "expected real numbers"),
    "booleans": (npy(np.eye(2) > 0), "bool, expected real numbers"),
    "objects": (npy(np.array([[{}]], dtype=object)), "object, expected real numbers"),
    "empty": (b"", NONE),
    "npz": (npz(), NONE),
    "plain text": (b"1 0\n0 1\n", NONE),
    "cut": (npy(np.eye(4))[:-1], NONE),
    "longer": (npy(np.eye(2)) + b"x", NONE),
    "header cut": (npy(np.eye(2))[:30], NONE),
    "header open": (header("{'descr': ('<f8', "), NONE),
    "header nested": (header("-" * 9000 + "1"), NONE),
    "header number": (header("3"), NONE),
    "shape negative": (shaped("(-2, 2)"), NONE),
    "shape zero": (shaped("(0, " + "9" * 400 + ")"), NONE),
    "shape huge": (shaped("(" + "9" * 400 + ", 1)"), "larger than 1 GB"),
    "shape hexadecimal": (shaped("(0x" + "f" * 5000 + ", 1)"), NONE),
    "shape long": (shaped("(2, 3)", bytes(48)), "expected a square matrix"),
    "version": (b"\x93NUMPY\3\0" + npy(np.eye(2))[8:], NONE),
}
PATHS: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (pipe, "not a regular file"),
    "device": (device, "not a regular file"),
    "directory": (Path.mkdir, "not a regular file"),
    "hole": (hole, "larger than 1 GB"),
    "missing": (lambda path: None, "no such file; give an existing file"),
}


def refusal(folder: Path, name: str) -> str:
    outcome = run("limit", "--gram", name, "--width", "8", "--draws", "100", folder=folder, seconds=30)
    (line,) = outcome.errors.splitlines()
    assert outcome.status == 1
    assert outcome.output == ""
    assert outcome.memory < GIGABYTE // 2
    return line


@pytest.mark.parametrize("name", ["complex", "empty", "npz"])
def test_bytes_through_the_command_line(name: str, tmp_path: Path) -> None:
    data, says = BYTES[name]
    (tmp_path / "gram.npy").write_bytes(data)
    line = refusal(tmp_path, "gram.npy")
    assert line.startswith("attnlaw: gram.npy")
    assert says in line


@pytest.mark.parametrize("ending", [".npy", ".txt"])
@pytest.mark.parametrize("name", PATHS)
def test_what_is_no_plain_file(name: str, ending: str, tmp_path: Path) -> None:
    write, says = PATHS[name]
    write(tmp_path / f"gram{ending}")
    line = refusal(tmp_path, f"gram{ending}")
    assert line.startswith(f"attnlaw: gram{ending}: ")
    assert says.replace("1 GB", "64 MB" if ending == ".txt" else "1 GB") in line


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str, tmp_path: Path) -> None:
    data, says = BYTES[name]
    target = TARGETS["gram"]
    with pytest.raises(InputError, match=r"^[^\n]*$") as caught:
        target.read(target.write(tmp_path, data))
    assert says in str(caught.value)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<f2", "<i4", "|u1"])
def test_good_files_are_read_as_numpy_reads_them(order: Any, dtype: str, tmp_path: Path) -> None:
    array = np.asarray([[4, 1], [2, 3]], dtype=dtype, order=order)
    np.save(tmp_path / "gram.npy", array)
    assert (read_gram(tmp_path / "gram.npy") == np.load(tmp_path / "gram.npy")).all()


@pytest.mark.parametrize("make", [GivenInputs, GivenInputs.from_tokens])
def test_arrays_of_other_kinds(make: Callable[[Any], Any]) -> None:
    for array in (np.eye(2) + 1j, np.eye(2).astype("U3"), np.eye(2).astype(object)):
        with pytest.raises(InputError, match="expected real numbers"):
            make(array)
