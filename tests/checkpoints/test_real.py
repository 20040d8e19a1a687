"""Trained checkpoints as they were published: each in its own format, names and nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from real_checkpoints import NAMES, real_checkpoint
from safetensors.numpy import load_file

from attnlaw.checkpoints.open import open_model

EXPECTED: dict[str, dict[str, Any]] = {
    "rxnmapper": {"family": "albert", "applications": (0,) * 12, "hidden_size": 256, "heads": 8},
    "rxnfp-pretrained": {"family": "bert", "applications": tuple(range(12)), "hidden_size": 256, "heads": 4},
    "rxnfp-finetuned": {"family": "bert", "applications": tuple(range(12)), "hidden_size": 256, "heads": 4},
    "rxnfp-10k": {"family": "bert", "applications": tuple(range(12)), "hidden_size": 256, "heads": 4},
    "minilm": {"family": "bert", "applications": tuple(range(6)), "hidden_size": 384, "heads": 12},
    "whisper-tiny.en": {"family": "whisper", "applications": tuple(range(8)), "hidden_size": 384, "heads": 6},
    "smollm2": {"family": "llama", "applications": tuple(range(30)), "hidden_size": 576, "heads": 9},
}
FEW_BITS = (
    "weights are stored in few bits (Q4_1), so rounding changes the ranks and the small singular values"
)
WARNINGS = {"smollm2": (FEW_BITS,)}
ACTIVATIONS = {"smollm2": "silu"}
FEED_FORWARD = {"rxnmapper": 512, "minilm": 1536, "whisper-tiny.en": 1536, "smollm2": 1536}
EMBEDDINGS = {
    "rxnmapper": (591, 128),
    "minilm": (30522, 384),
    "whisper-tiny.en": (51864, 384),
    "smollm2": (49152, 576),
}
EXTENSIONS = {
    "rxnmapper": ("shared layers",),
    "whisper-tiny.en": ("cross attention", "pre-norm"),
    "smollm2": ("grouped-query attention", "gated feed-forward", "pre-norm", "rotary positions"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_sizes(name: str) -> None:
    model = open_model(real_checkpoint(name))
    sizes = {"family": model.family, "heads": model.heads} | {
        key: getattr(model.network, key) for key in ("applications", "hidden_size", "activation")
    }
    assert sizes == EXPECTED[name] | {"activation": ACTIVATIONS.get(name, "gelu")}
    assert model.extensions == EXTENSIONS.get(name, ())
    assert model.warnings == WARNINGS.get(name, ())
    width = FEED_FORWARD.get(name, 512)
    for layer in model.layers:
        assert layer.feed_forward
        assert layer.feed_forward.inner.shape == (model.hidden_size, width)
        assert layer.feed_forward.outer.shape == (width, model.hidden_size)
        assert layer.attention.output.shape == (model.hidden_size, model.hidden_size)
        assert (layer.cross is not None) == (layer.stack == "decoder")
    assert model.embedding().shape == EMBEDDINGS.get(name, (591, 256))


# Layer-0 query: top singular value of the trained matrix, measured when these checkpoints were chosen.
# Written with two decimals, so right within one unit of the last digit.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "top"), [("rxnfp-pretrained", 2.50), ("minilm", 6.13)])
def test_the_trained_query_matrix_is_the_one_read(name: str, top: float) -> None:
    model = open_model(real_checkpoint(name))
    query = model.read(model.layers[0].attention.query)
    assert np.linalg.norm(query, 2) == pytest.approx(top, abs=0.01)
    # Far outside the bulk edge 2 s sqrt(N) of a Gaussian matrix with the same variance.
    assert np.linalg.norm(query, 2) > 1.5 * 2 * query.std() * np.sqrt(len(query))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("rxnmapper", "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.key.weight"),
        ("rxnfp-pretrained", "bert.encoder.layer.11.attention.self.key.weight"),
        ("rxnfp-finetuned", "encoder.layer.11.attention.self.key.weight"),
        ("rxnfp-10k", "bert.encoder.layer.11.attention.self.key.weight"),
        ("minilm", "encoder.layer.5.attention.self.key.weight"),
        ("whisper-tiny.en", "decoder.blocks.3.attn.key.weight"),
    ],
)
def test_weights_equal_those_of_the_plain_loaders(name: str, tensor: str) -> None:
    folder = real_checkpoint(name)
    if name == "minilm":
        stored = load_file(folder / "model.safetensors")[tensor]
    else:
        file = "tiny.en.pt" if name == "whisper-tiny.en" else "pytorch_model.bin"
        loaded = torch.load(folder / file, map_location="cpu", weights_only=True)
        stored = loaded.get("model_state_dict", loaded)[tensor].numpy()
    model = open_model(folder)
    key = model.layers[-1].attention.key
    assert key.tensor == tensor
    assert np.array_equal(model.read(key), stored.astype(np.float64).T)


@pytest.mark.slow
def test_files_beside_the_weights_are_left_alone() -> None:
    folder = real_checkpoint("rxnfp-10k")
    beside = {file.name for file in folder.iterdir()}
    assert {"pytorch_model.bin", "training_args.bin", "scheduler.pt"} <= beside
    assert open_model(folder).tensors.source == str(folder / "pytorch_model.bin")
