"""Make what the commands of an extra read, with the extra itself:  python inputs.py EXTRA MODEL FOLDER"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file


def torch_file(model: Path, folder: Path) -> None:
    import torch

    shutil.copy(model / "config.json", folder)
    weights = {name: torch.from_numpy(w) for name, w in load_file(model / "model.safetensors").items()}
    torch.save(weights, folder / "pytorch_model.bin")


def onnx_graph(model: Path, folder: Path) -> None:
    import onnx
    from onnx import helper, numpy_helper

    shutil.copy(model / "config.json", folder)
    weights = load_file(model / "model.safetensors")
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    onnx.save(helper.make_model(helper.make_graph([], "weights", [], [], tensors)), folder / "model.onnx")


def gguf_file(model: Path, folder: Path) -> None:
    import gguf

    draw = np.random.default_rng(0).standard_normal
    shapes = {
        **{f"blk.0.attn_{role}.weight": (16, 16) for role in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{role}.weight": (32, 16) for role in ("gate", "up")},
        "blk.0.ffn_down.weight": (16, 32),
        "blk.0.attn_norm.weight": (16,),
        "blk.0.ffn_norm.weight": (16,),
        "token_embd.weight": (8, 16),
    }
    sizes = {"embedding_length": 16, "block_count": 1, "attention.head_count": 2, "feed_forward_length": 32}
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    for key, value in sizes.items():
        writer.add_uint32(f"llama.{key}", value)
    for name, shape in shapes.items():
        writer.add_tensor(name, draw(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def hub_cache(model: Path, folder: Path) -> None:
    """A model as a hub's client keeps it, so that no network is asked."""
    cache = Path(os.environ["HF_HOME"], "hub", "models--someone--tiny")
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("0" * 40)
    shutil.copytree(model, cache / "snapshots" / ("0" * 40))


def study_file(model: Path, folder: Path) -> None:
    (folder / "study.toml").write_text('verb = "learn"\n[grid]\nalpha = [0.1, 0.2, 0.3]\n')


def readme_models(model: Path, folder: Path) -> None:
    """Write the model of the README that is damaged, and the one that its Python code opens."""
    weights = load_file(model / "model.safetensors")
    weights["transformer.h.2.mlp.c_fc.weight"] *= 10
    shutil.copytree(model, folder / "damaged")
    save_file(weights, folder / "damaged" / "model.safetensors")
    shutil.copytree(model, folder / "path" / "to" / "checkpoint")


MAKERS: dict[str, Callable[[Path, Path], None]] = {
    "torch": torch_file,
    "onnx": onnx_graph,
    "gguf": gguf_file,
    "hub": hub_cache,
    "cluster": study_file,
    "readme": readme_models,
}

if __name__ == "__main__":
    extra, model, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if extra in MAKERS:
        folder.mkdir(exist_ok=True)
        MAKERS[extra](model, folder)
