"""The growth study on a small made family: rows, exponents, plain findings; the list of miniatures."""

from __future__ import annotations

import builtins
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from checkpoints.small import bert_weights
from safetensors.numpy import save_file

pytestmark = pytest.mark.slow

EXPERIMENT = Path(__file__).resolve().parents[2] / "docs" / "experiments" / "family"
SIZES = [(depth, width, seed) for depth in (1, 2, 4) for width in (16, 32) for seed in (0, 1)]


@pytest.fixture
def family_study(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENT))
    yield importlib.import_module("family_study")
    sys.modules.pop("family_study", None)


@pytest.fixture
def bert_miniatures(family_study):
    yield importlib.import_module("bert_miniatures")
    sys.modules.pop("bert_miniatures", None)


def write_model(folder, depth, width, seed, gain):
    """A BERT checkpoint with heads of size 8 and Gaussian weights."""
    drawn = bert_weights(np.random.default_rng([depth, width, seed]), depth, width, gain)
    state = {name: weight / np.sqrt(width) for name, weight in drawn.items()}
    folder.mkdir(parents=True)
    save_file(state, folder / "model.safetensors")
    config = {"model_type": "bert", "hidden_size": width, "num_hidden_layers": depth, "hidden_act": "gelu"}
    (folder / "config.json").write_text(json.dumps(config | {"num_attention_heads": width // 8}))
    (folder / "losses.csv").write_text("step,loss\n1,4.5\n2,1.25\n")


def made_family(folder, gain):
    for depth, width, seed in SIZES:
        write_model(folder / f"depth-{depth}-width-{width}-seed-{seed}", depth, width, seed, gain)
    (folder / "losses.csv").write_text("depth,width,seed,step,loss\n1,16,0,2,1.25\n")
    return folder


def run(module, monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", [module.__file__, *map(str, arguments)])
    module.main()
    return capsys.readouterr().out


def test_a_family_that_counts_ranks_is_told_so(family_study, tmp_path, monkeypatch, capsys):
    """Large weights: all p* = 0, and the exponents are those of L (2 (N/8) sqrt(8 N) + 2 N) + sqrt(L)."""
    monkeypatch.setattr(family_study, "figures", lambda *_: {})
    weights, out = made_family(tmp_path / "weights", gain=3.0), tmp_path / "rows"
    said = run(family_study, monkeypatch, capsys, "--weights", weights, "--out", out)
    assert "p* = 0 for every matrix in 12 of 12 models" in said
    assert "arithmetic of the architecture" in said
    assert "in depth, against edelman: yes" in said
    models = pl.read_csv(out / "models.csv")
    assert [tuple(row) for row in models.select("depth", "width", "seed").iter_rows()] == sorted(SIZES)
    assert models["loss"].to_list() == [1.25] * 12
    L, N = models["depth"].to_numpy(), models["width"].to_numpy()
    count = L * (2 * N / 8 * np.sqrt(8 * N) + 2 * N) + np.sqrt(L)
    assert models["log10_spectrum_adaptive"].to_list() == pytest.approx(np.log10(count), rel=1e-12)
    matrices = pl.read_parquet(out / "matrices.parquet")
    assert matrices.height == models["matrices"].sum()
    assert "singular_values" not in matrices.columns
    assert (out / "losses.csv").read_text() == (weights / "losses.csv").read_text()
    again = run(family_study, monkeypatch, capsys, "--out", out)
    assert again == "".join(line for line in said.splitlines(True) if not line.startswith("auditing"))


def test_a_family_with_small_weights_says_where_the_index_moved(family_study, tmp_path, monkeypatch, capsys):
    saved = []
    monkeypatch.setattr(family_study, "save_chart", lambda chart, path: saved.append(path.stem) or path)
    weights, out = made_family(tmp_path / "weights", gain=0.35), tmp_path / "rows"
    said = run(family_study, monkeypatch, capsys, "--weights", weights, "--out", out)
    models, matrices = pl.read_csv(out / "models.csv"), pl.read_parquet(out / "matrices.parquet")
    moved = matrices.filter(pl.col("p") > 0)
    assert moved.height > 0
    assert "p* > 0 (matrices by depth of the model, layers above the matrix, and kind):" in said
    listed = [line.split(" above: ")[1] for line in said.splitlines() if " above: " in line]
    counted = [int(part.split()[1]) for line in listed for part in line.split(", ")]
    assert sum(counted) == moved.height
    assert f"p* = 0 for every matrix in {models['rank_count'].sum()} of 12 models" in said
    assert {"proxy_growth", "norm_growth_width", "spectrum_decay", "contributions_deepest"} <= set(saved)
    exponents = pl.read_csv(out / "exponents.csv").filter(proxy="spectrum_adaptive", variable="depth")
    slope = np.polyfit(np.log10(models["depth"]), models["log10_spectrum_adaptive"], 1)[0]
    assert exponents["exponent"].item() == pytest.approx(slope, rel=1e-9)  # a full grid


def test_a_directory_without_models_is_refused(family_study, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="holds no directories named depth-D-width-W-seed-S"):
        run(family_study, monkeypatch, capsys, "--weights", tmp_path, "--out", tmp_path / "out")


def test_the_miniatures_are_the_24_of_the_paper(bert_miniatures):
    names = bert_miniatures.NAMES
    assert len(set(names)) == 24
    assert names[0] == "google/bert_uncased_L-2_H-128_A-2"
    assert names[-1] == "google/bert_uncased_L-12_H-768_A-12"
    assert "google/bert_uncased_L-6_H-512_A-8" in names


def test_missing_miniatures_and_a_missing_hub_are_one_line(bert_miniatures, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="24 of 24 models are missing, first bert_uncased_L-2_H-128_A-2"):
        bert_miniatures.local(tmp_path)
    real_import = builtins.__import__

    def without_hub(name, *rest):
        if name.startswith("huggingface_hub"):
            raise ModuleNotFoundError(name)
        return real_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_hub)
    with pytest.raises(SystemExit, match="huggingface_hub is not installed; pip install huggingface_hub"):
        bert_miniatures.download()


def test_an_unreachable_hub_is_one_line(bert_miniatures, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def refuse(*_args, **_options):
        raise OSError("cannot reach the hub\nlong explanation")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(SystemExit, match=r"^google/bert.*cannot be downloaded \(cannot reach the hub\)"):
        bert_miniatures.download()


def growth_rows():
    """One row per model, and one per matrix, of depth 1, 2 by width 8, 16 by two seeds."""
    rng = np.random.default_rng(0)
    sizes = [
        {"depth": depth, "width": width, "seed": seed}
        for depth in (1, 2)
        for width in (8, 16)
        for seed in (0, 1)
    ]
    proxies = ("spectrum_adaptive", "edelman", "trauger_tewari")
    models = [size | {f"log10_{name}": float(rng.random()) for name in proxies} for size in sizes]
    norms = ("spectral_norm", "frobenius_norm", "norm_21")
    matrices = [
        size | {"kind": kind} | {name: float(rng.random()) for name in norms}
        for size in sizes
        for kind in ("qk", "qk", "vo", "ffn_in")
    ]
    return pl.DataFrame(models), pl.DataFrame(matrices)


def panels_of(chart):
    """The rows of every panel, in order, and the whole specification as text."""
    spec = chart.to_dict()

    def rows_of(part):
        if isinstance(part, dict):
            inline_rows = [json.loads(part["data"]["values"])] if "values" in part.get("data", {}) else []
            return inline_rows + [rows for value in part.values() for rows in rows_of(value)]
        return [rows for value in part for rows in rows_of(value)] if isinstance(part, list) else []

    return rows_of(spec), json.dumps(spec, ensure_ascii=False)


@pytest.mark.parametrize("variable", ["depth", "width"])
def test_norm_growth_shows_medians_over_the_matrices_of_a_model(family_study, variable):
    _, matrices = growth_rows()
    panels, _ = panels_of(family_study.norm_growth(matrices, variable))
    assert len(panels) == 3 * 3
    first = {(row["depth"], row["width"], row["seed"]): row["spectral_norm"] for row in panels[0]}
    heads = matrices.filter(kind="qk", depth=2, width=16, seed=1)
    assert first[2, 16, 1] == heads["spectral_norm"].median()
    assert len(first) == 8
