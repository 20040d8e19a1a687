"""Disks that are full, places that cannot be written, kills, and other runs' output: nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from checkpoints.spoiled import CONFIG, bert_state
from safetensors.torch import save_file
from trust.command import Outcome, run

import attnlaw
from attnlaw.command import main
from attnlaw.core.errors import InputError
from attnlaw.core.result import Result
from attnlaw.study import read_study
from attnlaw.study import run as run_study

SAVED = (
    "attnlaw.json",
    "rows.parquet",
    "matrices.parquet",
    "spectra.parquet",
    "layers.parquet",
    "fits.parquet",
    "curves.parquet",
    "summary.json",
)
STUDY = 'verb = "learn"\n[grid]\nalpha = "0.1:0.9:12"\n'


def checkpoint(folder: Path, scale: float = 1.0) -> Path:
    folder.mkdir()
    state = {name: scale * value for name, value in bert_state(layers=1).items()}
    save_file(state, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 1}))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def one_line(outcome: Outcome, *parts: str) -> None:
    (line,) = outcome.refusals()
    assert outcome.status == 1
    assert line.startswith("attnlaw: ")
    for part in parts:
        assert part in line, line


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, and the audit of the first in `first`."""
    place = tmp_path_factory.mktemp("writing")
    attnlaw.audit(checkpoint(place / "one"), jobs=1).save(place / "first")
    checkpoint(place / "two", scale=2.0)
    return place


@pytest.fixture
def earlier(place: Path) -> Path:
    """The same with the audit of the first in `out`, for a later one to replace."""
    shutil.rmtree(place / "out", ignore_errors=True)
    shutil.copytree(place / "first", place / "out")
    return place


@pytest.fixture(scope="module")
def later(place: Path) -> Result:
    return attnlaw.audit(place / "two", jobs=1)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a command ends in, in this process."""
    with mock.patch.object(sys, "argv", ["attnlaw", *map(str, words)]), pytest.raises(SystemExit) as end:
        main()
    said = end.value.code if isinstance(end.value.code, str) else capsys.readouterr().err
    assert end.value.code
    (line,) = said.splitlines()
    assert line.startswith("attnlaw: ")
    return line


def test_a_disk_that_is_full_after_the_rows(earlier: Path) -> None:
    """Files may grow to 40 kB: the tables fit, the report does not, and that of the earlier run is gone."""
    full = run("audit", "two", "--no-laws", "--out", "out", folder=earlier, memory=None, file_size=40_000)
    one_line(full, str(Path("out/report.html")), "cannot be written", "choose another directory")
    assert {"report.html", "attnlaw.json"} & contents(earlier / "out").keys() == {"attnlaw.json"}
    assert set(attnlaw.load(earlier / "out").matrices["model"]) == {"two"}


@pytest.mark.slow
def test_a_full_disk_at_the_first_table(earlier: Path) -> None:
    before = contents(earlier / "out")
    full = run("audit", "two", "--no-laws", "--out", "out", folder=earlier, memory=None, file_size=3000)
    one_line(full, "out", "cannot be written")
    assert contents(earlier / "out") == before


@pytest.mark.slow
def test_kill_while_files_are_renamed(earlier: Path, later: Result) -> None:
    """Every file is the earlier run's or the later one's, whole; the next run is not disturbed."""
    killed = run("audit", "two", "--no-laws", "--out", "out", folder=earlier, memory=None, kill_at_rename=4)
    assert killed.status == -9
    for name in SAVED:
        path = earlier / "out" / name
        assert json.loads(path.read_text()) if name.endswith("json") else pl.read_parquet(path).height
    # Another run's output is then replaced whole, and other files are left alone.
    (earlier / "out" / "notes.txt").write_text("mine")
    later.save(earlier / "out")
    models = [
        set(pl.read_parquet(earlier / "out" / f"{name}.parquet")["model"]) for name in ("matrices", "fits")
    ]
    assert models == [{str(earlier / "two")}] * 2
    assert (earlier / "out" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("verb", ["audit", "fit"])
@pytest.mark.parametrize("out", ["one/config.json", "one/config.json/deeper", "/proc/attnlaw", "/dev/null"])
def test_places_that_cannot_be_written(
    place: Path, verb: str, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file in the way, and a file system that takes no files: refused before the work."""
    line = refused(capsys, verb, place / "one", "--out", place / out)
    assert out.split("/")[-1] in line or "config.json" in line


@pytest.fixture(name="read_only")
def _read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that nobody may write to: by its rights, for root immutable, else as the system is told."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    if os.access(folder, os.W_OK) and shutil.which("chattr"):
        subprocess.run(["chattr", "+i", folder], check=False, capture_output=True)
    if os.access(folder, os.W_OK):
        granted = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and granted(path, mode))
    yield folder
    if shutil.which("chattr"):
        subprocess.run(["chattr", "-i", folder], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["audit", "fit", "report", "study"])
def test_a_directory_that_is_read_only(
    place: Path, read_only: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before the work, whatever the verb; nothing is left behind."""
    study = place / "study.toml"
    study.write_text(STUDY)
    given = {"report": [place / "first"], "study": ["run", study]}.get(verb, [place / "one"])
    line = refused(capsys, verb, *given, "--out", read_only)
    assert line == f"attnlaw: {read_only}: cannot be written (Permission denied); choose another directory"
    assert not list(read_only.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SAVED, "report.html", "figures"])
def test_a_directory_in_the_place_of_a_file(name: str, earlier: Path, later: Result) -> None:
    """Or a file in that of the figures: no file of the earlier run is replaced, not even the first."""
    out = earlier / "out"
    (out / name).unlink(missing_ok=True)
    if name == "figures":
        (out / name).write_text("mine")
    else:
        (out / name).mkdir()
    before = contents(out)
    with pytest.raises(InputError, match=f"{name}: .*; choose another"):
        later.save(out, figures="svg" if name in ("report.html", "figures") else None)
    assert contents(out) == before
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_that_is_full(place: Path) -> None:
    full = run("audit", "one", "--json", folder=place, output=Path("/dev/full"))
    one_line(full, "standard output cannot be written (No space left on device)")


def test_a_study_on_a_full_disk_goes_on_later(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    full = run("study", "run", "study.toml", "--out", "out", folder=tmp_path, file_size=20_000)
    one_line(full, "out")
    assert run_study(read_study(tmp_path / "study.toml"), tmp_path / "out").done == 12
    assert pl.read_parquet(tmp_path / "out" / "rows.parquet").height == 12
