"""T5 (plain and gated) and BART against their own implementations: both stacks and cross attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints.forward_pass import (
    check,
    make,
    recording,
    require_transformers,
    tokens,
)
from checkpoints.small import BART, T5

from attnlaw.checkpoints.open import open_model

CASES: dict[str, tuple[str, dict[str, Any], set[str], str]] = {
    "t5": ("T5ForConditionalGeneration", T5, {"pre-norm"}, "relu"),
    "t5 gated": (
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {"pre-norm", "gated feed-forward"},
        "gelu_new",
    ),
    "bart": ("BartForConditionalGeneration", BART, set(), "gelu"),
    "mbart": ("MBartForConditionalGeneration", BART, {"pre-norm"}, "gelu"),
}


@pytest.mark.parametrize("case", CASES)
def test_encoder_and_decoder(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_name, sizes, extensions, activation = CASES[case]
    if case.startswith("t5"):
        require_transformers("5.22", "T5's scores in float64")
    module = make(class_name, **sizes)
    with recording(module, monkeypatch) as run:
        module(input_ids=tokens()["input_ids"], decoder_input_ids=tokens()["input_ids"][:, :5])
    module.save_pretrained(tmp_path)
    model = open_model(tmp_path)
    check(model, run)
    assert [layer.stack for layer in model.layers] == ["encoder"] * 2 + ["decoder"] * 3
    assert [layer.cross is not None for layer in model.layers] == [False] * 2 + [True] * 3
    assert set(model.extensions) == {"cross attention"} | extensions
    assert (model.network.activation, model.hidden_size, model.warnings) == (activation, 24, ())
    assert np.array_equal(model.embedding(), module.get_input_embeddings().weight.detach().numpy())


def test_the_position_bias_of_t5_is_added_to_the_scores_and_is_no_part_of_qk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With its bias on, T5's scores differ from QK by the bias alone, the same for every input."""
    require_transformers("5.22", "T5's scores in float64")
    module = make("T5EncoderModel", **T5)
    bias = module.get_submodule("encoder.block.0.layer.0.SelfAttention.relative_attention_bias")
    bias.weight.data.normal_()
    with recording(module, monkeypatch) as run:
        module(**tokens())
    block = open_model(module).layers[0].attention
    maps = {role: open_model(module).read(getattr(block, role)) for role in ("query", "key")}
    x = run.inputs[block.query.tensor.removesuffix(".weight")][0][0].numpy()
    ours = np.stack(
        [x @ maps["query"][:, columns] @ maps["key"][:, columns].T @ x.T for columns in _heads(5, 4)]
    )
    table = module.encoder.block[0].layer[0].SelfAttention.compute_bias(7, 7)[0].detach().numpy()
    np.testing.assert_allclose(run.scores[0].reshape(4, 7, 7).numpy() - ours, table, rtol=0, atol=1e-12)


def _heads(size: int, heads: int) -> list[slice]:
    return [slice(head * size, (head + 1) * size) for head in range(heads)]
