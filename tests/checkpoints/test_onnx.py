"""ONNX: a small BERT exported by PyTorch against its safetensors twin, and files that must be refused."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from checkpoints.forward_pass import require_transformers
from checkpoints.spoiled import refusal
from onnx import TensorProto, helper, numpy_helper

from attnlaw import audit
from attnlaw.checkpoints.open import open_model

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`twin/` by save_pretrained, `onnx/` by torch.onnx.export with the same config.json."""
    require_transformers("5.12", "a BERT that can be exported")
    folder = tmp_path_factory.mktemp("onnx")
    torch.manual_seed(5)
    config = transformers.BertConfig(vocab_size=30, max_position_embeddings=8, **SIZES)
    config._attn_implementation = "eager"
    model = transformers.BertForMaskedLM(config).eval()
    model.save_pretrained(folder / "twin")
    config.save_pretrained(folder / "onnx")
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(model, (torch.tensor([[3, 4, 5]]),), folder / "onnx" / "model.onnx", dynamo=False)
    return folder


def test_an_export_gives_the_rows_of_its_twin(exported: Path) -> None:
    graph = onnx.load(exported / "onnx" / "model.onnx").graph
    anonymous = {tensor.name for tensor in graph.initializer if tensor.name.startswith("onnx::MatMul_")}
    assert len(anonymous) >= 12  # the names of the weights are lost, those of the nodes are not
    ours, twin = (audit(exported / name, name="m", jobs=1) for name in ("onnx", "twin"))
    assert ours.matrices.equals(twin.matrices)
    assert ours.spectra.equals(twin.spectra)
    assert ours.summary == twin.summary
    assert np.array_equal(
        open_model(exported / "onnx").embedding(), open_model(exported / "twin").embedding()
    )


@pytest.mark.parametrize("location", ["weights.bin", "data/weights.bin"])
def test_data_in_a_file_beside_the_graph(location: str, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    model = onnx.load(exported / "onnx" / "model.onnx")
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location=location)
    assert (tmp_path / location).stat().st_size > 4 * 16 * 16 * 8
    ours, whole = (
        audit(path, name="m", heads=2, jobs=1) for path in (tmp_path / "model.onnx", exported / "onnx")
    )
    assert ours.spectra.equals(whole.spectra)
    data = (tmp_path / location).read_bytes()
    (tmp_path / location).write_bytes(data[:500])
    refusal(tmp_path / "model.onnx", "weights.bin", "past the end", heads=2, read=True)
    (tmp_path / location).unlink()
    refusal(tmp_path / "model.onnx", "weights.bin: cannot be read", heads=2, read=True)


def small_graph(**external: str) -> onnx.ModelProto:
    """One attention block as linear layers, weights transposed; a weight shared through an Identity node."""
    rng = np.random.default_rng(0)
    weights = {f"onnx::MatMul_{i}": rng.standard_normal((4, 4)).astype(np.float32) for i in range(4)}
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    if external:
        tensors[0].ClearField("raw_data")
        tensors[0].data_location = TensorProto.EXTERNAL
        for key, value in external.items():
            tensors[0].external_data.add(key=key, value=value)
    names = ("self/query", "self/key", "self/value", "output/dense")
    nodes = [helper.make_node("Identity", ["onnx::MatMul_1"], ["shared"])]
    for number, name in enumerate(names):
        weight = "shared" if number == 1 else f"onnx::MatMul_{number}"
        at = f"/encoder/layer.0/attention/{name}"
        nodes.append(helper.make_node("MatMul", ["x", weight], [f"{at}/out"], name=f"{at}/MatMul"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info(
        "/encoder/layer.0/attention/output/dense/out", TensorProto.FLOAT, [1, 4]
    )
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], tensors))


def test_nodes_give_the_names_and_the_orientation(tmp_path: Path) -> None:
    graph = small_graph()
    onnx.save(graph, tmp_path / "model.onnx")
    model = open_model(tmp_path / "model.onnx", heads=2)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.graph.initializer}
    block = model.layers[0].attention
    for number, view in enumerate((block.query, block.key, block.value, block.output)):
        assert np.array_equal(model.read(view), stored[f"onnx::MatMul_{number}"])  # x @ W, as MatMul has it


def in_constants(graph: onnx.GraphProto, transposed: bool = False) -> None:
    """Move the initialisers of a graph into `Constant` nodes, turned back by `Transpose` nodes or not."""
    nodes, weights = [*graph.node], [*graph.initializer]
    graph.ClearField("node")
    graph.ClearField("initializer")
    for tensor in weights:
        name, value = tensor.name, numpy_helper.to_array(tensor)
        kept = numpy_helper.from_array(np.ascontiguousarray(value.T) if transposed else value)
        inner = f"{name}_stored" if transposed else name
        graph.node.append(helper.make_node("Constant", [], [inner], value=kept))
        if transposed:
            graph.node.append(helper.make_node("Transpose", [inner], [name], perm=[1, 0]))
    graph.node.extend(nodes)


@pytest.mark.parametrize("transposed", [False, True])
def test_weights_in_constant_nodes_are_read(tmp_path: Path, transposed: bool) -> None:
    whole, moved = small_graph(), small_graph()
    in_constants(moved.graph, transposed)
    assert not moved.graph.initializer
    for name, graph in (("whole", whole), ("moved", moved)):
        onnx.save(graph, tmp_path / f"{name}.onnx")
    ours, twin = (audit(tmp_path / f"{name}.onnx", name="m", heads=2, jobs=1) for name in ("moved", "whole"))
    assert ours.spectra.equals(twin.spectra)


def test_weights_in_branches_are_refused_by_that_name(tmp_path: Path) -> None:
    """As exporters merge a decoder with and without past keys and values."""
    inner = small_graph().graph
    branch = helper.make_graph([*inner.node], "b", [], [*inner.output], [*inner.initializer])
    node = helper.make_node("If", ["chosen"], ["y"], then_branch=branch, else_branch=branch)
    chosen = helper.make_tensor_value_info("chosen", TensorProto.BOOL, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    model = helper.make_model(helper.make_graph([node], "g", [chosen], [y]))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    message = refusal(tmp_path, "in the branches of a node If", "export", heads=2)
    assert "has no weights" not in message


@pytest.mark.parametrize(
    "location", ["../away.bin", "/etc/passwd", "sub/../../away.bin", "..\\away.bin", "C:\\away.bin", ""]
)
def test_data_outside_the_directory_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "away.bin").write_bytes(b"\0" * 64)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(small_graph(location=location).SerializeToString())
    said = f"stored in {location!r}, outside the directory of the graph", "export the model again"
    refusal(folder, str(folder / "model.onnx"), *said, heads=2)


def test_data_that_begin_nowhere_are_refused(tmp_path: Path) -> None:
    graph = small_graph(location="data.bin", offset="-4")
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    refusal(tmp_path, "'-4'", "expected a number", heads=2)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_damaged_files(exported: Path, tmp_path: Path, kept: float) -> None:
    whole = (exported / "onnx" / "model.onnx").read_bytes()
    (tmp_path / "model.onnx").write_bytes(whole[: int(kept * len(whole))])
    refusal(tmp_path, str(tmp_path / "model.onnx"), "xport", heads=2)


def test_without_the_package(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    refusal(exported / "onnx", "pip install 'attnlaw[onnx]'")
