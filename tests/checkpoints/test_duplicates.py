"""One name for two tensors is refused: in an index, shards, parts of a model, graphs and GGUF files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from checkpoints.forward_pass import make
from checkpoints.spoiled import QUERY, bert_state, config_with, read_all, refusal
from checkpoints.test_consolidated import meta_state, write_parts
from checkpoints.test_families import GROUPED
from onnx import helper, numpy_helper
from safetensors.torch import save_file

from attnlaw.checkpoints.formats.onnx_file import OnnxFile
from attnlaw.checkpoints.open import open_model


def shards(folder: Path, **second: torch.Tensor) -> Path:
    """A model in two shards. The second also has the tensors in `second`, which the index does not name."""
    config_with(folder)
    state = bert_state()
    names = sorted(state)
    halves = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, part in halves.items():
        more = second if file.startswith("b") else {}
        save_file({name: state[name] for name in part} | more, folder / file)
    places = {name: file for file, part in halves.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def test_an_index_that_lists_a_name_twice(tmp_path: Path) -> None:
    index = shards(tmp_path) / "model.safetensors.index.json"
    text = index.read_text()
    index.write_text(text.replace('{"weight_map": {', f'{{"weight_map": {{"{QUERY}": "b.safetensors", '))
    refusal(tmp_path, str(index), f"{QUERY} occurs twice", "download it again")


def test_two_shards_with_one_name(tmp_path: Path) -> None:
    """A copy is the same tensor. Other numbers, another type or shape are not."""
    query = bert_state()[QUERY]
    read_all(open_model(shards(tmp_path, **{QUERY: query})))
    negative = query.clone()
    negative[0, 0] += 1e-7
    for other in (negative, query.double(), query[:4]):
        shards(tmp_path, **{QUERY: other})
        refusal(tmp_path, QUERY, "b.safetensors", "a.safetensors", "differs from")


def test_a_tensor_that_an_index_leaves_out_counts(tmp_path: Path) -> None:
    """The scale of a weight is in its shard, whatever the index says."""
    scale = QUERY.replace("weight", "scale")
    refusal(shards(tmp_path, **{scale: torch.ones(())}), scale, QUERY)


def test_parts_of_a_model_whose_norms_differ(tmp_path: Path) -> None:
    """Every device has the norms whole, so they are the same in all files."""
    state = meta_state(make("LlamaForCausalLM", **GROUPED))
    files = write_parts(tmp_path, state, 2)
    model = open_model(tmp_path)
    norm = model.layers[0].attention.norm
    assert norm
    assert model.gain(norm).shape == (24,)
    part = torch.load(files[1], weights_only=True)
    torch.save(part | {str(norm.gain): 2 * part[str(norm.gain)]}, files[1])
    model = open_model(tmp_path)
    with pytest.raises(ValueError, match=r"consolidated\.01\.pth: tensor .* differs from the one in"):
        model.gain(norm)


def test_graphs_with_one_name_for_two_weights(tmp_path: Path) -> None:
    """Two initialisers of one name are refused. Two weights of one module are not called after it."""
    weights = [
        numpy_helper.from_array(np.full((4, 4), float(size), dtype=np.float32), name)
        for size, name in ((1, "a"), (2, "b"))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["y"], "/attn/MatMul"),
        helper.make_node("MatMul", ["y", "b"], ["z"], "/attn/MatMul_1"),
        helper.make_node("MatMul", ["z", "b"], ["u"], "/out/MatMul"),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [], [], weights)), path)
    assert set(OnnxFile(path).shapes) == {"a", "b", "out.weight"}
    weights[1].name = "a"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [], [], weights)), path)
    refusal(path, "two tensors have the same name", "a occurs twice")
