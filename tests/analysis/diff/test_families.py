"""Models of other formats and families: GGUF against Hugging Face, grouped queries, experts, latent heads,
and norms that are folded in."""

import json

import numpy as np
import polars as pl
import pytest
from checkpoints.small import TO_HUGGING_FACE
from real_checkpoints import real_checkpoint
from safetensors.numpy import save_file

from attnlaw.analysis.diff.diff import diff
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.settings import ModelSettings
from attnlaw.core.errors import InputError

PARTS = TO_HUGGING_FACE | {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
HEADS, KV_HEADS = 9, 3
ROUTED = "block_sparse_moe.experts"


def written(folder, tensors, **config):
    folder.mkdir()
    save_file(
        {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps({"hidden_act": "silu", **config}))
    return str(folder)


@pytest.fixture(scope="module")
def smollm2():
    """The first layer of SmolLM2, decoded from Q4_1, under Hugging Face's names and in its order of rows."""
    tensors = open_model(real_checkpoint("smollm2")).tensors
    state = {}
    for part, name in PARTS.items():
        matrix = tensors.read(f"blk.0.{part}.weight").astype(np.float32)
        if part in ("attn_q", "attn_k"):
            heads = HEADS if part == "attn_q" else KV_HEADS
            matrix = matrix.reshape(heads, -1, 2, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)
        state[f"model.layers.0.{name}.weight"] = matrix
    return state


def llama(folder, state):
    sizes = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}
    return written(folder, state, model_type="llama", **sizes)


@pytest.mark.slow
def test_gguf_against_the_same_weights_of_hugging_face(smollm2, tmp_path):
    """llama.cpp orders the rows of queries and keys otherwise: a change of gauge, and nothing else."""
    folder = str(real_checkpoint("smollm2"))
    comparison = diff(folder, ModelSettings(model=llama(tmp_path / "m", smollm2), layers="0:1"))
    verdicts = dict(comparison.tensors.select("tensor", "verdict").iter_rows())
    assert verdicts["blk.0.attn_v.weight"] == verdicts["blk.0.ffn_down.weight"] == "identical"
    assert verdicts["blk.0.attn_q.weight"] == verdicts["blk.0.attn_k.weight"] == "permuted"
    assert comparison.maps["size"].max() < 1e-6
    assert comparison.quantities["verdicts"][0] == "regauged"
    row = comparison.tensors.row(by_predicate=pl.col("tensor") == "blk.0.attn_v.weight", named=True)
    assert (row["dtype_base"], row["dtype_model"]) == ("Q4_1", "float32")


@pytest.mark.slow
def test_norms_are_joined_by_what_reads_them(smollm2, tmp_path):
    from attnlaw.analysis.diff.matching import pair_tensors

    base = open_model(real_checkpoint("smollm2"))
    pairs = {pair.base: pair.model for pair in pair_tensors(base, open_model(llama(tmp_path / "m", smollm2)))}
    assert pairs["blk.0.attn_norm.weight"] == "model.layers.0.input_layernorm.weight"
    assert pairs["blk.0.ffn_norm.weight"] == "model.layers.0.post_attention_layernorm.weight"
    assert pairs["blk.1.attn_norm.weight"] is None


@pytest.mark.slow
def test_the_rounding_of_a_quantised_model_is_below_its_floor(smollm2, tmp_path):
    """A base that differs from a Q4_1 file by less than half a step: a code, whose error has no rank."""
    from attnlaw.analysis.diff.rounding import stored_steps

    rng = np.random.default_rng(0)
    tensors = open_model(real_checkpoint("smollm2")).tensors
    state = {}
    for part, name in PARTS.items():
        stored = tensors.read(f"blk.0.{part}.weight")
        code = tensors.dtype(f"blk.0.{part}.weight")
        steps = stored_steps(stored, code) if code == "Q4_1" else 0.0
        state[f"model.layers.0.{name}.weight"] = (
            stored + steps * rng.uniform(-0.5, 0.5, stored.shape)
        ).astype(np.float32)
    base = llama(tmp_path / "base", state)
    model = ModelSettings(model=str(real_checkpoint("smollm2")), layers="0:1", only=("vo",))
    comparison = diff(base, model)
    assert set(comparison.maps["rank"]) == {None}
    assert "coded" in comparison.quantities["verdicts"]
    assert comparison.maps["size"].min() > 0.05


@pytest.mark.slow
def test_permuted_groups_of_queries(smollm2, tmp_path):
    """Groups and heads within them in another order, as stored by grouped queries."""
    order, within = [2, 0, 1], [1, 2, 0]
    rows = {
        "q_proj": [3 * group + head for group in order for head in within],
        "k_proj": order,
        "v_proj": order,
    }
    moved = dict(smollm2)
    for part, heads in rows.items():
        at = f"model.layers.0.self_attn.{part}.weight"
        blocks = smollm2[at].reshape(-1, 64, 576)
        moved[at] = blocks[heads].reshape(-1, 576)
    at = "model.layers.0.self_attn.o_proj.weight"
    moved[at] = smollm2[at].reshape(576, 9, 64)[:, rows["q_proj"]].reshape(576, 576)
    base, model = llama(tmp_path / "a", smollm2), llama(tmp_path / "b", moved)
    comparison = diff(base, ModelSettings(model=model, only=("qk", "vo")))
    assert "reordered" in comparison.quantities["verdicts"]
    assert comparison.maps["size"].max() < 1e-6
    matched = comparison.maps.filter(pl.col("kind") == "qk")["matched_head"].to_list()
    assert [rows["q_proj"][head] for head in matched] == list(range(9))


def mixtral(seed=0):
    rng = np.random.default_rng(seed)
    state = {f"model.layers.0.self_attn.{part}_proj.weight": rng.standard_normal((16, 16)) for part in "qkvo"}
    for expert in range(3):
        shapes = {"w1": (24, 16), "w2": (16, 24), "w3": (24, 16)}
        for part, shape in shapes.items():
            state[f"model.layers.0.{ROUTED}.{expert}.{part}.weight"] = rng.standard_normal(shape)
    return {name: tensor.astype(np.float32) for name, tensor in state.items()}


def test_one_expert_changed():
    base = mixtral()
    name = f"model.layers.0.{ROUTED}.1.w1.weight"
    model = base | {name: 2 * base[name]}
    comparison = diff(base, ModelSettings(model=model, heads=2))
    changed = comparison.maps.filter(pl.col("size") > 0)
    assert changed.select("kind", "expert", "head").rows() == [("ffn_gate", 1, None)]
    assert changed["size"].to_list() == pytest.approx([1.0])
    assert comparison.quantities["worst_map"] == "layer 0 FFN gate expert 1"


def test_stacked_against_numbered_experts():
    """The same experts, in one tensor and in three: each role by itself."""
    base = mixtral()
    at = f"model.layers.0.{ROUTED}"
    stacked = {name: tensor for name, tensor in base.items() if ROUTED not in name}
    gate, down, up = (
        np.stack([base[f"{at}.{expert}.{part}.weight"] for expert in range(3)]) for part in ("w1", "w2", "w3")
    )
    stacked["model.layers.0.mlp.experts.gate_up_proj"] = np.concatenate([gate, up], axis=1)
    stacked["model.layers.0.mlp.experts.down_proj"] = down
    comparison = diff(base, ModelSettings(model=stacked, heads=2))
    assert set(comparison.tensors["verdict"]) == {"identical"}
    assert comparison.tensors.height == 13
    assert comparison.maps["size"].max() == 0


def test_latent_heads_have_sizes_and_no_ranks(tmp_path):
    rng = np.random.default_rng(0)
    shapes = {
        "self_attn.q_proj": (4 * 10, 24),
        "self_attn.kv_a_proj_with_mqa": (8 + 4, 24),
        "self_attn.kv_b_proj": (4 * 11, 8),
        "self_attn.o_proj": (24, 4 * 5),
        "mlp.gate_proj": (36, 24),
        "mlp.up_proj": (36, 24),
        "mlp.down_proj": (24, 36),
    }
    state = {f"model.layers.0.{name}.weight": rng.standard_normal(shape) for name, shape in shapes.items()}
    state["model.layers.0.self_attn.kv_a_layernorm.weight"] = np.ones(8)
    sizes = {"num_attention_heads": 4, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5}
    config = {"model_type": "deepseek_v2", "hidden_size": 24, "kv_lora_rank": 8, **sizes}
    base = written(tmp_path / "a", state, **config)
    model = written(tmp_path / "b", {name: 1.5 * tensor for name, tensor in state.items()}, **config)
    comparison = diff(base, ModelSettings(model=model))
    heads = comparison.maps.filter(pl.col("head").is_not_null())
    assert heads.height == 8
    assert heads["size"].null_count() == 0
    assert heads.filter(pl.col("kind") == "vo")["scale"].to_list() == pytest.approx([1.5**3] * 4)
    for column in ("rank", "floor", "k", "z_left", "moved"):
        assert heads[column].null_count() == 8


def with_norm(state, gain):
    return {**state, "model.layers.0.input_layernorm.weight": gain.astype(np.float32)}


def test_applied_folds_the_norm_before_a_map(tmp_path):
    """A gain in the norm, or multiplied into what reads it: other tensors, one model."""
    rng = np.random.default_rng(1)
    names = {f"self_attn.{part}_proj": (16, 16) for part in "qkvo"}
    names |= {"mlp.gate_proj": (24, 16), "mlp.up_proj": (24, 16), "mlp.down_proj": (16, 24)}
    state = {f"model.layers.0.{name}.weight": rng.standard_normal(shape) for name, shape in names.items()}
    state["model.layers.0.post_attention_layernorm.weight"] = np.ones(16)
    state = {name: array.astype(np.float32) for name, array in state.items()}
    gain = rng.uniform(0.5, 2.0, 16)
    folded = {
        name: (array * gain).astype(np.float32) if any(f".{part}_proj" in name for part in "qkv") else array
        for name, array in state.items()
    }
    config = {"model_type": "llama", "num_attention_heads": 2}
    base = written(tmp_path / "a", with_norm(state, gain), **config)
    model = written(tmp_path / "b", with_norm(folded, np.ones(16)), **config)
    stored = diff(base, ModelSettings(model=model))
    assert stored.maps.filter(pl.col("kind") == "qk")["size"].min() > 0.1
    assert stored.quantities["verdicts"][0] == "folded"
    applied = diff(base, ModelSettings(model=model), applied=True)
    assert applied.maps["size"].max() < 1e-6
    assert set(applied.maps["rank"].drop_nulls()) == {0}
    with pytest.raises(InputError, match="does not know which norms come before its matrices"):
        diff(state, ModelSettings(model=folded, heads=2), applied=True)
