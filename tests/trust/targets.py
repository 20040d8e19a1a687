"""Every reader as a function of bytes: where they are written, good examples to start from, and what is read.

A reader may return or raise an `InputError` of one printable line. Whatever else it does is a finding.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoints.spoiled import CONFIG, bert_state
from safetensors.torch import save
from trust import coded_targets as coded
from trust import saved_targets as saved

from attnlaw.checkpoints.families.read_toml import known_families, read_family
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError
from attnlaw.study.study_file import read_study
from attnlaw.theory.limit.inputs import GivenInputs, read_gram

LONGEST_LINE = 2500


@dataclass(frozen=True)
class Target:
    """`write` puts bytes into a folder that `prepare` has furnished and returns the path to `read`."""

    write: Callable[[Path, bytes], Path]
    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]]
    prepare: Callable[[Path], object] = lambda folder: None


def attempt(target: Target, folder: Path, data: bytes) -> str:
    """Read the bytes: "read" or "refused"; any exception but a proper `InputError` is passed on."""
    path = target.write(folder, data)
    try:
        target.read(path)
    except InputError as error:
        line = str(error)
        if not line.isprintable() or len(line) > LONGEST_LINE:
            raise AssertionError(f"not one short printable line: {line!r:.200}") from error
        return "refused"
    return "read"


def read_everything(path: Path) -> None:
    """Open a model and read every matrix of it."""
    read_matrices(open_model(path))


def read_matrices(model: Model) -> None:
    for layer in model.layers:
        for block in (layer.attention, layer.cross):
            for kind in ("qk", "vo") if block else ():
                for _ in block.factors(model, kind):
                    pass
        for maps in (layer.feed_forward, *layer.experts):
            for view in (maps.inner, maps.outer, maps.gate) if maps else ():
                if view is not None:
                    model.read(view)
    for view in (model.embedding_view, model.unembedding_view):
        if view is not None:
            model.read(view)


def _file(name: str) -> Callable[[Path, bytes], Path]:
    def write(folder: Path, data: bytes) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return write


def _directory(name: str) -> Callable[[Path, bytes], Path]:
    def write(folder: Path, data: bytes) -> Path:
        (folder / name).write_bytes(data)
        return folder

    return write


def _config(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))


def _weights(folder: Path, name: str = "model.safetensors") -> None:
    (folder / name).write_bytes(_safetensors())


@cache
def _safetensors() -> bytes:
    return save(bert_state())


def _header() -> bytes:
    (length,) = struct.unpack("<Q", _safetensors()[:8])
    return _safetensors()[8 : 8 + length]


def _with_header(folder: Path, data: bytes) -> Path:
    tensors = _safetensors()[8 + len(_header()) :]
    return _file("model.safetensors")(folder, struct.pack("<Q", len(data)) + data + tensors)


def _torch_files() -> list[bytes]:
    files = []
    for zipped in (True, False):
        buffer = io.BytesIO()
        torch.save({"state_dict": bert_state()}, buffer, _use_new_zipfile_serialization=zipped)
        files.append(buffer.getvalue())
    return files


def _torch_pickles() -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(_torch_files()[0])) as archive:
        return [archive.read("archive/data.pkl")]


def _with_pickle(folder: Path, data: bytes) -> Path:
    """The archive of a good file with another pickle in it."""
    path = folder / "model.pt"
    with zipfile.ZipFile(io.BytesIO(_torch_files()[0])) as good, zipfile.ZipFile(path, "w") as archive:
        for entry in good.infolist():
            archive.writestr(
                entry.filename, data if entry.filename.endswith("data.pkl") else good.read(entry)
            )
    return path


def _ggufs() -> list[bytes]:
    import gguf

    path = Path("seed.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(32)
    writer.add_head_count(2)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "c"])
    random = np.random.default_rng(0)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        matrix = random.standard_normal((32, 32)).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0 if name == "attn_k" else None
        data = gguf.quants.quantize(matrix, kind) if kind else matrix
        writer.add_tensor(f"blk.0.{name}.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    data = path.read_bytes()
    path.unlink()
    return [data]


def _graphs() -> list[bytes]:
    from trust.hostile_files import external, graph_of, tensors_with

    return [graph_of(tensors_with()), graph_of(external("weights.data"))]


def _onnx_data(folder: Path) -> None:
    _config(folder)
    (folder / "weights.data").write_bytes(bytes(2000))


def _index() -> bytes:
    return json.dumps({"weight_map": dict.fromkeys(bert_state(), "a.safetensors")}).encode()


def _configs() -> list[bytes]:
    quantised = {"quant_method": "fp8", "weight_block_size": [4, 4]}
    more = {"text_config": {"num_key_value_heads": 2}, "hidden_act": "gelu", "quantization_config": quantised}
    return [json.dumps(values, indent=1).encode() for values in (CONFIG, CONFIG | more, _every_key())]


def _every_key() -> dict[str, Any]:
    """A good config with every key that is read for some family."""
    sizes = {family.hidden_size: 8 for family in known_families()}
    for stack in (stack for family in known_families() for stack in family.stacks):
        sizes |= dict.fromkeys((stack.heads, stack.inner_size, *stack.depth), 2)
    texts = dict.fromkeys((key for family in known_families() for key in family.activation), "gelu")
    experts = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "routed_scaling_factor": 2.5}
    others = {"num_key_value_heads": 2, "head_dim": 4, "qk_rope_head_dim": 2, "num_nextn_predict_layers": 0}
    flags = {"use_parallel_residual": False, "do_layer_norm_before": True, "norm_first": False}
    numbers = {"attn_logit_softcapping": 50.0, "vision_config": {}, "audio_config": None}
    return sizes | texts | experts | others | flags | numbers | CONFIG


ADAPTER = {"peft_type": "LORA", "lora_alpha": 4, "alpha_pattern": {"query": 2.0}, "fan_in_fan_out": False}


def _adapter(folder: Path) -> None:
    at = "base_model.model.encoder.layer.0.attention.self.query.lora_"
    tensors = {f"{at}A.weight": torch.ones(2, 8), f"{at}B.weight": torch.ones(8, 2)}
    (folder / "adapter_model.safetensors").write_bytes(save(tensors))


def _read_adapted(folder: Path) -> None:
    read_matrices(open_model(dict(bert_state(1)), heads=2, adapter=folder))


STUDIES = (
    b'verb = "learn"\n[fixed]\ntokens = 2\nnoise = 0.1\n[grid]\nalpha = "0.05:1:4"\nweight_decay = [0.1, 1]\n'
    b"[run]\nseed = 7\nseeds = 2\ntime_limit = 60\nretries = 1\n",
    b'verb = ["audit", "fit"]\n[[list]]\nmodel = "model.safetensors"\nheads = 2\n[[list]]\n'
    b'model = "*.safetensors"\nverb = "audit"\nlayers = "0:2"\n',
    b'verb = "limit"\n[grid]\nwidth = [16, "inf"]\nheads = [1, 2]\n[fixed]\ndraws = 100\nmask = "causal"\n',
    b'verb = "learn.simulate"\n[fixed]\nsimulate = 8\nsensing = "tokens"\n[[list]]\nalpha = "0.1:0.5:3"\n',
)


def _read_study(path: Path) -> None:
    study = read_study(path)
    study.check(list(study.tasks[:20]))


MAP = b"""name = "mine"
embedding = ["word_embeddings.weight"]
[[stacks]]
layer = "encoder.layer.{layer}."
attention = { query = "attention.self.query.weight", key = "attention.self.key.weight", \
value = "attention.self.value.weight", output = "attention.output.dense.weight" }
feed_forward = [{ in = "intermediate.dense.weight", out = "output.dense.weight" }]
"""


def _read_map(path: Path) -> None:
    read_family(path)
    read_matrices(open_model(dict(bert_state(1)), heads=2, map=path))


def _grams() -> list[bytes]:
    files = []
    for array in (np.eye(3), np.asfortranarray(np.eye(2, dtype=np.float32))):
        buffer = io.BytesIO()
        np.save(buffer, array)
        files.append(buffer.getvalue())
    return files


def _read_gram(path: Path) -> None:
    GivenInputs(read_gram(path))


TARGETS = {
    "safetensors": Target(_file("model.safetensors"), read_everything, lambda: [_safetensors()], _config),
    "safetensors-header": Target(_with_header, read_everything, lambda: [_header()], _config),
    "torch-file": Target(_file("model.bin"), read_everything, _torch_files, _config),
    "torch-pickle": Target(_with_pickle, read_everything, _torch_pickles, _config),
    "index": Target(
        _file("model.safetensors.index.json"),
        read_everything,
        lambda: [_index()],
        lambda folder: (_config(folder), _weights(folder, "a.safetensors")),
    ),
    "gguf": Target(_file("model.gguf"), read_everything, _ggufs),
    **{
        f"code-{part}": Target(coded.write(part), coded.read_tensors, coded.seeds(part))
        for part in ("header", "tensors", "config")
    },
    "onnx": Target(_file("model.onnx"), read_everything, _graphs, _onnx_data),
    "config": Target(_directory("config.json"), read_everything, _configs, _weights),
    "adapter": Target(
        _directory("adapter_config.json"), _read_adapted, lambda: [json.dumps(ADAPTER).encode()], _adapter
    ),
    "gram": Target(_file("gram.npy"), _read_gram, _grams),
    "gram-text": Target(_file("gram.txt"), _read_gram, lambda: [b"1 0.5\n0.5 1\n", b"1,0\n0,2e-3\n"]),
    "study": Target(_file("study.toml"), _read_study, lambda: list(STUDIES), _weights),
    "map": Target(_file("map.toml"), _read_map, lambda: [MAP], _weights),
    "manifest": Target(saved.with_manifest, saved.report, saved.manifests, saved.write_audit),
    "audit-rows": Target(saved.with_tables, saved.report, saved.audit_tables, saved.write_audit),
    "study-rows": Target(saved.with_rows, saved.draw_study, saved.study_rows, saved.write_tables_beside),
    "store": Target(saved.with_store, saved.read_store, saved.stores, saved.write_study),
}
