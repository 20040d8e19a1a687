"""The verbs of studies: their rows are what the commands print, and their keys are the commands' options."""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

import attnlaw
from attnlaw.auditing.fitting import fit_model
from attnlaw.cli import audit, fit, learn, limit
from attnlaw.cli.app import app
from attnlaw.study import read_study, run
from attnlaw.study.verb import Arguments
from attnlaw.study.verbs import VERBS

TINY = Path("examples/tiny-decoder").absolute()


def rows(folder: Path, text: str) -> pl.DataFrame:
    file = folder / "study.toml"
    file.write_text(text)
    report = run(read_study(file, VERBS), folder / "out")
    assert not report.failures
    return pl.read_parquet(folder / "out" / "rows" / "*.parquet")


def printed(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("verb", "command", "beyond"),
    [
        ("audit", audit.command, {"model", "map"}),  # MODEL is the command's argument, map_file its --map
        ("fit", fit.command, {"model"}),
        ("learn", learn.command, {"spectrum"}),
        ("learn.simulate", learn.command, {"sensing"}),
        ("limit", limit.command, {"head_width", "scaling", "other_scaling", "gaussian", "kernel"}),
    ],
)
def test_keys_are_the_options_of_the_command(verb: str, command: Any, beyond: set[str]) -> None:
    options = set(inspect.signature(command).parameters)
    assert set(Arguments(VERBS[verb]).types) - options == beyond


def test_learn_is_what_the_command_prints(tmp_path: Path) -> None:
    text = 'verb = "learn"\n[fixed]\nnoise = 0.5\nthresholds = true\nalpha = 0.3\ntarget_rank = 0.25\n'
    (row,) = rows(tmp_path, text).to_dicts()
    options = ("--alpha", "0.3", "--target-rank", "0.25", "--noise", "0.5", "--thresholds")
    found = printed("learn", *options)
    for name, value in found["prediction"].items():
        if name != "spectrum":
            assert row[name] == value
    assert row["atom_at_zero"] == found["prediction"]["spectrum"]["atom_at_zero"]
    assert row["relative_error"] == found["prediction"]["estimation_error"] / 1.25
    for name, value in found["thresholds"].items():
        assert row[f"threshold_{name}"] == value


def test_a_trained_student_is_what_the_command_prints(tmp_path: Path) -> None:
    text = 'verb = "learn.simulate"\n[fixed]\nsimulate = 20\nalpha = 0.3\nnoise = 0.5\nweight_decay = 0.6\n'
    found = rows(tmp_path, text + "[run]\nseeds = 2\n")
    assert found["seed"].n_unique() == found["estimation_error"].n_unique() == 2
    for row in found.to_dicts():
        options = ["--simulate", "20", "--alpha", "0.3", "--noise", "0.5", "--weight-decay", "0.6"]
        options += ["--seeds", "1", "--seed", str(row["seed"])]
        simulation = printed("learn", *options)["simulation"]
        assert row["estimation_error"] == simulation["estimation_error"]["mean"]
        assert row["samples"] == simulation["samples"] == 120
        eigenvalues = pl.read_parquet(tmp_path / "out" / row["eigenvalues_part"])["eigenvalue"]
        assert len(eigenvalues) == 20
        assert eigenvalues.sum() / 20 == pytest.approx(row["trace"], rel=1e-12)


def test_a_law_is_what_the_command_prints(tmp_path: Path) -> None:
    text = 'verb = "limit"\n[fixed]\ndraws = 2000\ntokens = 3\n[grid]\nwidth = [16, inf]\n'
    found = rows(tmp_path, text)
    assert found["width"].to_list() == [16.0, float("inf")]
    for row, width in zip(found.to_dicts(), ("16", "inf"), strict=True):
        options = ("--draws", "2000", "--tokens", "3", "--width", width, "--seed", str(row["seed"]))
        (law,) = printed("limit", *options)["rows"]
        for name in ("score_variance", "kurtosis", "kl_to_limit"):
            value = law[name]
            assert (row[name], row[f"{name}_error"]) == (
                (None, None) if value is None else tuple(value.values())
            )
    densities = pl.read_parquet(tmp_path / "out" / "tables" / "densities" / "*.parquet")
    for (_,), density in densities.group_by("task"):
        step = density["y"][1] - density["y"][0]
        # The trapezium rule over four and a half deviations: what lies beyond is below 1e-3 for these laws.
        assert density["density"].sum() * step == pytest.approx(1.0, abs=1e-3)


def test_a_stack_has_its_path_in_the_row(tmp_path: Path) -> None:
    text = 'verb = "limit"\n[fixed]\ndraws = 500\ndepth = 3\nresidual = true\nwidth = "inf"\n'
    (row,) = rows(tmp_path, text).to_dicts()
    options = ["--draws", "500", "--depth", "3", "--residual", "--width", "inf", "--seed"]
    (law,) = printed("limit", *options, str(row["seed"]))["rows"]
    assert row["path_cosine"] == [point["cosine"]["value"] for point in law["path"]]
    assert row["path_squared_length_error"] == [point["squared_length"]["error"] for point in law["path"]]


def test_an_atlas_is_a_data_set(tmp_path: Path) -> None:
    """Several checkpoints: summaries as rows, matrices, spectra and fits as partitioned data sets."""
    for name in ("first", "second"):
        shutil.copytree(TINY, tmp_path / "models" / name)
    every = rows(tmp_path, 'verb = ["audit", "fit"]\n[grid]\nmodel = ["models/*"]\n')
    found = every.filter(verb="audit")
    audits = [attnlaw.audit(tmp_path / "models" / name) for name in ("first", "second")]
    assert found["model"].to_list() == [audit.summary["model"] for audit in audits]
    proxy = audits[0].summary["proxies"]["spectrum_adaptive"]["log10"]
    assert found["log10_spectrum_adaptive"].to_list() == [proxy, proxy]
    assert found["log10_fixed_p_1"][0] == audits[0].summary["proxies"]["fixed_p"]["1"]["log10"]
    matrices = f"{tmp_path}/out/tables/matrices/*.parquet"
    query = f"SELECT model, kind, median(stable_rank) FROM '{matrices}' GROUP BY ALL ORDER BY ALL"
    expected = [
        (audit.summary["model"], kind, audit.matrices.filter(kind=kind)["stable_rank"].median())
        for audit in audits
        for kind in sorted(set(audit.matrices["kind"]))
    ]
    assert duckdb.sql(query).fetchall() == expected
    spectra = pl.scan_parquet(tmp_path / "out" / "tables" / "spectra" / "*.parquet").collect()
    assert spectra.height == 2 * audits[0].spectra.height
    fits = every.filter(verb="fit")
    laws = fit_model(tmp_path / "models" / "first").matrices
    assert fits["matrix_count"].to_list() == [laws.height] * 2
    assert fits["random_count"][0] == (laws["law"] == "random").sum()
    names = [name for name in fits.columns if name.endswith("_count") and name != "matrix_count"]
    assert fits.select(pl.sum_horizontal(set(names) - {"rank_count", "head_count"})).row(0) == (laws.height,)
    query = f"""SELECT law, count(*) FROM '{tmp_path}/out/tables/fits/*.parquet' GROUP BY law ORDER BY law"""
    assert dict(duckdb.sql(query).fetchall()) == {k: 2 * n for k, n in laws["law"].value_counts().rows()}
