"""Rows that were damaged, or that somebody else wrote: a page that shows what is there, or one line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from report.charts_of import data_of, study_of

import attnlaw
from attnlaw.report import write_report
from attnlaw.verbs import find_verb

NAN, INFINITY = float("nan"), float("inf")


def weights(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"in_proj_weight": rng.standard_normal((24, 8)), "out_proj.weight": rng.standard_normal((8, 8))}


@pytest.fixture(scope="module", name="whole")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved audit with fits, as good as new: tests damage copies of it."""
    return attnlaw.audit(weights(0), heads=2, name="one").save(tmp_path_factory.mktemp("whole"))


@pytest.fixture(name="audited")
def _audited(whole: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(whole, tmp_path / "audited"))


def page_rows(page: Path) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = data_of(page)["columns"]
    return columns


@pytest.mark.parametrize(
    "name", ["run[1]", "~", *(pytest.param(name, marks=pytest.mark.long) for name in ("run?", "*", "run{1}"))]
)
def test_a_name_like_a_pattern_is_a_name(
    name: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of `run[1]` are its own, not those of `run1`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "run1"))
    kinds: list[Callable[[Path, float], object]] = [partial(audit_with, whole), study_with, steps_with]
    for number, write in enumerate(kinds):
        for folder, value in (("run1", 1.0), (name, 2.0)):
            write(Path(f"{number}") / folder, value)
        column = page_rows(write_report([Path(f"{number}") / name], f"both{number}"))
        values = column["spectral_norm" if number == 0 else "log10_edelman"]
        assert set(values) == {2.0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["audit", "study", "steps"])
def test_a_name_that_is_no_unicode_is_read_and_written_out(kind: str, whole: Path, tmp_path: Path) -> None:
    {"audit": partial(audit_with, whole), "study": study_with, "steps": steps_with}[kind](
        tmp_path / "plain", 2.0
    )
    strange = tmp_path / os.fsdecode(b"r\xff")
    try:
        (tmp_path / "plain").rename(strange)
    except OSError:
        pytest.skip("this file system takes Unicode only")
    page = write_report([strange, strange], tmp_path / "both")
    assert "r\\udcff" in page.read_text(encoding="utf-8")


def audit_with(whole: Path, folder: Path, value: float) -> None:
    shutil.copytree(whole, folder)
    matrices = pl.read_parquet(folder.absolute() / "matrices.parquet", glob=False)
    matrices.with_columns(spectral_norm=value).write_parquet(folder.absolute() / "matrices.parquet")


def study_with(folder: Path, value: float) -> None:
    study_of(
        folder, [{"verb": "audit", "status": "done", "task": "t0", "model": "m", "log10_edelman": value}]
    )


def steps_with(folder: Path, value: float) -> None:
    monitored(folder, {"step": [0], "model": ["m"], "log10_edelman": [value]})


def monitored(folder: Path, steps: dict[str, list[Any]]) -> Path:
    """The directory of a training run with these steps."""
    study_of(folder, [{"verb": "monitor", "status": "done", "measured_steps": len(steps["step"])}])
    table = pl.DataFrame(steps).with_columns(case=pl.lit(0))
    table.write_parquet(folder.absolute() / "steps.parquet")
    return folder


def test_tables_beside_rows_with_a_name_like_a_pattern(tmp_path: Path) -> None:
    row = {"verb": "limit", "status": "done", "task": "t0", **ROWS["limit"]}
    for name, value in (("run1", 1.0), ("run[1]", 2.0)):
        folder = study_of(tmp_path / name, [row])
        table = pl.DataFrame({"y": [value], "density": [0.5], "case": [0]})
        table.write_parquet(folder / "densities.parquet")
    assert attnlaw.load(tmp_path / "run[1]").densities["y"].to_list() == [2.0]


def refused(folder: Path, *parts: str) -> None:
    with pytest.raises(attnlaw.InputError) as raised:
        write_report([folder])
    line = str(raised.value)
    assert line.isprintable()
    assert "; " in line
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, '[{"verb": "audit"}]', "\x00\xff"],
    ids=["lists", "tables", "digits", "list", "bytes"],
)
def test_manifests_that_are_none(text: str, audited: Path) -> None:
    (audited / "attnlaw.json").write_bytes(text.encode("latin-1"))
    refused(audited, "attnlaw.json", "write the directory again")


@pytest.mark.parametrize("name", ["attnlaw.json", "rows.parquet", "matrices.parquet", "fits.parquet"])
def test_pipes_and_directories_among_the_files_of_an_audit(name: str, audited: Path) -> None:
    (audited / name).unlink()
    os.mkfifo(audited / name)
    refused(audited, name, "not a regular file")
    (audited / name).unlink()
    (audited / name).mkdir()
    refused(audited, name, "not a regular file")


def test_a_manifest_of_gigabytes_is_not_read(audited: Path) -> None:
    with (audited / "attnlaw.json").open("wb") as file:
        file.truncate(10**10)  # a hole
    refused(audited, "attnlaw.json: this file is larger than 64 MB")


DAMAGE = {
    "kind unknown": ("matrices", {"kind": pl.lit("<b>\x1b")}),
    "kind of fits": ("fits", {"kind": pl.lit("x")}),
    "case of layers": ("layers", {"case": pl.lit(1)}),
    "case null": ("spectra", {"case": pl.lit(None, pl.Int64)}),
    "case of fits": ("fits", {"case": pl.lit(-1)}),
    "case as text": ("findings", {"case": pl.lit("0")}),
    "text": ("layers", {"log10_alpha": pl.lit("x")}),
    "bytes": ("layers", {"stack": pl.lit(b"x")}),
    "struct": ("matrices", {"share": pl.struct(pl.lit(1.0))}),
    "kind without norm": ("rows", {"norms_unknown": pl.lit(["<b>"])}),
    "family": ("rows", {"family": pl.lit(1.0)}),
    "sizes": ("rows", {"depth": pl.lit("4")}),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_tables_of_an_audit_that_are_damaged(case: str, audited: Path) -> None:
    table, columns = DAMAGE[case]
    path = audited / f"{table}.parquet"
    pl.read_parquet(path).with_columns(**columns).write_parquet(path)
    refused(audited, "write it again")


ODD = {
    "kind null": ("matrices", {"kind": pl.lit(None, pl.String)}),
    "other models": ("layers", {"model": pl.lit("stranger")}),
    "model null": ("spectra", {"model": pl.lit(None, pl.String)}),
    "negative spectrum": ("spectra", {"singular_values": pl.lit([1.0, -1.0])}),
    "torn spectrum": ("spectra", {"singular_values": pl.lit([1.0, NAN])}),
    "no texts": ("rows", {name: pl.lit(None, pl.List(pl.String)) for name in ("warnings", "extensions")}),
    "no name": ("rows", {"model": pl.lit(None, pl.String)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ODD)
def test_odd_values_are_shown_or_refused_in_one_line(case: str, audited: Path) -> None:
    table, columns = ODD[case]
    path = audited / f"{table}.parquet"
    pl.read_parquet(path).with_columns(**columns).write_parquet(path)
    try:
        shown, line = page_rows(write_report([audited]))["spectral_norm"], "; "
    except attnlaw.InputError as error:
        shown, line = [], str(error)
    assert shown or line.isprintable()
    assert "; " in line


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
def test_what_is_no_number_is_null(value: float, audited: Path) -> None:
    for name in ("matrices", "layers", "fits"):
        path = audited / f"{name}.parquet"
        rows = pl.read_parquet(path)
        floats = [column for column, dtype in rows.schema.items() if dtype.is_float()]
        rows.with_columns(pl.lit(value).alias(column) for column in floats).write_parquet(path)
    assert set(page_rows(write_report([audited]))["spectral_norm"]) == {None}


def test_curves_of_other_lengths_are_drawn_as_they_are(audited: Path) -> None:
    path = audited / "matrices.parquet"
    rows = pl.read_parquet(path)
    curves = [[0.0, 1.0, 2.0], [0.0, NAN], [1.0], [], None] * rows.height
    torn = rows.with_columns(pl.Series("log10_curve", curves[: rows.height], pl.List(pl.Float64)))
    torn.with_columns(kind=pl.lit("qk"), layer=pl.lit(0)).write_parquet(path)
    assert page_rows(write_report([audited]))["kind"] == ["qk"] * rows.height


LEARN = {"alpha": 0.1, "target_rank": 0.5, "noise": 0.0, "weight_decay": 0.1, "student": "direct"}
ROWS: dict[str, dict[str, Any]] = {
    "learn": {**LEARN, "estimation_error": 1.0, "relative_error": 1.0},
    "learn.simulate": {"alpha": 0.1, "student": "direct", "simulate": 20, "estimation_error": 1.0},
    "limit": {"heads": 1, "width": INFINITY}
    | {f"{name}_to_limit{end}": 0.1 for name in ("kl", "w1") for end in ("", "_error")},
    "audit": {"model": "m", "log10_spectrum_adaptive": 1.0},
    "fit": {"model": "m", "matrix_count": 3},
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_checked_by_the_columns_of_their_verb(name: str, tmp_path: Path) -> None:
    """What tells the rows apart must be there; a declared column may be missing, but of no other kind."""
    whole = {"verb": name, "status": "done", "task": "t0", **ROWS[name]}
    assert page_rows(write_report([study_of(tmp_path / "whole", [whole])]))["verb"] == [name]
    for column in (name for name in whole if name != "task"):
        without = study_of(
            tmp_path / "without", [{key: value for key, value in whole.items() if key != column}]
        )
        if column in ("verb", "status"):
            refused(without, f"no column {column}")
            refused(study_of(tmp_path / "null", [whole, whole | {column: None}]), f"a row without {column}")
        other = 3.5 if isinstance(whole[column], str) else "text"
        folder = study_of(tmp_path / "other", [whole])
        rows = pl.read_parquet(folder / "rows.parquet").with_columns(pl.lit(other).alias(column))
        rows.write_parquet(folder / "rows.parquet")
        refused(folder, f"{column} is a column of")
    names = {quantity.name for quantity in find_verb(name).quantities}
    bare = {key: value for key, value in whole.items() if key not in names}
    refused(study_of(tmp_path / "bare", [bare]), f"found rows of {name} without any of")


def test_a_command_whose_cases_all_failed_and_one_without_cases(tmp_path: Path) -> None:
    (tmp_path / "attnlaw.json").write_text('{"verb": "limit"}')
    rows = pl.DataFrame({"verb": ["limit"], "status": ["failed"], "remark": ["too wide; choose less"]})
    rows.write_parquet(tmp_path / "rows.parquet")
    assert "1 of 1 tasks failed: too wide; choose less." in write_report([tmp_path]).read_text()
    rows.clear().write_parquet(tmp_path / "rows.parquet")
    refused(tmp_path, "rows.parquet: found no rows", "attnlaw limit")


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("learn", {"threshold_bayes": "x"}),
        ("learn", {"threshold_bayes": [1.0]}),
        ("learn", {"tokens": "x"}),
        ("learn", {"alpha": 0.0}),
        ("learn", {"atom_at_zero": "x"}),
        ("limit", {"kl_to_gaussian": "x"}),
        ("limit", {"other_scaling": 1.0}),
        ("limit", {"width": -1.0}),
        ("limit", {"path_squared_length": 1.0}),
    ],
)
def test_columns_of_other_kinds_and_settings_out_of_bounds(
    name: str, columns: dict[str, Any], tmp_path: Path
) -> None:
    row = {"verb": name, "status": "done", "task": "t0", **ROWS[name]}
    refused(study_of(tmp_path, [row | columns]), f"attnlaw {name}")


def test_paths_of_several_lengths_are_not_drawn(tmp_path: Path) -> None:
    path = {
        f"path_{name}{end}": [1.0, 2.0] for name in ("squared_length", "cosine") for end in ("", "_error")
    }
    row = {"verb": "limit", "status": "done", **ROWS["limit"], **path}
    rows = [{**row, "task": "t0"}, {**row, "task": "t1", "heads": 2, "path_cosine": [1.0]}]
    assert "Tokens from layer to layer" in write_report([study_of(tmp_path, rows)]).read_text(
        encoding="utf-8"
    )
    torn = [{**row, "task": "t1", "path_cosine": [1.0]}]
    assert "Tokens from layer to layer" not in write_report([study_of(tmp_path, torn)]).read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("sign", [-1.0, 0.0])
def test_distances_that_are_nowhere_positive_have_no_figure(sign: float, tmp_path: Path) -> None:
    rows = [
        {"verb": "limit", "status": "done", "task": f"t{width:g}x{heads}", **ROWS["limit"]}
        | {"width": width, "heads": heads, "kl_to_gaussian": sign, "kl_to_gaussian_error": 1.0}
        | {"kl_to_limit": sign}
        for width in (4.0, 8.0)
        for heads in (1, 2)
    ]
    source = write_report([study_of(tmp_path, rows)]).read_text(encoding="utf-8")
    assert "<h3>Wasserstein-1 distance to the limit</h3>" in source
    assert "<h3>KL divergence to" not in source


@pytest.mark.parametrize(
    "column", [b"x", {"a": 1}, date(2020, 1, 1), [[1.0]]], ids=["bytes", "struct", "date", "nest"]
)
def test_columns_of_types_that_no_study_writes(column: Any, tmp_path: Path) -> None:
    row = {"verb": "learn", "status": "done", "task": "t0", **ROWS["learn"]}
    folder = study_of(tmp_path, [row])
    path = folder / "rows.parquet"
    pl.read_parquet(path).with_columns(pl.Series("strange", [column])).write_parquet(path)
    refused(folder, "strange is a column of", "attnlaw learn")


@pytest.mark.parametrize(
    "columns",
    [
        {"step": ["x"], "model": ["m"]},
        {"step": [1], "model": [3]},
        {"step": [1], "model": ["m"], "alpha_qk": ["x"]},
    ],
)
def test_steps_that_are_damaged(columns: dict[str, list[Any]], tmp_path: Path) -> None:
    refused(monitored(tmp_path, columns), "steps.parquet", "is a column of")


def test_steps_that_diverged_are_shown_as_missing(tmp_path: Path) -> None:
    rows = {"step": [0, 1], "model": ["m", "m"], "alpha_qk": [2.0, NAN], "log10_edelman": [1.0, INFINITY]}
    columns = page_rows(write_report([monitored(tmp_path, rows)]))
    assert columns["alpha_qk"] == [2.0, None]
    assert columns["log10_edelman"] == [1.0, None]


def test_names_that_are_too_long_are_told(tmp_path: Path) -> None:
    refused(tmp_path / ("a" * 5000), "File name too long")
