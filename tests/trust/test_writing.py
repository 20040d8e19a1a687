"""Disks that are full, places that cannot be written, kills, and other runs' output: nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import polars as pl
import pytest
from checkpoints.spoiled import CONFIG, bert_state
from safetensors.torch import save_file
from trust.command import ATTNLAW, Outcome, run

SAVED = (
    "matrices.parquet",
    "spectra.parquet",
    "layers.parquet",
    "fits.parquet",
    "curves.parquet",
    "summary.json",
)
STUDY = 'verb = "learn"\n[grid]\nalpha = "0.1:0.9:40"\n'


def checkpoint(folder: Path, layers: int) -> Path:
    folder.mkdir()
    save_file(bert_state(layers), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
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
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with two models, and the audit of the first in `out`."""
    place = tmp_path_factory.mktemp("writing")
    audited = run("audit", checkpoint(place / "one", 1), "--out", "out", folder=place, memory=None)
    assert audited.status == 0, audited.errors
    checkpoint(place / "two", 2)
    return place


def test_a_full_disk_leaves_the_earlier_run_whole(earlier: Path) -> None:
    """Files may grow to 40 kB: the tables fit, the report does not."""
    before = contents(earlier / "out")
    full = run("audit", "two", "--out", "out", folder=earlier, memory=None, file_size=40_000)
    one_line(full, str(Path("out/report.html")), "cannot be written", "choose another directory")
    assert contents(earlier / "out") == before


def test_a_full_disk_at_the_first_table(earlier: Path) -> None:
    before = contents(earlier / "out")
    full = run("fit", "two", "--out", "out", folder=earlier, memory=None, file_size=3000)
    one_line(full, "parquet", "cannot be written")
    assert contents(earlier / "out") == before


def test_kill_while_files_are_renamed(earlier: Path) -> None:
    """Every file is the earlier run's or the later one's, whole; the next run is not disturbed."""
    killed = run("audit", "two", "--out", "out", folder=earlier, memory=None, kill_at_rename=4)
    assert killed.status == -9
    for name in SAVED:
        path = earlier / "out" / name
        assert json.loads(path.read_text()) if name.endswith("json") else pl.read_parquet(path).height
    # Another run's output is then replaced whole, and other files are left alone.
    (earlier / "out" / "notes.txt").write_text("mine")
    again = run("audit", "two", "--out", "out", folder=earlier, memory=None)
    assert again.status == 0
    found = [
        set(pl.read_parquet(earlier / "out" / f"{name}.parquet")["model"]) for name in ("matrices", "fits")
    ]
    assert found == [{"two"}, {"two"}]
    assert (earlier / "out" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("verb", ["audit", "fit"])
@pytest.mark.parametrize("out", ["one/config.json", "one/config.json/deeper", "/proc/attnlaw", "/dev/null"])
def test_places_that_cannot_be_written(earlier: Path, verb: str, out: str) -> None:
    """A file in the way, and a file system that takes no files: refused before the work."""
    from typer.testing import CliRunner

    from attnlaw.cli.app import app
    from attnlaw.errors import InputError

    refused = CliRunner().invoke(app, [verb, str(earlier / "one"), "--out", str(earlier / out)])
    assert isinstance(refused.exception, InputError)
    assert out.split("/")[-1] in str(refused.exception) or "config.json" in str(refused.exception)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_that_is_full(earlier: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*ATTNLAW, "audit", str(earlier / "one"), "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env=dict(os.environ, OMP_NUM_THREADS="1"),
        )
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("attnlaw: standard output cannot be written (No space left on device)")


def test_a_study_on_a_full_disk_goes_on_later(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    full = run("study", "run", "study.toml", "--out", "out", folder=tmp_path, file_size=20_000)
    one_line(full, "out")
    later = run("study", "run", "study.toml", "--out", "out", folder=tmp_path)
    assert later.status == 0, later.errors
    assert pl.read_parquet(tmp_path / "out" / "rows" / "rows.parquet").height == 40
