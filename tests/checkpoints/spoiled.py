"""A small BERT checkpoint to spoil, and the one line that opening it must then end in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError

State = dict[str, torch.Tensor]
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "intermediate_size": 12,
}
LAYER = "encoder.layer.{}."
QUERY = "encoder.layer.0.attention.self.query.weight"


def bert_state(layers: int = 3) -> State:
    torch.manual_seed(1)
    state = {"embeddings.word_embeddings.weight": torch.randn(10, 8)}
    for layer in range(layers):
        at = LAYER.format(layer)
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            state[f"{at}attention.{name}.weight"] = torch.randn(8, 8)
        state[f"{at}intermediate.dense.weight"] = torch.randn(12, 8)
        state[f"{at}output.dense.weight"] = torch.randn(8, 12)
    return state


def write_good(folder: Path) -> Path:
    """A directory with a good checkpoint, for a test to spoil."""
    config_with(folder)
    save_file(bert_state(), folder / "model.safetensors")
    return folder


def read_all(model: Model) -> None:
    for layer in model.layers:
        assert layer.feed_forward
        block = layer.attention
        for view in (block.query, block.key, block.value, block.output):
            model.read(view)
        model.read(layer.feed_forward.inner)
        model.read(layer.feed_forward.outer)


def refusal(source: Any, *parts: str, heads: int | None = None, read: bool = False) -> str:
    """The message of the error that opening (or reading all of) `source` ends in; it is one line."""
    with pytest.raises(InputError) as caught:
        read_all(open_model(source, heads=heads)) if read else open_model(source, heads=heads)
    message = str(caught.value)
    assert "\n" not in message
    assert "\x1b" not in message
    assert ";" in message  # what is wrong; what to do
    for part in parts:
        assert part in message, message
    return message


def config_with(folder: Path, **changes: Any) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
