"""An audit of the first experts of each layer: `--experts N`."""

import json
import shutil

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

import attnlaw
from attnlaw.analysis.audit import AuditOptions
from attnlaw.analysis.audit.audit import audit_model, model_findings, select_matrices
from attnlaw.analysis.audit.units import audit_from_units, measure_unit, selected_units
from attnlaw.checkpoints.settings import Arithmetic, ModelSettings
from attnlaw.command.app import run
from attnlaw.core.errors import InputError

LAYERS, EXPERTS, WIDTH, INNER = 2, 4, 16, 12


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """A Mixtral with four experts. Experts 1 and 3 of layer 1 have one matrix in common."""
    rng = np.random.default_rng(0)
    state = {}
    for layer in range(LAYERS):
        start = f"model.layers.{layer}"
        for name in ("q", "k", "v", "o"):
            state[f"{start}.self_attn.{name}_proj.weight"] = rng.standard_normal((WIDTH, WIDTH))
        for name in ("input_layernorm", "post_attention_layernorm"):
            state[f"{start}.{name}.weight"] = np.ones(WIDTH)
        state[f"{start}.block_sparse_moe.gate.weight"] = rng.standard_normal((EXPERTS, WIDTH))
        for expert in range(EXPERTS):
            for name, shape in {"w1": (INNER, WIDTH), "w2": (WIDTH, INNER), "w3": (INNER, WIDTH)}.items():
                state[f"{start}.block_sparse_moe.experts.{expert}.{name}.weight"] = rng.standard_normal(shape)
    twin = "model.layers.1.block_sparse_moe.experts.{}.w1.weight"
    state[twin.format(3)] = state[twin.format(1)]
    folder = tmp_path_factory.mktemp("mixture")
    narrow = {name: tensor.astype(np.float32) for name, tensor in state.items()}
    save_file(narrow, folder / "model.safetensors")
    config = {
        "model_type": "mixtral",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "hidden_act": "silu",
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_first_experts_have_the_rows_of_a_whole_audit(mixture):
    whole, some = attnlaw.audit(mixture), attnlaw.audit(mixture, experts=2)
    kept = whole.matrices.filter(pl.col("expert").is_null() | (pl.col("expert") < 2))
    assert whole.matrices["expert"].max() == EXPERTS - 1
    assert some.matrices.height == kept.height < whole.matrices.height
    same = ["layer", "kind", "head", "expert", "spectral_norm", "norm_11", "random_p_value"]
    assert some.matrices.select(same).equals(kept.select(same))


def test_no_proxy_is_reported_and_every_screen_says_what_was_measured(mixture, tmp_path, capsys):
    assert attnlaw.audit(mixture).summary["proxies"]["spectrum_adaptive"] is not None
    summary = attnlaw.audit(mixture, experts=2).summary
    assert summary["proxies"] is None
    assert any("2 of 4 experts measured (--experts 2)" in warning for warning in summary["warnings"])
    out = tmp_path / "out"
    assert run(["audit", str(mixture), "--experts", "2", "--no-laws", "--out", str(out)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 of 4 experts measured (--experts 2)" in shown
    # The line below the path must not say that the model has only two experts.
    assert "2 measured experts per layer" in shown
    assert run(["audit", str(mixture)]) == 0
    assert "· 4 experts per layer ·" in " ".join(capsys.readouterr().out.split())
    assert "2 of 4 experts measured (--experts 2)" in (out / "report.html").read_text(encoding="utf-8")


def test_rules_that_need_every_expert_do_not_look(mixture):
    rules = {finding.rule for finding in model_findings(attnlaw.audit(mixture))}
    assert {"identical-tensors", "untrained-model"} <= rules
    some = attnlaw.audit(mixture, experts=2)
    assert not {"identical-tensors", "untrained-model", "untrained-layer"} & {
        finding.rule for finding in model_findings(some)
    }
    (warning,) = (text for text in some.summary["warnings"] if "experts measured" in text)
    assert "identical-tensors, untrained-layer and untrained-model need every expert" in warning
    assert some.summary["findings"]["rules"] == attnlaw.audit(mixture).summary["findings"]["rules"] - 3


@pytest.mark.parametrize("experts", [4, 9])
def test_all_experts_are_a_whole_audit(mixture, experts):
    some = attnlaw.audit(mixture, experts=experts).summary
    assert some["proxies"]["spectrum_adaptive"] is not None
    assert not any("experts measured" in warning for warning in some["warnings"])


def test_units_of_workers_give_the_same_audit(mixture):
    settings, options = ModelSettings(model=mixture), AuditOptions(experts=2)
    model = settings.open()
    here = audit_model(model, select_matrices(settings, options, model.network, Arithmetic()), options)
    units = selected_units(settings, options, Arithmetic())
    assert {unit.location.expert for unit in units} == {None, 0, 1}
    tables = [measure_unit(settings, Arithmetic(), unit.first, "")[1] for unit in units]
    assert audit_from_units(settings, options, Arithmetic(), tables).matrices.equals(here.matrices)


def test_a_model_without_experts_is_one_line():
    state = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": np.eye(4)}
    with pytest.raises(InputError, match="this model has no experts; leave"):
        attnlaw.audit(state, heads=2, experts=1)


def test_tensors_that_are_no_matrices_are_checked_although_experts_are_left_out(mixture, tmp_path):
    """No matrix uses an embedding, so only the checks read it."""
    shutil.copytree(mixture, tmp_path / "copy")
    state = load_file(mixture / "model.safetensors")
    state["model.embed_tokens.weight"] = np.full((40, WIDTH), np.nan, np.float32)
    save_file(state, tmp_path / "copy" / "model.safetensors")
    findings = attnlaw.audit(tmp_path / "copy", experts=2).findings
    bad = findings.filter(pl.col("rule") == "non-finite")["tensor"].to_list()
    assert bad == ["model.embed_tokens.weight"]
    tensors = attnlaw.audit(mixture, experts=2).record.subject.evidence.tensors
    assert not any(".experts.3." in (tensor.location.tensor or "") for tensor in tensors)
