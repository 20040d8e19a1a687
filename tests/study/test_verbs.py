"""The verbs of studies: their rows are what the commands print."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from checkpoints.small import DECODER_MAP
from command.in_process import invoke
from oracles.scaling_laws import leading_error, scaling_law
from safetensors.numpy import load_file, save_file
from scipy import stats
from theory.limit.limit_covariances import gaussian_covariance

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.core.quantity import cells_to_json
from attnlaw.study import read_study, run
from attnlaw.theory.limit.depth import Depth, stack_law
from attnlaw.theory.limit.distance import distances, kernel_kl
from attnlaw.theory.limit.inputs import RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer, ScoreSettings
from attnlaw.theory.limit.mixture import gaussian_law
from attnlaw.theory.limit.sampler import output_law
from attnlaw.verbs import find_verb

TINY = Path("examples/tiny-decoder").absolute()
MAP = DECODER_MAP.replace("mlp.c_fc", "mlp.first").replace("c_proj", "last")


def rows(folder: Path, text: str) -> pl.DataFrame:
    file = folder / "study.toml"
    file.write_text(text)
    report = run(read_study(file), folder / "out")
    assert not report.failures
    return attnlaw.load(folder / "out").rows


def printed(*arguments: str) -> Any:
    return json.loads(invoke(*arguments, "--json").stdout)


@pytest.mark.slow
def test_a_map_and_an_adapter_reach_audits_and_fits(tmp_path: Path) -> None:
    """Names of one's own and LoRA on one weight are the merged weights under known names."""
    tensors = load_file(TINY / "model.safetensors")
    rng = np.random.default_rng(4)
    down, up = rng.standard_normal((2, 128)), rng.standard_normal((512, 2))
    merged, custom_folder = tmp_path / "merged", tmp_path / "own"
    for folder in (merged, custom_folder, tmp_path / "adapter"):
        folder.mkdir()
        shutil.copy(TINY / "config.json", folder)
    prefix = next(name.removesuffix("h.0.mlp.c_fc.weight") for name in tensors if "h.0.mlp.c_fc.w" in name)
    changed = tensors[f"{prefix}h.0.mlp.c_fc.weight"].astype(np.float64) + 3 * (up @ down).T
    save_file(tensors | {f"{prefix}h.0.mlp.c_fc.weight": changed}, merged / "model.safetensors")
    renamed = {
        name.replace("c_fc", "first").replace("c_proj", "last"): value for name, value in tensors.items()
    }
    save_file(renamed, custom_folder / "model.safetensors")
    at = f"base_model.model.{prefix}h.0.mlp.first"
    lora = {f"{at}.lora_A.weight": down, f"{at}.lora_B.weight": up}
    save_file(lora, tmp_path / "adapter" / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": 2,
        "lora_alpha": 6,
        "fan_in_fan_out": True,
        "target_modules": ["first"],
    }
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "own.toml").write_text(MAP.replace("h.{layer}.", f"{prefix}h.{{layer}}."))
    text = 'verb = ["audit", "fit"]\n[fixed]\nonly = "ffn"\nlayers = "0"\n'
    rows(tmp_path, text + 'model = "own"\nmap = "own.toml"\nadapter = "adapter"\n')
    audits, fitted = attnlaw.load(tmp_path / "out"), attnlaw.load(tmp_path / "out" / "fit")
    expected = attnlaw.audit(merged, only="ffn", layers="0").matrices["spectral_norm"].to_list()
    # The same float64 products, summed in another order.
    assert audits.matrices["spectral_norm"].to_list() == pytest.approx(expected, rel=1e-12)
    fits = attnlaw.fit(merged, only="ffn", layers="0").fits
    assert fitted.fits["law"].to_list() == fits["law"].to_list()
    assert fitted.fits["wasserstein"].to_list() == pytest.approx(fits["wasserstein"].to_list(), rel=1e-9)
    plain = attnlaw.fit(TINY, only="ffn", layers="0").fits["wasserstein"]
    assert plain[0] != pytest.approx(fits["wasserstein"][0], rel=1e-3)
    assert plain[1] == pytest.approx(fits["wasserstein"][1], rel=1e-9)  # without an adapter of its own


@pytest.mark.slow
def test_learn_is_what_the_command_prints(tmp_path: Path) -> None:
    """With two tokens a sample shows three entries: thresholds in samples are a third of those for one."""
    text = 'verb = "learn"\n[fixed]\nnoise = 0.5\nthresholds = true\nalpha = 0.1\ntarget_rank = 0.25\n'
    (row,) = rows(tmp_path, text + "tokens = 2\n").to_dicts()
    options = ("--target-rank", "0.25", "--noise", "0.5", "--thresholds")
    case = printed("learn", "--alpha", "0.1", "--tokens", "2", *options)
    alone = printed("learn", "--alpha", "0.3", *options)["quantities"]
    assert row["threshold_interpolation"] == pytest.approx(alone["threshold_interpolation"] / 3, rel=1e-9)
    assert cells_to_json(find_verb("learn").quantities, row) == case["quantities"]
    assert row["relative_error"] == row["estimation_error"] / 1.25


def test_hardmax_has_no_thresholds(tmp_path: Path) -> None:
    text = 'verb = "learn"\n[fixed]\nthresholds = true\ntokens = 2\nstudent = "bayes"\n'
    text += '[grid]\noutput = ["hardmax", "softmax"]\n'
    row = rows(tmp_path, text).filter(output="hardmax").to_dicts()[0]
    names = {name for name in row if name.startswith("threshold_")} - {"threshold_error"}
    thresholds = {name: row[name] for name in names}
    assert len(thresholds) == 7
    assert set(thresholds.values()) == {None}


@pytest.mark.parametrize(
    ("setting", "unused"),
    [
        ("noise = 0.5", {"beta", "target_dimension"}),
        ('noise = 0.5\nstudent = "bayes"', {"beta", "weight_decay", "target_dimension"}),
        ("noise = 0.5\ntarget_exponent = 1.5\ntarget_dimension = 100", {"beta", "target_rank"}),
    ],
)
def test_a_row_does_not_state_what_its_problem_does_not_have(
    tmp_path: Path, setting: str, unused: set[str]
) -> None:
    (row,) = rows(tmp_path, f'verb = "learn"\n[fixed]\n{setting}\n').to_dicts()
    asked = {"alpha", "tokens", "output", "beta", "target_rank", "target_dimension", "noise", "weight_decay"}
    assert {name for name in asked if row[name] is None} == unused


def test_students_and_theory_have_the_same_settings(tmp_path: Path) -> None:
    text = 'verb = ["learn", "learn.simulate"]\n[fixed]\nsimulate = 10\nalpha = 0.3\nnoise = 0.5\n'
    names = ("alpha", "tokens", "output", "beta", "target_rank", "target_dimension", "noise", "weight_decay")
    (theory,) = rows(tmp_path, text).select(names).rows()
    (trained,) = attnlaw.load(tmp_path / "out").simulation.rows.select(names).rows()
    assert theory == trained == (0.3, 1, "linear", None, 0.5, None, 0.5, 0.1)


@pytest.mark.slow
def test_a_trained_student_is_what_the_command_prints(tmp_path: Path) -> None:
    text = 'verb = "learn.simulate"\n[fixed]\nsimulate = 20\nalpha = 0.3\nnoise = 0.5\nweight_decay = 0.6\n'
    frame = rows(tmp_path, text + "[run]\nseeds = 2\n")
    assert frame["seed"].n_unique() == frame["estimation_error"].n_unique() == 2
    for row, case in zip(frame.to_dicts(), attnlaw.load(tmp_path / "out"), strict=True):
        options = ["--simulate", "20", "--alpha", "0.3", "--noise", "0.5", "--weight-decay", "0.6"]
        options += ["--seeds", "1", "--seed", str(row["seed"])]
        _, trained = printed("learn", *options)
        assert row["estimation_error"] == trained["quantities"]["estimation_error"]["value"]
        assert row["samples"] == trained["quantities"]["samples"] == 120
        assert case.eigenvalues.height == 20
        assert case.eigenvalues["eigenvalue"].sum() / 20 == pytest.approx(row["trace"], rel=1e-12)


@pytest.mark.slow
def test_a_law_is_what_the_command_prints(tmp_path: Path) -> None:
    text = 'verb = "limit"\n[fixed]\ndraws = 2000\ntokens = 3\n[grid]\nwidth = [16, inf]\n'
    frame = rows(tmp_path, text)
    assert frame["width"].to_list() == [16.0, float("inf")]
    for row, width in zip(frame.to_dicts(), ("16", "inf"), strict=True):
        options = ("--draws", "2000", "--tokens", "3", "--width", width, "--seed", str(row["seed"]))
        law = printed("limit", *options)["quantities"]
        for name in ("score_variance", "kurtosis", "kl_to_limit"):
            value = law[name]
            assert (row[name], row[f"{name}_error"]) == (
                (None, None) if value is None else tuple(value.values())
            )
    for case in attnlaw.load(tmp_path / "out"):
        density = case.densities
        step = density["y"][1] - density["y"][0]
        # The trapezium rule over four and a half deviations: what lies beyond is below 1e-3 for these laws.
        assert density["density"].sum() * step == pytest.approx(1.0, abs=1e-3)


def test_a_target_with_a_spike_is_what_the_command_prints(tmp_path: Path) -> None:
    text = 'verb = "learn"\n[fixed]\ntarget_spike = 8.0\nalpha = 0.4\nnoise = 0.5\nweight_decay = 0.6\n'
    (row,) = rows(tmp_path, text + "spectrum = true\n").to_dicts()
    options = ("--target-spike", "8", "--alpha", "0.4", "--noise", "0.5", "--weight-decay", "0.6")
    case = printed("learn", *options)
    assert (case["settings"]["target_rank"], case["settings"]["target_spike"]) == (0.5, 8.0)
    (outlier,) = case["quantities"]["outlier_locations"]
    assert row["outlier"] == outlier > row["top_edge"]
    density = attnlaw.load(tmp_path / "out").predicted_spectra.sort("x")
    x, height = density["x"].to_numpy(), density["density"].to_numpy()
    # 300 points that crowd at the edges: the trapezium rule errs by about 1/300^2, and a root's end by 1e-4.
    assert np.trapezoid(height, x) + row["atom_at_zero"] == pytest.approx(1.0, abs=1e-3)


def test_a_spectrum_is_kept_only_where_it_is_asked_for(tmp_path: Path) -> None:
    rows(tmp_path, 'verb = "learn"\n')
    assert attnlaw.load(tmp_path / "out").tables == {}


@pytest.mark.slow
def test_power_law_targets_are_those_of_the_scaling_law(tmp_path: Path) -> None:
    """N = n T(T+1)/2 observations: with two tokens alpha = 0.004 is N/d = 12."""
    text = (
        'verb = "learn"\n[fixed]\ntarget_exponent = 1.5\ntarget_dimension = 1000\nnoise = 0.5\ntokens = 2\n'
    )
    frame = rows(tmp_path, text + "[grid]\nalpha = [0.004, 0.008]\n")
    law = scaling_law(1.5, 1000, [12.0, 24.0], noise=0.5, weight_decay=0.1)
    # Both solve the same equations, apart here and together there, to residuals of about 1e-12.
    errors = [prediction.estimation_error.value for prediction in law.predictions]
    assert frame["estimation_error"].to_list() == pytest.approx(errors, rel=1e-9)
    assert frame["leading_error"].to_list() == pytest.approx(list(law.leading), rel=1e-9)
    assert frame["predicted_exponent"].to_list() == [law.predicted_exponent] * 2
    options = ("--target-exponent", "1.5", "--target-dimension", "1000", "--noise", "0.5", "--alpha", "0.004")
    options += ("--tokens", "2")
    error = printed("learn", *options)["quantities"]["estimation_error"]["value"]
    assert error == frame["estimation_error"][0]


@pytest.mark.parametrize(
    ("output", "student", "alpha", "is_known"),
    [
        ("linear", "bayes", 0.1 * 2 / 3, True),
        ("softmax", "bayes", 0.1, True),
        ("softmax", "factorized", 0.1, False),
        ("hardmax", "bayes", 0.1, False),
    ],
)
def test_the_leading_law_is_told_where_it_is_known(
    monkeypatch: pytest.MonkeyPatch, output: str, student: str, alpha: float, is_known: bool
) -> None:
    """Two tokens: 3 observations per sample with the linear output, 2 through softmax, so N/d = 4 in both."""
    monkeypatch.setattr("attnlaw.theory.learn.softmax.default_draws", lambda problem: 6)
    power = {"target_exponent": 1.5, "target_dimension": 20}
    prediction = attnlaw.learn(alpha=alpha, tokens=2, output=output, student=student, **power)
    expected = leading_error(1.5, [4.0], 0.0, "bayes")[0]
    assert prediction.leading_error == (pytest.approx(expected, rel=1e-12) if is_known else None)
    assert prediction.predicted_exponent == (-2.0 if is_known else None)


@pytest.mark.slow
def test_further_distances_of_a_law_are_those_of_the_library(tmp_path: Path) -> None:
    asked = 'scaling = "1/n"\nother_scaling = "1/sqrt(n)"\ngaussian = true\nkernel = true\n'
    text = f'verb = "limit"\n[fixed]\ndraws = 20000\nheads = 1\n{asked}[grid]\nwidth = [64, inf]\n'
    finite, infinite = rows(tmp_path, text).to_dicts()
    layer = AttentionLayer(RandomInputs(4), heads=1, width=64, scores=ScoreSettings(scaling="1/n"))
    law, other = (
        output_law(attention, 20_000, finite["seed"])
        for attention in (layer, AttentionLayer(RandomInputs(4), heads=1))
    )
    kl = distances(law, other).kl
    assert kl is not None
    assert (finite["kl_to_other_limit"], finite["kl_to_other_limit_error"]) == (kl.value, kl.error)
    # The limit of 1/n is Gaussian; the paper's recipe is biased upwards, by less than 0.01 at 20,000 draws.
    assert abs(infinite["kl_to_gaussian"]) < 1e-12
    assert finite["kl_to_limit"] < finite["kernel_kl_to_limit"] < finite["kl_to_limit"] + 0.01
    assert infinite["kernel_kl_to_limit"] is None
    # Two samples of their own normals: with common ones the estimate would be of another law.
    limit_draws = output_law(layer.at_width(np.inf), 20_000, finite["seed"]).draw(finite["seed"] + 1)
    assert finite["kernel_kl_to_limit"] == kernel_kl(law.draw(finite["seed"]), limit_draws)


def test_a_head_width_at_infinite_width_is_refused(tmp_path: Path) -> None:
    """The limit's heads are infinitely wide: a row that said otherwise would show another law's numbers."""
    text = 'verb = "limit"\n[fixed]\ndraws = 2000\nhead_width = 4\n[grid]\nwidth = [16{}]\n'
    message = r"head_width: found 4, but heads are infinitely wide in the limit \(width inf\); give finite"
    with pytest.raises(InputError, match=message):
        rows(tmp_path, text.format(", inf"))
    (row,) = rows(tmp_path, text.format("")).to_dicts()
    law = output_law(AttentionLayer(RandomInputs(4), heads=2, width=16, head_width=4), 2000, row["seed"])
    assert row["kurtosis"] == law.kurtosis().value


@pytest.mark.slow
def test_the_gaussian_of_the_same_variance_is_that_of_many_heads(tmp_path: Path) -> None:
    text = 'verb = "limit"\n[fixed]\ndraws = 20000\nheads = 2\ngaussian = true\n'
    (row,) = rows(tmp_path, text).to_dicts()
    covariance, _ = gaussian_covariance(AttentionLayer(RandomInputs(4)), 200_000, seed=0)
    law = output_law(AttentionLayer(RandomInputs(4), heads=2), 20_000, seed=1)
    kl = distances(law, gaussian_law(float(covariance[0, 0]))).kl
    assert kl is not None
    assert abs(row["kl_to_gaussian"] - kl.value) < 4 * np.hypot(row["kl_to_gaussian_error"], kl.error)


@pytest.mark.slow
def test_the_gaussian_of_a_law_with_a_mean_has_it_too(tmp_path: Path) -> None:
    """ReLU tokens pass a residual: their mean alone would be a divergence of mean^2 / (2 Var y) = 0.13."""
    shared = 'verb = "limit"\n[fixed]\ndraws = 5000\ngaussian = true\nresidual = true\nactivation = "relu"\n'
    (row,) = rows(tmp_path, shared).to_dicts()
    law = stack_law(Depth(AttentionLayer(RandomInputs(4, "relu")), residual=True), 5000, row["seed"]).law
    y = np.linspace(-12, 12, 4801)
    assert y[1] - y[0] < np.sqrt(law.variances.min()) / 4  # no normal is missed between two points
    p, mean = law.density(y), law.means.mean()
    q = stats.norm.logpdf(y, mean, np.sqrt(np.trapezoid(p * (y - mean) ** 2, y)))
    plain = np.trapezoid(p * (np.log(p) - q), y)
    # The verb's value is corrected for the bias of its draws, by about the square of its error over itself.
    assert row["kl_to_gaussian"] == pytest.approx(plain, abs=2 * row["kl_to_gaussian_error"])
    assert row["kl_to_gaussian_error"] < 0.01


def test_a_stack_has_its_path_in_the_row(tmp_path: Path) -> None:
    text = 'verb = "limit"\n[fixed]\ndraws = 500\ndepth = 3\nresidual = true\nwidth = "inf"\n'
    (row,) = rows(tmp_path, text).to_dicts()
    options = ["--draws", "500", "--depth", "3", "--residual", "--width", "inf", "--seed"]
    law = printed("limit", *options, str(row["seed"]))["quantities"]
    assert row["path_cosine"] == law["path_cosine"]["value"]
    assert row["path_squared_length_error"] == law["path_squared_length"]["error"]


@pytest.mark.slow
def test_an_atlas_is_a_data_set(tmp_path: Path) -> None:
    """Several checkpoints: summaries as rows, matrices, spectra and fits as tables of all of them."""
    for name in ("first", "second"):
        shutil.copytree(TINY, tmp_path / "models" / name)
    audit_rows = rows(tmp_path, 'verb = ["audit", "fit"]\n[grid]\nmodel = ["models/*"]\n')
    audits = [attnlaw.audit(tmp_path / "models" / name) for name in ("first", "second")]
    assert audit_rows["model"].to_list() == [audit.summary["model"] for audit in audits]
    proxy = audits[0].summary["proxies"]["spectrum_adaptive"]["log10"]
    assert audit_rows["log10_spectrum_adaptive"].to_list() == [proxy, proxy]
    assert audit_rows["log10_fixed_p_1"][0] == audits[0].summary["proxies"]["fixed_p"]["1"]["log10"]
    matrices = f"{tmp_path}/out/matrices.parquet"
    query = f"SELECT model, kind, median(stable_rank) FROM '{matrices}' GROUP BY ALL ORDER BY ALL"
    expected = [
        (audit.summary["model"], kind, audit.matrices.filter(kind=kind)["stable_rank"].median())
        for audit in audits
        for kind in sorted(set(audit.matrices["kind"]))
    ]
    assert duckdb.sql(query).fetchall() == expected
    assert attnlaw.load(tmp_path / "out").spectra.height == 2 * audits[0].spectra.height
    fits = attnlaw.load(tmp_path / "out" / "fit").rows
    laws = attnlaw.fit(tmp_path / "models" / "first").fits
    assert fits["matrix_count"].to_list() == [laws.height] * 2
    assert fits["random_count"][0] == (laws["law"] == "random").sum()
    names = [name for name in fits.columns if name.endswith("_count") and name != "matrix_count"]
    assert fits.select(pl.sum_horizontal(set(names) - {"rank_count", "head_count"})).row(0) == (laws.height,)
    query = f"""SELECT law, count(*) FROM '{tmp_path}/out/fit/fits.parquet' GROUP BY law ORDER BY law"""
    assert dict(duckdb.sql(query).fetchall()) == {k: 2 * n for k, n in laws["law"].value_counts().rows()}
