"""`attnlaw.audit` from Python: sources, tables, files."""

import csv
import inspect
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load_file

import attnlaw
from attnlaw.analysis.audit.rows import log10
from attnlaw.analysis.fit.summary import null_test_sentence
from attnlaw.core.tables import write_csv
from attnlaw.render.model_names import model_names
from attnlaw.theory.bounds import BOUNDS
from attnlaw.theory.bounds.proxies import proxies
from attnlaw.verbs.audit import VERB

TINY = "examples/tiny-decoder"


@pytest.fixture(scope="module", name="tiny")
def _tiny(request):
    return attnlaw.audit(request.config.rootpath / TINY, jobs=1)


def test_number_of_threads_does_not_change_a_bit(tiny, request):
    again = attnlaw.audit(request.config.rootpath / TINY, jobs=2)
    for table in ("matrices", "spectra", "layers"):
        assert getattr(again, table).equals(getattr(tiny, table))


def test_values_agree_with_a_dense_svd_of_the_formed_products(tiny, request):
    weights = load_file(request.config.rootpath / TINY / "model.safetensors")
    fused = weights["transformer.h.2.attn.c_attn.weight"].astype(float)
    query, key, value = np.split(fused, 3, axis=1)
    output = weights["transformer.h.2.attn.c_proj.weight"].astype(float)
    head = slice(32, 64)
    dense = {"qk": query[:, head] @ key[:, head].T, "vo": value[:, head] @ output[head]}
    for kind, product in dense.items():
        place = (pl.col("layer") == 2) & (pl.col("head") == 1) & (pl.col("kind") == kind)
        row = tiny.matrices.row(by_predicate=place, named=True)
        values = tiny.spectra.row(by_predicate=place, named=True)["singular_values"]
        reference = np.linalg.svd(product, compute_uv=False)[:32]
        assert np.abs(values - reference).max() <= 1e-12 * reference[0]
        # Sums of 128^2 terms: relative rounding at most 128^2 eps.
        assert row["norm_21"] == pytest.approx(np.linalg.norm(product, axis=0).sum(), rel=4e-12)
        assert row["norm_11"] == pytest.approx(np.abs(product).sum(), rel=4e-12)
        assert row["frobenius_norm"] == pytest.approx(np.linalg.norm(product), rel=4e-12)


def test_state_dict_and_module_give_the_rows_of_the_file():
    module = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True), 2
    )
    by_module = attnlaw.audit(module)
    by_state = attnlaw.audit(module.state_dict(), heads=4)
    assert by_module.spectra.drop("model").equals(by_state.spectra.drop("model"))
    assert by_module.matrices["kind"].to_list() == 2 * (["qk"] * 4 + ["vo"] * 4 + ["ffn_in", "ffn_out"])


def test_unknown_activation_leaves_the_proxies_out_and_says_why():
    block = {"in_proj_weight": np.eye(12, 4), "out_proj.weight": np.eye(4)}
    model = attnlaw.open_model(block, heads=2)
    assert model.network.activation == "identity"
    state = {f"layers.0.{name}": tensor for name, tensor in _gated_layer().items()}
    odd = attnlaw.audit(_Configured(state, {"hidden_act": "wiggle", "num_attention_heads": 2}))
    assert odd.summary["proxies"] is None
    assert "wiggle" in odd.summary["warnings"][0]
    assert odd.matrices["p"].null_count() == odd.matrices.height


class _Configured:
    """A stand-in for a Hugging Face model: weights and a config."""

    def __init__(self, state, config):
        self._state, self._config = state, config

    def state_dict(self):
        return self._state

    @property
    def config(self):
        return self

    def to_dict(self):
        return self._config


def _gated_layer():
    attention = {f"self_attn.{name}_proj.weight": np.eye(4) for name in "qkvo"}
    return attention | {
        "mlp.gate_proj.weight": np.ones((8, 4)),
        "mlp.up_proj.weight": np.ones((8, 4)),
        "mlp.down_proj.weight": np.ones((4, 8)),
    }


def test_tables_leave_as_pandas_csv_and_notebook(tiny, tmp_path):
    frame = tiny.matrices.to_pandas()
    assert len(frame) == tiny.matrices.height
    assert list(frame.columns) == tiny.matrices.columns
    read = pl.read_csv(write_csv(tiny.matrices, tmp_path / "rows.csv"))
    assert read["spectral_norm"].to_list() == tiny.matrices["spectral_norm"].to_list()
    assert "<table" in tiny._repr_html_()


def test_no_text_of_a_csv_is_a_formula(tiny, tmp_path, monkeypatch):
    """Numbers stay numbers; a name of a directory is a name, also where a shell would read it otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    names = ["=1+1", "+a", "-a", "@a", "\ta", "plain", "a=b"]
    matrices = tiny.matrices.head(len(names)).with_columns(model=pl.Series(names), log10_scale=-1.0)
    path = write_csv(matrices, "~/rows.csv")
    with (tmp_path / path).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["'=1+1", "'+a", "'-a", "'@a", "'\ta", "plain", "a=b"]
    assert {row["log10_scale"] for row in rows} == {"-1.0"}
    assert {row["stack"] for row in rows} == {""}


def test_two_audits_add_up(tiny):
    both = tiny + tiny
    assert both.matrices.height == 2 * tiny.matrices.height
    assert [case["model"] for case in both.to_json()] == [tiny.summary["model"]] * 2
    assert both[1].summary == tiny.summary


def test_models_of_one_name_stay_apart(tiny):
    three, name = tiny + tiny + tiny, tiny.summary["model"]
    assert model_names(three) == [name, f"{name} (2)", f"{name} (3)"]
    for table in (three.matrices, three.spectra, three.layers):
        assert table["case"].unique(maintain_order=True).to_list() == [0, 1, 2]
    named = attnlaw.audit(
        {"in_proj_weight": np.eye(12, 4), "out_proj.weight": np.eye(4)}, heads=2, name="mine"
    )
    assert named.summary["model"] == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("work", [attnlaw.audit, attnlaw.fit])
def test_layers_and_kinds_may_be_a_number_and_a_list(work, request):
    path = request.config.rootpath / TINY
    matrices = work(path, layers=0, only=["qk", "vo"]).record.matrices
    assert matrices.equals(work(path, layers="0", only="qk,vo").record.matrices)
    assert matrices.select("layer", "kind").rows() == [(0, "qk")] * 4 + [(0, "vo")] * 4
    assert {"layers", "only", "jobs"} <= inspect.signature(work).parameters.keys()


def test_what_comes_back_is_shown_in_a_line(tiny, request):
    path = request.config.rootpath / TINY
    assert repr(tiny.record) == f"<Audit {path}: gpt2, 40 matrices>"
    assert repr(tiny).startswith(
        "<audit: OK No problems found (28 checks). OK Trained: 40 of 40 weight matrices"
    )
    assert repr(tiny + tiny).startswith("<audit: 2 cases: No problems found")
    rng = np.random.default_rng(0)
    block = {"in_proj_weight": rng.standard_normal((96, 32)), "out_proj.weight": 1e200 * np.eye(32)}
    fits = attnlaw.fit(block, heads=2, name="block")
    assert repr(fits.record) == "<Fits 2 random, 2 not fitted>"


def test_a_feed_forward_that_is_not_read_leaves_no_proxies():
    layer = {name: tensor for name, tensor in _gated_layer().items() if name.startswith("self_attn")}
    layer["mixer.experts.0.w1.weight"] = np.ones((8, 4))
    audit = attnlaw.audit({f"layers.0.{name}": tensor for name, tensor in layer.items()}, heads=2)
    assert audit.summary["proxies"] is None
    assert "no feed-forward" not in audit.summary["extensions"]
    assert any(
        "could not read some layers, or some feed-forward matrices" in warning
        for warning in audit.summary["warnings"]
    )


def test_an_assumed_activation_is_said(tmp_path):
    audit = attnlaw.audit({f"layers.0.{name}": tensor for name, tensor in _gated_layer().items()}, heads=2)
    assert "the config does not state the activation; attnlaw assumes silu" in audit.summary["warnings"]


def test_zero_matrices_are_drawn_or_left_out(tmp_path):
    layer = _gated_layer() | {"self_attn.o_proj.weight": np.zeros((4, 4))}
    some = attnlaw.audit({f"layers.0.{name}": tensor for name, tensor in layer.items()}, heads=2)
    assert (some.save(tmp_path / "some") / "report.html").stat().st_size > 0
    nothing = attnlaw.audit(
        {"in_proj_weight": np.zeros((12, 4)), "out_proj.weight": np.zeros((4, 4))}, heads=2
    )
    assert (nothing.save(tmp_path / "none") / "report.html").stat().st_size > 0


def test_a_file_in_the_way_loses_nothing(tiny, tmp_path):
    target = tmp_path / "taken"
    target.write_text("precious")
    with pytest.raises(
        attnlaw.InputError, match=r"taken: expected a directory, but this is a file; choose another name"
    ):
        tiny.save(target)
    assert target.read_text() == "precious"


def _encoder():
    """Two layers whose feed-forward matrices count as large from a shorter side of 256 on."""
    rng = np.random.default_rng(5)

    def decaying(rows, cols):
        return rng.standard_normal((rows, cols)) / np.sqrt(np.arange(1, cols + 1))

    names = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    state = {}
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        state |= {f"{layer}.{name}.weight": 0.1 * decaying(256, 256) for name in names}
        state[f"{layer}.intermediate.dense.weight"] = 0.02 * decaying(512, 256)
        state[f"{layer}.output.dense.weight"] = 0.1 * decaying(256, 512)
    return state


def test_approximate_audit_agrees_with_the_exact_one_within_its_errors(monkeypatch):
    """Errors beside every number that rests on an estimate, null without any."""
    monkeypatch.setattr("attnlaw.spectra.measure.LARGE", 256)
    state = _encoder()
    exact, estimated = attnlaw.audit(state, heads=8), attnlaw.audit(state, heads=8, approximate=True)
    large = pl.col("kind").str.starts_with("ffn")
    assert estimated.matrices.filter(large)["route"].to_list() == ["lanczos"] * 4
    assert estimated.spectra.filter(large)["singular_values"].null_count() == 4
    columns = estimated.matrices.columns[: estimated.matrices.columns.index("route") + 1]
    assert (
        estimated.matrices.filter(~large)
        .select(columns)
        .equals(exact.matrices.filter(~large).select(columns))
    )
    for table in ("matrices", "layers"):
        rows, other = getattr(exact, table), getattr(estimated, table)
        for error in (name for name in rows.columns if name.endswith("_error")):
            measured = table == "matrices" and error in columns
            # Of a state dict without norms only what no norm stands before is known as applied: FFN out.
            applied = {"spectral_norm_applied_error": 34, "log10_alpha_applied_error": other.height}
            # Norms of entries and Frobenius norms are not estimated, conditions are not known.
            sizes = ("frobenius_norm_error", "frobenius_norm_over_initial_error")
            exactly = (*sizes, "norm_11_error", "condition_error")
            applied |= dict.fromkeys(exactly, other.height)
            assert rows[error].null_count() == rows.height
            missing = applied.get(error, other.filter(~large).height if measured else 0)
            assert other[error].null_count() == missing
            gap = (other[name := error.removesuffix("_error")] - rows[name]).abs()
            # 15 degrees of freedom: beyond 6 once in 40,000; ranks are rounded.
            rounded = 0.5 if name == "numerical_rank" else 1e-9
            assert (gap <= 6 * other[error].fill_null(0.0) + rounded).drop_nulls().all()


def test_every_number_of_an_approximate_summary_has_an_error(monkeypatch):
    monkeypatch.setattr("attnlaw.spectra.measure.LARGE", 256)
    exact, estimated = (
        attnlaw.audit(_encoder(), heads=8, samples=1000, approximate=approximate).summary
        for approximate in (False, True)
    )

    def entries(summary):
        proxies = dict(summary["proxies"])
        return [*proxies.pop("fixed_p").values(), *proxies.values(), summary["proxy_over_sqrt_samples"]]

    assert len(entries(estimated)) == len(BOUNDS) + 1
    for entry, other in zip(entries(exact), entries(estimated), strict=True):
        assert set(entry) == {"log10"}
        assert abs(entry["log10"] - other["log10"]) <= 6 * other["error"] + 1e-9
    assert estimated["proxies"]["fixed_p"]["1"]["error"] > 1e-5
    for name in ("log10_alpha", "value_of_adaptivity"):
        assert exact[f"{name}_error"] is None
        value, other, error = (
            np.array(s) for s in (exact[name], estimated[name], estimated[f"{name}_error"])
        )
        assert (np.abs(value - other) <= 6 * error + 1e-9).all()


def _small():
    """An audit and fits that are quickly drawn."""
    rng = np.random.default_rng(0)
    state = {"in_proj_weight": rng.standard_normal((12, 4)), "out_proj.weight": rng.standard_normal((4, 4))}
    return attnlaw.audit(state, heads=2, name="m"), attnlaw.fit(state, heads=2, name="m")


@pytest.mark.slow
def test_the_result_of_another_verb_is_replaced_whole(tmp_path):
    audit, fits = _small()
    fits.save(tmp_path)
    tables = {"fits.parquet", "curves.parquet", "rows.parquet"}
    assert {path.name for path in tmp_path.iterdir()} == {*tables, "attnlaw.json", "report.html"}
    replace(audit, records=()).save(tmp_path)  # without records no laws are fitted
    assert not (tmp_path / "fits.parquet").exists()
    assert not (tmp_path / "curves.parquet").exists()
    about = {"verb": "audit", "version": attnlaw.__version__}
    assert json.loads((tmp_path / "attnlaw.json").read_text()).items() >= about.items()


@pytest.mark.parametrize("text", ['{"accuracy": 1}', "[]", "[1]", "mine", '{"model": "a", "proxies": {}}'])
def test_a_summary_of_somebody_else_is_refused(text, tiny, tmp_path):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(attnlaw.InputError, match=r"has a .* that attnlaw did not write; choose an empty"):
        tiny.save(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("summary.json", text)]


@pytest.mark.slow
def test_fits_of_an_earlier_audit_do_not_stay(tmp_path):
    """Rows are replaced, so laws fitted to the rows before must go too."""
    fitted, bare = (
        attnlaw.audit("examples/tiny-decoder", layers="0", only="qk", no_laws=no_laws)
        for no_laws in (False, True)
    )
    fitted.save(tmp_path)
    assert (tmp_path / "fits.parquet").exists()
    bare.save(tmp_path)
    assert not (tmp_path / "fits.parquet").exists()
    assert not (tmp_path / "curves.parquet").exists()


def test_every_matrix_is_compared_with_noise(tiny):
    """The same draws and the same numbers as in the fits; the summary counts them."""
    names = ["random_p_value", "outliers", "null_draws"]
    assert tiny.matrices.select(names).equals(tiny.for_saving().fits.select(names))
    fits = attnlaw.fit("examples/tiny-decoder").values()
    counts = {name.removeprefix("not_random_"): fits[name] for name in fits if name.startswith("not_random_")}
    assert tiny.summary["not_random"] == counts
    quantities = tiny.summary["quantities"]
    assert (quantities["not_random_rejected"], quantities["not_random_tested"]) == (40, 40)
    expected = "40 of 40 weight matrices differ from random ones (chance alone: about 0.4)."
    assert null_test_sentence(tiny.summary["not_random"]) == expected


def test_what_cannot_be_compared_with_noise_is_null(monkeypatch):
    """Approximate spectra and zeros; the others are tested."""
    monkeypatch.setattr("attnlaw.spectra.measure.LARGE", 256)
    audit = attnlaw.audit(_encoder(), heads=8, approximate=True)
    large = pl.col("route") == "lanczos"
    assert audit.matrices.filter(large)["random_p_value"].null_count() == 4
    assert audit.matrices.filter(~large)["random_p_value"].null_count() == 0
    assert audit.summary["not_random"]["tested"] == 32
    nothing = {"in_proj_weight": np.zeros((12, 4)), "out_proj.weight": np.zeros((4, 4))}
    summary = attnlaw.audit(nothing, heads=2).summary
    assert summary["not_random"] == {"tested": 0, "rejected": 0, "expected": 0.0, "p_value": 1.0}
    assert null_test_sentence(summary["not_random"]) is None


@pytest.mark.slow
def test_the_null_test_imports_neither_statistics_nor_images():
    """They take longer to import than a small audit to run; declaring a verb imports numpy alone."""
    light = (
        "import sys, attnlaw.verbs.audit, attnlaw.verbs.fit; "
        "print({*sys.modules} & {'scipy.linalg', 'polars'})"
    )
    audit = (
        "import sys, attnlaw; attnlaw.audit('examples/tiny-decoder'); "
        "print({*sys.modules} & {'scipy.stats', 'scipy.ndimage'})"
    )
    for code in (light, audit):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "set()"


def test_the_summary_has_its_keys_and_the_shape_of_every_verb(tiny, request):
    shape = ["verb", "settings", "quantities", "status", "remark", "tables", "version"]
    assert list(tiny.summary)[:7] == shape
    keys = {"model", "family", "layers", "distinct_layers", "hidden_size", "heads", "matrices", "activation"}
    keys |= {"proxies", "per_application", "log10_alpha", "log10_alpha_error", "value_of_adaptivity"}
    keys |= {"value_of_adaptivity_error", "rank_count", "extensions", "warnings", "meaning"}
    keys |= {"not_random", "norms", "norms_unknown", "log10_alpha_applied", "findings", "rejected_share"}
    keys |= {"median_outliers", "median_effective_rank_qk", "log10_amplification", "atlas", "logits", "codes"}
    assert keys | {"attnlaw_version"} == tiny.summary.keys() - set(shape)
    path = str(request.config.rootpath / TINY)
    assert tiny.summary["settings"]["model"] == tiny.summary["model"] == path
    entry, proxies = tiny.summary["quantities"]["log10_edelman"], tiny.summary["proxies"]
    assert entry == {"value": proxies["edelman"]["log10"], "error": None}
    fixed = tiny.summary["quantities"]["log10_fixed_p_2"]["value"]
    assert fixed == proxies["fixed_p"]["2"]["log10"]
    some = attnlaw.audit(path, layers=0)
    assert some.summary["remark"] == "no proxies: the proxies need every matrix of every layer"
    assert list(VERB.schema) == tiny.rows.columns


def build_albert(layers, groups):
    """Layers that are shared: the weights of a group serve several depths."""
    rng = np.random.default_rng(0)
    names = ("attention.query", "attention.key", "attention.value", "attention.dense")
    shapes = {f"{name}.weight": (8, 8) for name in names} | {
        "ffn.weight": (16, 8),
        "ffn_output.weight": (8, 16),
    }
    state = {
        f"encoder.albert_layer_groups.{group}.albert_layers.0.{name}": rng.standard_normal(shape)
        for group in range(groups)
        for name, shape in shapes.items()
    }
    config = {"model_type": "albert", "num_attention_heads": 2, "num_hidden_layers": layers}
    sizes = {"num_hidden_groups": groups, "hidden_size": 8, "intermediate_size": 16, "hidden_act": "gelu"}
    return _Configured(state, config | sizes)


@pytest.mark.parametrize(("layers", "groups"), [(5, 1), (6, 2)])
def test_a_summary_has_an_alpha_for_each_application_of_a_shared_layer(layers, groups, tmp_path):
    audit = attnlaw.audit(build_albert(layers, groups), no_laws=True)
    bounds = proxies(audit.record.tree)
    assert audit.layers.height == groups
    alphas = audit.summary["log10_alpha"]
    assert alphas == [log10(alpha).value for alpha in bounds.log_alpha]
    assert (len(alphas), alphas[-1]) == (layers, 0.0)
    # A layer's own alpha is the sum over its applications.
    assert 10 ** audit.layers["log10_alpha"][0] == pytest.approx(
        sum(10**alpha for alpha, layer in zip(alphas, audit.applications["layer"], strict=True) if layer == 0)
    )
    assert audit.summary["per_application"] is not None
    assert attnlaw.load(audit.save(tmp_path)).summary == audit.summary


def test_a_model_in_memory_is_a_setting_too():
    """Rows call it by its name, or by what it is."""
    block = {"in_proj_weight": np.eye(12, 4), "out_proj.weight": np.eye(4)}
    settings = [attnlaw.audit(block, heads=2, **more).summary["settings"] for more in ({}, {"name": "mine"})]
    assert [case["model"] for case in settings] == ["dict", "mine"]
    first, second = attnlaw.audit([block, block], heads=2)
    assert first.matrices.equals(second.matrices)
