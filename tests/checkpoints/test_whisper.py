"""Whisper against its own implementation, by Hugging Face's names and by OpenAI's."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints.forward_pass import check, make, recording, tokens
from checkpoints.small import WHISPER

from attnlaw.checkpoints.open import open_model

WHISPER_SIZES = WHISPER | {"eos_token_id": 0}
TO_OPENAI = (
    (r"^model\.", ""),
    (r"\.layers\.", ".blocks."),
    (r"\.self_attn_layer_norm\.", ".attn_ln."),
    (r"\.encoder_attn_layer_norm\.", ".cross_attn_ln."),
    (r"\.final_layer_norm\.", ".mlp_ln."),
    (r"encoder\.layer_norm\.", "encoder.ln_post."),
    (r"decoder\.layer_norm\.", "decoder.ln."),
    (r"\.self_attn\.", ".attn."),
    (r"\.encoder_attn\.", ".cross_attn."),
    (r"\.q_proj\.", ".query."),
    (r"\.k_proj\.", ".key."),
    (r"\.v_proj\.", ".value."),
    (r"\.out_proj\.", ".out."),
    (r"\.fc1\.", ".mlp.0."),
    (r"\.fc2\.", ".mlp.2."),
    (r"\.embed_tokens\.", ".token_embedding."),
    (r"encoder\.embed_positions\.weight", "encoder.positional_embedding"),
    (r"decoder\.embed_positions\.weight", "decoder.positional_embedding"),
)


def openai_name(name: str) -> str:
    for pattern, replacement in TO_OPENAI:
        name = re.sub(pattern, replacement, name)
    return name


@pytest.mark.parametrize("names", ["huggingface", "openai"])
def test_whisper(names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = make("WhisperForConditionalGeneration", **WHISPER_SIZES)
    features = torch.randn(1, 8, 18, dtype=torch.float64, generator=torch.manual_seed(5))
    with recording(module, monkeypatch) as run:
        module(input_features=features, decoder_input_ids=tokens()["input_ids"])
    state = {name: value for name, value in module.state_dict().items() if name != "proj_out.weight"}
    if names == "huggingface":
        module.save_pretrained(tmp_path)
        model = open_model(tmp_path)
        check(model, run)
    else:
        dims = {
            "n_text_state": 24,
            "n_audio_head": 4,
            "n_audio_layer": 2,
            "n_text_head": 6,
            "n_text_layer": 3,
        }
        weights = {openai_name(name): value for name, value in state.items()}
        torch.save({"dims": dims, "model_state_dict": weights}, tmp_path / "tiny.pt")
        model = open_model(tmp_path / "tiny.pt")
        check(model, run)
    assert model.family == "whisper"
    assert [layer.stack for layer in model.layers] == ["encoder"] * 2 + ["decoder"] * 3
    assert [layer.attention.heads for layer in model.layers] == [4, 4, 6, 6, 6]
    assert [layer.cross is not None for layer in model.layers] == [False] * 2 + [True] * 3
    assert set(model.extensions) == {"cross attention", "pre-norm"}
    assert np.array_equal(model.embedding(), module.get_input_embeddings().weight.detach().numpy())
