"""What an audit says of a model as it is applied; what decides by chance stays on stored matrices."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers
from real_checkpoints import real_checkpoint
from safetensors.numpy import load_file
from scipy.linalg import svdvals

import attnlaw
from attnlaw.analysis.audit.remarks import norm_basis_sentence
from attnlaw.analysis.audit.rows import layer_table, matrix_table
from attnlaw.checkpoints.open import open_model
from attnlaw.numerics.logs import LN10
from attnlaw.spectra.measure import Selection, measure
from attnlaw.theory.bounds.proxies import proxies

pytestmark = pytest.mark.slow

TINY = "examples/tiny-decoder"
APPLIED = ("spectral_norm_applied", "spectral_norm_applied_error", "frobenius_norm_applied")


@pytest.fixture(scope="module")
def tiny() -> attnlaw.Result:
    return attnlaw.audit(TINY)


def tiny_by_hand(layer: int, head: int) -> dict[str, np.ndarray]:
    """QK, VO and the feed-forward matrix of the shipped decoder, multiplied out: gain, centring, weights."""
    tensors = {
        name: tensor.astype(np.float64) for name, tensor in load_file(f"{TINY}/model.safetensors").items()
    }
    prefix = next(name for name in tensors if name.endswith("h.0.ln_1.weight")).removesuffix("0.ln_1.weight")
    first_gain, two = (tensors[f"{prefix}{layer}.ln_{number}.weight"] for number in (1, 2))
    centre = np.eye(128) - np.full((128, 128), 1 / 128)
    query, key, value = np.split(tensors[f"{prefix}{layer}.attn.c_attn.weight"], 3, axis=1)
    span = slice(32 * head, 32 * head + 32)
    before = centre @ np.diag(first_gain)
    return {
        "qk": before @ query[:, span] @ (before @ key[:, span]).T,
        "vo": before @ value[:, span] @ tensors[f"{prefix}{layer}.attn.c_proj.weight"][span],
        "ffn_in": centre @ np.diag(two) @ tensors[f"{prefix}{layer}.mlp.c_fc.weight"],
    }


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (2, 3)])
def test_the_shipped_decoder_is_gain_centring_and_weights_multiplied_by_hand(tiny, layer, head):
    for kind, matrix in tiny_by_hand(layer, head).items():
        place = {"layer": layer, "kind": kind} | ({} if kind == "ffn_in" else {"head": head})
        (row,) = tiny.matrices.filter(**place).iter_rows(named=True)
        dense = svdvals(matrix)
        assert row["spectral_norm_applied"] == pytest.approx(dense[0], rel=1e-5)
        assert row["frobenius_norm_applied"] == pytest.approx(np.linalg.norm(matrix), rel=1e-5)
        values = tiny.spectra.filter(**place)["singular_values_applied"][0]
        if kind == "ffn_in":
            assert values is row["stable_rank_applied"] is None
        else:
            assert values.to_numpy() == pytest.approx(dense[:32], abs=1e-5 * dense[0])
            assert row["stable_rank_applied"] == pytest.approx(np.sum(dense**2) / dense[0] ** 2, rel=1e-5)


def test_amplification_as_applied_is_the_same_product_of_applied_norms(tiny):
    """alpha of a layer: the product of Lphi c2(M_in) c2(M_out) sum_h c2(VO) (1 + 4 c2(QK)) of those above."""
    lipschitz = 1.13  # of gelu, as the bounds take it
    factors = []
    for layer in range(4):
        norms = {
            kind: tiny.matrices.filter(layer=layer, kind=kind)["spectral_norm_applied"].to_numpy()
            for kind in ("qk", "vo", "ffn_in", "ffn_out")
        }
        heads = np.sum(norms["vo"] * (1 + 4 * norms["qk"]))
        factors.append(np.log10(lipschitz * norms["ffn_in"][0] * norms["ffn_out"][0] * heads))
    expected = [sum(factors[layer + 1 :]) for layer in range(4)]
    assert tiny.layers["log10_alpha_applied"].to_list() == pytest.approx(expected, abs=1e-9)
    assert tiny.summary["log10_alpha_applied"] == tiny.layers["log10_alpha_applied"].to_list()
    assert tiny.layers["log10_alpha_applied_error"].max() < 1e-9


def test_smollm2_as_its_own_gains_make_it():
    """The largest QK norm of layer 0 is 4.85 (stored 1061), and the largest of all stands in layer 18."""
    model = open_model(real_checkpoint("smollm2"))
    tree = measure(model, Selection(), jobs=None)
    matrices = matrix_table(model, tree, [None] * sum(1 for _, spectrum in tree.leaves() if spectrum), None)
    heads = matrices.filter(kind="qk").sort("spectral_norm_applied", descending=True)
    first = heads.filter(layer=0).row(0, named=True)
    assert first["head"] == 7
    assert first["spectral_norm_applied"] == pytest.approx(4.85, rel=0.005)
    assert first["spectral_norm"] == pytest.approx(1061, rel=0.005)
    assert heads["layer"][0] == 18
    assert heads["spectral_norm_applied"][0] == pytest.approx(12.86, rel=0.005)
    layer = layer_table(model, tree, proxies(tree)).row(0, named=True)
    assert layer["log10_alpha_applied"] == pytest.approx(187.45, rel=0.005)
    assert layer["log10_alpha"] == pytest.approx(263.60, rel=0.005)


def test_shared_layers_add_up_their_applications():
    model = open_model(real_checkpoint("rxnmapper"))
    tree = measure(model, Selection(), jobs=None)
    bounds = proxies(tree)
    (row,) = layer_table(model, tree, bounds).iter_rows(named=True)
    every = np.array([alpha.value for alpha in bounds.log_alpha_applied])
    assert row["log10_alpha_applied"] == pytest.approx(np.logaddexp.reduce(every) / LN10, rel=1e-12)
    assert len(every) == 12


def state(gain: np.ndarray | None, width: int = 16) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {f"self_attn.{name}_proj": (width, width) for name in "qkvo"}
    shapes |= {"mlp.gate_proj": (24, width), "mlp.up_proj": (24, width), "mlp.down_proj": (width, 24)}
    tensors = {f"model.layers.0.{name}.weight": rng.standard_normal(shape) for name, shape in shapes.items()}
    names = () if gain is None else ("input_layernorm", "post_attention_layernorm")
    return tensors | {f"model.layers.0.{name}.weight": gain for name in names}


def test_where_the_norm_is_not_known_nothing_is_said_to_be_applied():
    audit = attnlaw.audit(state(None), heads=2)
    known = audit.matrices.drop_nulls("spectral_norm_applied")
    assert set(known["kind"]) == {"ffn_out"}
    assert audit.layers["log10_alpha_applied"].null_count() == audit.layers.height
    assert audit.summary["norms"] == "stored"
    assert audit.summary["norms_unknown"] == ["qk", "vo", "ffn_in", "ffn_gate"]
    assert "not known for QK, VO, FFN in, FFN gate" in norm_basis_sentence(audit.summary)


def test_as_stored_changes_what_is_shown_and_no_number(tiny):
    stored = attnlaw.audit(TINY, as_stored=True)
    assert stored.matrices.equals(tiny.matrices)
    assert (tiny.summary["norms"], stored.summary["norms"]) == ("applied", "stored")
    assert "include the gain of the LayerNorm" in norm_basis_sentence(tiny.summary)
    assert "come from the stored matrices, without the gain" in norm_basis_sentence(stored.summary)
    assert json.loads(json.dumps(stored.summary["settings"])) == tiny.summary["settings"]


# Chance is judged on stored matrices.

FRESH = {
    "GPT2Model": {"n_embd": 128, "n_head": 4, "n_layer": 4, "vocab_size": 16},
    "LlamaModel": {"num_key_value_heads": 4},
    "BertModel": {},
    "OPTModel": {"ffn_dim": 256, "word_embed_proj_dim": 128},
}
SIZES = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "intermediate_size": 256,
    "vocab_size": 16,
    "pad_token_id": 0,
}


def fresh(name: str) -> torch.nn.Module:
    """A model as it is initialised, its gains drawn at random (standard deviation of the logarithm 0.2)."""
    torch.manual_seed(1)
    config = getattr(transformers, name).config_class
    sizes = FRESH[name]
    model = getattr(transformers, name)(config(**(sizes if name == "GPT2Model" else SIZES | sizes)))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key.lower() or ".ln_" in key:
                parameter.copy_(torch.exp(0.2 * torch.randn_like(parameter)))
    return model


@pytest.mark.parametrize("name", FRESH)
def test_a_fresh_model_with_random_gains_is_random(name):
    audit = attnlaw.audit(fresh(name))
    assert audit.matrices["spectral_norm_applied"].null_count() == 0
    assert audit.summary["norms"] == "applied"
    assert audit.summary["not_random"]["p_value"] > 1e-3


def test_the_same_gains_folded_into_the_weights_would_not_look_random():
    """A gain of such a spread, multiplied into queries and keys: every head differs from noise."""
    rng = np.random.default_rng(0)
    width = 512
    gain = np.exp(0.2 * rng.standard_normal(width))
    weights = {"in_proj_weight": rng.standard_normal((3 * width, width)), "out_proj.weight": np.eye(width)}
    plain, folded = (
        attnlaw.audit(weights | {"in_proj_weight": entries}, heads=4, only="qk").matrices["random_p_value"]
        for entries in (weights["in_proj_weight"], weights["in_proj_weight"] * gain)
    )
    assert (plain > 0.01).all()
    assert (folded <= 0.01).all()


def test_null_test_and_proxies_do_not_see_the_gain():
    """Every column but those as applied and of logits, and every proxy, is that of other gains."""
    rng = np.random.default_rng(1)
    plain, other = (
        attnlaw.audit(state(np.exp(sd * rng.standard_normal(16))), heads=2, name="m") for sd in (0.0, 1.0)
    )
    names = [
        name for name in plain.matrices.columns if "_applied" not in name and not name.startswith("logit_")
    ]
    assert plain.matrices.select(names).equals(other.matrices.select(names))
    assert not plain.matrices.select(APPLIED).equals(other.matrices.select(APPLIED))
    for key in ("proxies", "not_random", "log10_alpha", "value_of_adaptivity"):
        assert plain.summary[key] == other.summary[key]
