"""Meta's own layout of LLaMA: tensor-parallel parts against `transformers`' LLaMA with the same weights.

Meta's rotary positions turn neighbours of a head, transformers' turn halves: the rows of query and key stand
in another order (`permute` of transformers' conversion script). Scores, heads and norms must be the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.forward_pass import Names, check_block, check_norm, close, inside, make, recording, tokens
from checkpoints.spoiled import refusal
from checkpoints.test_families import GROUPED
from safetensors.torch import save_file

from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.tensors import Tensors

State = dict[str, torch.Tensor]
MODULES = {
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "tok_embeddings",
    "lm_head": "output",
    "model.": "",
}
COLUMNS = ("wo", "w2")  # of which every device has some columns, of other matrices some rows
PARAMS = {"dim": 24, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-6, "vocab_size": -1}


def meta_state(model: torch.nn.Module) -> State:
    """The weights of transformers' LLaMA under Meta's names, queries and keys in Meta's order."""
    state = {}
    for name, value in model.state_dict().items():
        if "q_proj" in name or "k_proj" in name:
            heads = PARAMS["n_heads" if "q_proj" in name else "n_kv_heads"]
            value = value.reshape(heads, 2, -1, value.shape[1]).transpose(1, 2).reshape(value.shape)
        for theirs, metas in MODULES.items():
            name = name.replace(theirs, metas)
        state[name] = value.clone()
    return state | {"rope.freqs": torch.ones(3).double()}


def write_parts(
    folder: Path, state: State, parts: int, embedding_axis: int = 1, **changes: Any
) -> list[Path]:
    """The files that as many devices would write, and params.json."""
    files = [folder / f"consolidated.{part:02d}.pth" for part in range(parts)]
    for part, file in enumerate(files):
        shard = {}
        for name, value in state.items():
            axis = int(name.split(".")[-2] in COLUMNS) if "tok_embeddings" not in name else embedding_axis
            shard[name] = value if value.ndim < 2 else value.chunk(parts, axis)[part].clone()
        torch.save(shard, file)
    (folder / "params.json").write_text(json.dumps(PARAMS | changes))
    return files


def same(tensors: Tensors, expected: State) -> None:
    assert tensors.shapes == {name: tuple(value.shape) for name, value in expected.items()}
    for name, value in expected.items():
        assert np.array_equal(tensors.read(name), value.numpy()), name
        assert tensors.dtype(name) == "float64"


@pytest.fixture(scope="module")
def llama() -> torch.nn.Module:
    return make("LlamaForCausalLM", **GROUPED, rms_norm_eps=1e-6)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("embedding_axis", [0, 1])
def test_scores_heads_and_norms_are_those_of_transformers(
    llama: torch.nn.Module, parts: int, embedding_axis: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = meta_state(llama)
    write_parts(tmp_path, state, parts, embedding_axis)
    model = open_model(tmp_path)
    assert (model.family, model.heads, model.network.activation) == ("llama_meta", 4, "silu")
    assert set(model.extensions) >= {"rotary positions", "pre-norm", "gated feed-forward"}
    assert model.warnings == ()
    same(model.tensors, state)
    assert np.array_equal(model.embedding(), state["tok_embeddings.weight"].numpy())

    with recording(llama, monkeypatch) as run:
        llama(**tokens())
    names = Names(model, llama)
    for number, layer in enumerate(model.layers):
        at, block = f"model.layers.{number}.", layer.attention
        assert block.scores.rotary is not None
        assert block.scores.rotary.adjacent
        x = run.inputs[f"{at}self_attn.q_proj"][0][0].numpy()
        out = llama.get_submodule(f"{at}self_attn.o_proj")
        check_norm(model, block.norm, x, run, names)
        check_block(
            model,
            block,
            scores=run.scores[number][0].numpy(),
            x=(x, x, x),
            context=run.inputs[f"{at}self_attn.o_proj"][0][0].numpy(),
            output=lambda given, out=out: out(torch.from_numpy(given)[None])[0].detach().numpy(),
            angles=run.angles,
        )
        assert layer.feed_forward
        x = run.inputs[f"{at}mlp.gate_proj"][0][0].numpy()
        check_norm(model, layer.feed_forward.norm, x, run, names)
        close(inside(model, layer.feed_forward, x), run.inputs[f"{at}mlp.down_proj"][0][0].numpy())


def test_one_safetensors_file_by_the_same_names(llama: torch.nn.Module, tmp_path: Path) -> None:
    """Mistral's: its own sizes are in params.json, those of config.json belong to other names."""
    state = meta_state(llama)
    write_parts(tmp_path, state, 1)[0].unlink()
    save_file(state, tmp_path / "consolidated.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mistral", "num_attention_heads": 8}))
    for source in (tmp_path, tmp_path / "consolidated.safetensors"):
        model = open_model(source)
        assert (model.family, model.heads) == ("llama_meta", 4)
        same(model.tensors, state)
    model = open_model(state, heads=4)  # in memory nothing names a type
    assert model.layers[0].attention.scores.rotary == open_model(tmp_path).layers[0].attention.scores.rotary


def test_what_params_json_says_of_positions(llama: torch.nn.Module, tmp_path: Path) -> None:
    state = meta_state(llama)

    def base(**changes: Any) -> float | None:
        write_parts(tmp_path, state, 1, **changes)
        rotary = open_model(tmp_path).layers[0].attention.scores.rotary
        assert rotary
        return rotary.base

    assert base() == 1e4
    assert base(rope_theta=5e5) == 5e5
    assert base(rope_theta=5e5, use_scaled_rope=True) is None  # the angles are others
    (tmp_path / "params.json").write_text(json.dumps({"model": PARAMS}))
    assert open_model(tmp_path).heads == 4


def test_parts_that_do_not_make_one_model(llama: torch.nn.Module, tmp_path: Path) -> None:
    state = meta_state(llama)
    files = write_parts(tmp_path, state, 4, n_kv_heads=4)
    kept = [file.read_bytes() for file in files]

    files[3].unlink()
    refusal(tmp_path, "consolidated.*.pth", "has 6 of 24 input columns", "but found 3", "download all")
    files[1].unlink()
    refusal(tmp_path, "consolidated.01.pth is missing")
    for file, data in zip(files, kept, strict=True):
        file.write_bytes(data)

    shard = torch.load(files[2], weights_only=True)
    torch.save({name: value for name, value in shard.items() if name != "norm.weight"}, files[2])
    refusal(tmp_path, str(files[2]), "norm.weight", "every part")
    torch.save(shard | {"layers.0.attention.wq.weight": torch.ones(6, 23)}, files[2])
    refusal(tmp_path, "layers.0.attention.wq.weight have the shapes", "[6, 23]")
    for file in files:
        torch.save(torch.load(file, weights_only=True) | {"layers.0.adapter.weight": torch.ones(2, 2)}, file)
    files[2].write_bytes(kept[2])
    shard = torch.load(files[2], weights_only=True)
    torch.save(shard | {"layers.0.adapter.weight": torch.ones(2, 2)}, files[2])
    refusal(tmp_path, "does not know how to join the parts of tensor layers.0.adapter.weight")


def test_sizes_that_contradict_the_parts(llama: torch.nn.Module, tmp_path: Path) -> None:
    state = meta_state(llama)
    write_parts(tmp_path, state, 2, n_layers=3)
    refusal(tmp_path, "expected 3 layers, found layers 0-1")
    write_parts(tmp_path, state, 2, n_kv_heads=4)
    refusal(tmp_path, "2 key/value heads", "params.json says 4")
    (tmp_path / "params.json").unlink()
    refusal(
        tmp_path, "attnlaw cannot find the number of attention heads: There is no", "params.json", "--heads"
    )
    assert open_model(tmp_path, heads=4).heads == 4
    (tmp_path / "params.json").write_text("[")
    refusal(tmp_path, "params.json: not valid JSON", "params.json or remove it")
