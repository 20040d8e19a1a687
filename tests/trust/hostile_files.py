"""Indexes and ONNX graphs that lead elsewhere; files that are no files; ONNX that lies about its tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpoints.spoiled import QUERY, bert_state, write_good
from onnx import TensorProto, helper, numpy_helper
from trust.attack import Attack, with_config

SECRET = "secret.safetensors"  # a good file outside the attacker's directory


def index(folder: Path, weight_map: Any, name: str = "model.safetensors.index.json") -> Path:
    path = with_config(folder) / name
    path.write_text(json.dumps({"weight_map": weight_map}))
    return folder


def all_in(file: str) -> dict[str, str]:
    return dict.fromkeys(bert_state(), file)


def secret(folder: Path) -> Path:
    """A good checkpoint in the directory above, which no attack may reach."""
    write_good(folder)
    place = folder.parent / SECRET
    (folder / "model.safetensors").replace(place)
    return place


def outside(way: Callable[[Path], str]) -> Callable[[Path], Path]:
    return lambda folder: index(folder, all_in(way(secret(folder))))


def link(folder: Path) -> Path:
    (folder / "a.safetensors").symlink_to(secret(folder))
    return index(folder, all_in("a.safetensors"))


def link_loop(folder: Path) -> Path:
    (folder / "a.safetensors").symlink_to(folder / "b.safetensors")
    (folder / "b.safetensors").symlink_to(folder / "a.safetensors")
    return index(folder, all_in("a.safetensors"))


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "a.safetensors")
    return index(folder, all_in("a.safetensors"))


def lone_pipe(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        os.mkfifo(with_config(folder) / name)
        return folder

    return write


def pipe_itself(folder: Path) -> Path:
    os.mkfifo(with_config(folder) / "model.safetensors")
    return folder / "model.safetensors"


def directory(folder: Path) -> Path:
    (folder / "a.safetensors").mkdir()
    return index(folder, all_in("a.safetensors"))


def device(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (with_config(folder) / name).symlink_to("/dev/zero")
        return folder

    return write


def index_of_index(folder: Path) -> Path:
    return index(folder, all_in("model.safetensors.index.json"))


def index_text(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (with_config(folder) / "model.safetensors.index.json").write_text(text)
        return folder

    return write


def index_gigabyte(folder: Path) -> Path:
    path = with_config(folder) / "model.safetensors.index.json"
    path.touch()
    os.truncate(path, 2**30)
    return folder


def config_gigabyte(folder: Path) -> Path:
    write_good(folder)
    os.truncate(folder / "config.json", 2**30)
    return folder


def config_pipe(folder: Path) -> Path:
    """Not a plain file: as if there were none."""
    write_good(folder)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    return folder


OUT = "outside its directory"
INDEXES = (
    Attack("index-absolute", outside(str), OUT),
    Attack("index-parent", outside(lambda secret: f"../{secret.name}"), OUT),
    Attack("index-inner-parent", outside(lambda secret: f"a/../../{secret.name}"), OUT),
    Attack("index-backslash", outside(lambda secret: f"..\\{secret.name}"), "missing"),
    Attack("index-surrogate", outside(lambda secret: "\ud800.safetensors"), "missing"),
    Attack("index-null", outside(lambda secret: "a\0b"), "missing"),
    Attack("index-long-name", outside(lambda secret: "a" * 5000 + ".safetensors"), "missing"),
    Attack("index-escapes", outside(lambda secret: "\x1b[2J\n.safetensors"), "missing"),
    Attack("index-link", link, "which is outside this directory"),
    Attack("index-link-loop", link_loop, "missing"),
    Attack("index-of-itself", index_of_index, "another index"),
    Attack("index-pipe", pipe, "missing"),
    Attack("index-directory", directory, "missing"),
    Attack("index-device", device("model.safetensors.index.json"), "not a regular file"),
    Attack("index-gigabyte", index_gigabyte, "larger than"),
    Attack("index-nested", index_text("[" * 10**6), "this is not an index"),
    Attack("index-numbers", index_text('{"weight_map": {"a": 3}}'), "this index lists no files"),
    Attack("index-digits", index_text('{"weight_map": ' + "9" * 10**5 + "}"), "this is not an index"),
    Attack("lone-pipe", lone_pipe("model.safetensors"), "not a regular file"),
    Attack("lone-pipe-torch", lone_pipe("pytorch_model.bin"), "not a regular file"),
    Attack("pipe-itself", pipe_itself, ""),
    Attack("device", device("model.safetensors"), "not a regular file"),
    Attack("device-gguf", device("model.gguf"), "not a regular file"),
    Attack("config-gigabyte", config_gigabyte, "larger than"),
    Attack("config-pipe", config_pipe, "attnlaw cannot find the number"),
)


def graph_of(tensors: list[TensorProto]) -> bytes:
    nodes = [
        helper.make_node("MatMul", ["x", "encoder.layer.0.output.dense.weight"], ["y"], name="/a/MatMul"),
        helper.make_node("Identity", ["y"], ["z"]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [], [], initializer=tensors))
    return bytes(model.SerializeToString())


def graph(folder: Path, tensors: list[TensorProto]) -> Path:
    path = with_config(folder) / "model.onnx"
    path.write_bytes(graph_of(tensors))
    return path


def external(location: str, **entries: str) -> list[TensorProto]:
    tensors = []
    for name, value in bert_state().items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=value.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in {"location": location, **entries}.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, text
        tensors.append(tensor)
    return tensors


def elsewhere(way: Callable[[Path], str], **entries: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        data = folder.parent / "secret.data"
        data.write_bytes(bytes(10_000))
        return graph(folder, external(way(data), **entries))

    return write


def onnx_link(folder: Path) -> Path:
    (folder / "weights.data").symlink_to(folder.parent / "secret.data")
    return elsewhere(lambda data: "weights.data")(folder)


def onnx_linked_directory(folder: Path) -> Path:
    (folder / "data").symlink_to(folder.parent)
    return elsewhere(lambda data: f"data/{data.name}")(folder)


def onnx_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "weights.data")
    return graph(folder, external("weights.data"))


def onnx_device(folder: Path) -> Path:
    (folder / "weights.data").symlink_to("/dev/zero")
    return graph(folder, external("weights.data"))


def beside(**entries: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "weights.data").write_bytes(bytes(100))
        return graph(folder, external("weights.data", **entries))

    return write


def tensors_with(**changes: Any) -> list[TensorProto]:
    """The weights inside the graph, the query's proto changed."""
    protos = [numpy_helper.from_array(value.numpy(), name) for name, value in bert_state().items()]
    for tensor in protos:
        if tensor.name == QUERY:
            for key, value in changes.items():
                if isinstance(value, list):
                    tensor.ClearField(key)
                    getattr(tensor, key).extend(value)
                else:
                    setattr(tensor, key, value)
    return protos


def whole(dims: list[int]) -> list[TensorProto]:
    """Every weight claims huge sides and holds nothing."""
    sizes = {8: dims[0], 10: 10, 12: dims[1]}
    return [
        TensorProto(
            name=name, data_type=TensorProto.FLOAT, dims=[sizes[s] for s in value.shape], raw_data=b""
        )
        for name, value in bert_state().items()
    ]


def huge_graph(folder: Path) -> Path:
    path = graph(folder, whole([2**20, 2**20]))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "num_attention_heads": 1}))
    return path


def onnx_bytes(data: bytes, hole: int = 0) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = with_config(folder) / "model.onnx"
        path.write_bytes(data)
        if hole:
            os.truncate(path, hole)
        return path

    return write


BROKEN = "not a complete ONNX file"
ONNX = (
    Attack("onnx-absolute", elsewhere(str), "outside the directory of the graph"),
    Attack("onnx-parent", elsewhere(lambda data: f"../{data.name}"), "outside the directory of the graph"),
    Attack(
        "onnx-backslash", elsewhere(lambda data: f"..\\{data.name}"), "outside the directory of the graph"
    ),
    Attack("onnx-drive", elsewhere(lambda data: "C:secret.data"), "outside the directory of the graph"),
    Attack("onnx-no-place", elsewhere(lambda data: ""), "outside the directory of the graph"),
    Attack("onnx-link", onnx_link, "outside the directory of the graph"),
    Attack("onnx-linked-directory", onnx_linked_directory, "outside the directory of the graph"),
    Attack("onnx-pipe", onnx_pipe, "weights.data"),
    Attack("onnx-device", onnx_device, "weights.data"),
    Attack("onnx-null", elsewhere(lambda data: "a\0b"), ""),
    Attack("onnx-offset-text", beside(offset="-1"), "expected a number"),
    Attack("onnx-offset-huge", beside(offset="9" * 18), "past the end"),
    Attack("onnx-offset-digits", beside(offset="9" * 5000), ""),
    Attack("onnx-offset-unicode", beside(offset="٣"), ""),
    Attack("onnx-short", beside(), "past the end"),
    Attack("onnx-dims", lambda f: graph(f, tensors_with(dims=[2**40, 2**40])), QUERY),
    Attack("onnx-dims-negative", lambda f: graph(f, tensors_with(dims=[-8, -8])), QUERY),
    Attack("onnx-dims-lie", lambda f: graph(f, tensors_with(raw_data=b"12")), QUERY),
    Attack("onnx-huge", huge_graph, ""),
    Attack("onnx-type", lambda f: graph(f, tensors_with(data_type=999)), QUERY),
    Attack("onnx-type-text", lambda f: graph(f, tensors_with(data_type=TensorProto.STRING)), QUERY),
    Attack("onnx-garbage", onnx_bytes(b"\xff" * 1000), BROKEN),
    Attack("onnx-length", onnx_bytes(b"\x3a\xff\xff\xff\xff\x07abc"), BROKEN),
    Attack("onnx-nested", onnx_bytes(b"\x3a\x7f" * 5000), BROKEN),
    Attack("onnx-hole", onnx_bytes(b"", hole=3 * 2**30), ""),
)
