"""The same command twice, with one thread and with two: the same rows, bit for bit.

Each thread of an audit, and each worker of a study, computes with one BLAS thread, so that no sum depends on
how the work was divided; only clocks (`seconds`) differ. The two runs are forks of two interpreters, whose
hashes and unseeded random numbers differ.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from trust.command import CORE, TWIN, Interpreter, run

MODEL = Path(__file__).parents[2] / "examples" / "tiny-decoder"
STUDY = """
verb = ["learn", "limit"]
[[list]]
verb = "learn"
alpha = [0.1, 0.3]
[[list]]
verb = "limit"
width = [8, "inf"]
draws = 50
[run]
seed = 3
"""


def output(interpreter: Interpreter, folder: Path, *arguments: str | Path) -> str:
    outcome = run(*arguments, folder=folder, interpreter=interpreter, memory=None)
    assert outcome.status == 0, outcome.errors
    assert outcome.deeds == ()
    return outcome.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (
            ("audit", MODEL, "--layers", "0:1", "--no-laws"),
            ["findings", "layers", "matrices", "rows", "spectra"],
        ),
        (("fit", MODEL, "--layers", "0:1", "--only", "ffn"), ["curves", "fits", "rows"]),
    ],
    ids=["audit", "fit"],
)
def test_audits_and_fits_write_the_same_rows(
    arguments: tuple[str | Path, ...], names: list[str], tmp_path: Path
) -> None:
    for interpreter, jobs in ((CORE, "1"), (TWIN, "2")):
        output(interpreter, tmp_path, *arguments, "--out", jobs, "--jobs", jobs)
    written = sorted(path.name for path in (tmp_path / "1").glob("*.parquet"))
    assert written == [f"{name}.parquet" for name in names]
    for name in written:
        serial, two = (pl.read_parquet(tmp_path / jobs / name) for jobs in "12")
        assert serial.equals(two, null_equal=True), name
    if arguments[0] == "audit":
        assert (tmp_path / "1/summary.json").read_bytes() == (tmp_path / "2/summary.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("limit", "--width", "4,inf", "--draws", "100", "--depth", "2", "--seed", "5", "--json"),
        ("learn", "--simulate", "16", "--seeds", "2", "--noise", "0.1", "--json"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_same_command_twice(arguments: tuple[str | Path, ...], tmp_path: Path) -> None:
    first, second = (output(interpreter, tmp_path, *arguments) for interpreter in (CORE, TWIN))
    assert json.loads(first)
    assert first == second


@pytest.mark.slow
def test_studies_in_one_process_and_with_two_workers(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    tables = {}
    for interpreter, name, jobs in ((CORE, "alone", ()), (TWIN, "two", ("--jobs", "2"))):
        done = run(
            *("study", "run", file, "--out", name, *jobs),
            folder=tmp_path,
            interpreter=interpreter,
            memory=None,
        )
        assert done.status == 0, done.errors
        tables[name] = [pl.read_parquet(tmp_path / name / path / "rows.parquet") for path in ("", "limit")]
    for alone, two in zip(tables["alone"], tables["two"], strict=True):
        assert alone.height == 2
        assert alone.equals(two, null_equal=True)
