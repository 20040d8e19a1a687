"""Every Hugging Face family against its own implementation at small size with random weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints.forward_pass import Run, check, make, recording, tokens
from checkpoints.small import PLAIN, VOCABULARY

from attnlaw.checkpoints.blocks import Attention
from attnlaw.checkpoints.open import open_model

SIZES = PLAIN | {"vocab_size": VOCABULARY, "pad_token_id": 1}
GROUPED = SIZES | {"num_key_value_heads": 2}


GPT2_SIZES = {
    "vocab_size": VOCABULARY,
    "n_embd": 24,
    "n_head": 4,
    "n_layer": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
ELECTRA_SIZES = SIZES | {"embedding_size": 16}
ALBERT_SIZES = SIZES | {"embedding_size": 16, "num_hidden_layers": 6, "hidden_act": "gelu"}
DISTIL_SIZES = {"vocab_size": VOCABULARY, "dim": 24, "n_heads": 4, "n_layers": 2, "hidden_dim": 36}
OPT_SIZES = {key: SIZES[key] for key in SIZES if key != "intermediate_size"} | {
    "ffn_dim": 36,
    "word_embed_proj_dim": 24,
}
GEMMA = GROUPED | {"head_dim": 10, "query_pre_attn_scalar": 7, "attn_logit_softcapping": None}

# class, sizes, family, what attnlaw says beyond a plain encoder
CASES: dict[str, tuple[str, dict[str, Any], str, set[str]]] = {
    "bert": ("BertModel", SIZES, "bert", set()),
    "bert prefix": ("BertForMaskedLM", SIZES | {"hidden_act": "relu"}, "bert", set()),
    "bert decoder": (
        "BertLMHeadModel",
        SIZES | {"is_decoder": True, "add_cross_attention": True},
        "bert",
        {"cross attention"},
    ),
    "roberta": ("RobertaForMaskedLM", SIZES, "roberta", set()),
    "electra": ("ElectraForPreTraining", ELECTRA_SIZES, "electra", set()),
    "distilbert": ("DistilBertForMaskedLM", DISTIL_SIZES, "distilbert", set()),
    "mpnet": ("MPNetForMaskedLM", SIZES, "mpnet", set()),
    "albert": ("AlbertForMaskedLM", ALBERT_SIZES, "albert", {"shared layers"}),
    "albert 2 groups": (
        "AlbertModel",
        ALBERT_SIZES | {"num_hidden_groups": 2},
        "albert",
        {"shared layers"},
    ),
    "albert inner 2": (
        "AlbertModel",
        ALBERT_SIZES | {"num_hidden_groups": 3, "inner_group_num": 2},
        "albert",
        {"shared layers"},
    ),
    "gpt2": ("GPT2LMHeadModel", GPT2_SIZES, "gpt2", {"pre-norm"}),
    "gpt2 cross": (
        "GPT2LMHeadModel",
        GPT2_SIZES | {"add_cross_attention": True, "n_inner": 30},
        "gpt2",
        {"pre-norm", "cross attention"},
    ),
    "gpt2 unscaled": ("GPT2LMHeadModel", GPT2_SIZES | {"scale_attn_weights": False}, "gpt2", {"pre-norm"}),
    "gpt2 by layer": (
        "GPT2LMHeadModel",
        GPT2_SIZES | {"scale_attn_by_inverse_layer_idx": True},
        "gpt2",
        {"pre-norm"},
    ),
    "llama": ("LlamaForCausalLM", GROUPED, "llama", set()),
    "mistral": ("MistralForCausalLM", GROUPED | {"head_dim": 10}, "mistral", set()),
    "qwen2": ("Qwen2Model", GROUPED, "qwen2", set()),
    "qwen3": ("Qwen3ForCausalLM", GROUPED | {"head_dim": 10}, "qwen3", set()),
    "gemma2": ("Gemma2ForCausalLM", GEMMA, "gemma2", set()),
    "gemma3": ("Gemma3ForCausalLM", GEMMA, "gemma3_text", set()),
    "phi3": ("Phi3ForCausalLM", GROUPED, "phi3", set()),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        SIZES,
        "gpt_neox",
        {"pre-norm", "rotary positions", "parallel attention and feed-forward"},
    ),
    "opt": ("OPTForCausalLM", OPT_SIZES, "opt", {"pre-norm"}),
    "opt post-norm": ("OPTModel", OPT_SIZES | {"do_layer_norm_before": False}, "opt", set()),
}
SMALL: dict[str, dict[str, Any]] = {
    "BartForConditionalGeneration": {"encoder_layers": 2, "decoder_layers": 2},
    "WhisperForConditionalGeneration": {"encoder_layers": 2, "decoder_layers": 2},
    "T5ForConditionalGeneration": {"num_layers": 2},
    "GPT2LMHeadModel": {"n_layer": 2},
    "DeepseekV3ForCausalLM": {"num_hidden_layers": 4},
}
DECODERS = {"grouped-query attention", "gated feed-forward", "pre-norm", "rotary positions"}


def run_of(case: str, module: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> Run:
    arguments = tokens()
    if "cross attention" in CASES[case][3]:
        arguments["encoder_hidden_states"] = torch.randn(1, 5, 24, dtype=torch.float64)
    with recording(module, monkeypatch) as run:
        module(**arguments)
    return run


@pytest.mark.parametrize("case", CASES)
def test_the_factors_are_the_models_own(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_name, sizes, family, extensions = CASES[case]
    module = make(class_name, **sizes)
    module.save_pretrained(tmp_path)
    model = open_model(tmp_path)

    check(model, run_of(case, module, monkeypatch))
    assert (model.family, model.hidden_size, model.heads) == (family, 24, 4)
    gated = any(layer.feed_forward and layer.feed_forward.gate for layer in model.layers)
    assert set(model.extensions) == (DECODERS if gated else extensions)
    normalised = any("the model normalises queries and" in text for text in model.warnings)
    assert normalised == (case in ("qwen3", "gemma3"))
    assert len(model.warnings) == normalised
    assert np.array_equal(model.embedding(), module.get_input_embeddings().weight.detach().numpy())
    if model.unembedding_view:
        unembedding = module.get_output_embeddings().weight.detach().numpy()
        assert np.array_equal(model.read(model.unembedding_view), unembedding.T)


def test_a_multiplier_of_the_scores_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = make("GraniteForCausalLM", **GROUPED, attention_multiplier=0.7)
    with recording(module, monkeypatch) as run:
        module(**tokens())
    module.save_pretrained(tmp_path)
    model = open_model(tmp_path)
    check(model, run)
    assert {layer.attention.scores.scale for layer in model.layers} == {0.7}


@pytest.mark.parametrize(
    ("groups", "inner", "expected"),
    [(1, 1, [0] * 6), (2, 1, [0, 0, 0, 1, 1, 1]), (3, 2, [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5])],
)
def test_albert_applies_each_group_in_turn(groups: int, inner: int, expected: list[int]) -> None:
    sizes = ALBERT_SIZES | {"num_hidden_groups": groups, "inner_group_num": inner}
    assert list(open_model(make("AlbertModel", **sizes)).network.applications) == expected


@pytest.mark.parametrize("case", ["llama", "mistral", "qwen3", "phi3"])
def test_without_a_config_key_heads_follow_from_the_shapes(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class_name, sizes, _, _ = CASES[case]
    module = make(class_name, **sizes)
    model = open_model(module.state_dict(), heads=4)
    assert {layer.attention.kv_heads for layer in model.layers} == {2}
    check(model, run_of(case, module, monkeypatch))


# Families that share some of their names, and what a bare state dict of each must be read as.
NAMED = {
    "BartForConditionalGeneration": "bart",
    "WhisperForConditionalGeneration": "whisper",
    "OPTForCausalLM": "opt",
    "GPTNeoXForCausalLM": "gpt_neox",
    "T5ForConditionalGeneration": "t5",
    "ViTForImageClassification": "vit",
    "GPT2LMHeadModel": "gpt2",
    "MixtralForCausalLM": "llama",
    "DeepseekV3ForCausalLM": "deepseek",
    "Phi3ForCausalLM": "phi3",
    "MPNetForMaskedLM": "mpnet",
}


@pytest.mark.parametrize("class_name", NAMED)
def test_names_alone_tell_the_family(class_name: str) -> None:
    """On the meta device: names and shapes without weights, at the size that the library defaults to."""
    kind = getattr(transformers, class_name)
    with torch.device("meta"):
        module = kind(kind.config_class(**SMALL.get(class_name, {"num_hidden_layers": 2})))
    latent = class_name == "DeepseekV3ForCausalLM"  # where the number of heads must be the model's own
    model = open_model(module.state_dict(), heads=module.config.num_attention_heads if latent else 8)
    assert model.family == NAMED[class_name]
    left_out = [text for text in model.warnings if "leaves out" in text]
    assert not left_out


def test_the_language_model_of_a_multimodal_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vision = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 20}
    vision |= {"image_size": 28, "patch_size": 14}
    module = make("Gemma3ForConditionalGeneration", text_config=GEMMA, vision_config=vision)
    with recording(module, monkeypatch) as run:
        module(**tokens())
    model = open_model(module)
    check(model, run)
    assert any("leaves out the vision tower" in text for text in model.warnings)

    module.save_pretrained(tmp_path)
    saved = open_model(tmp_path)
    assert (saved.family, len(saved.layers), saved.heads) == ("gemma3_text", 2, 4)
    assert np.array_equal(saved.embedding(), model.embedding())


def test_softcapped_scores_are_announced() -> None:
    model = open_model(make("Gemma2Model", **GEMMA | {"attn_logit_softcapping": 50.0}))
    assert any("the model caps the scores" in text for text in model.warnings)


def test_clipped_queries_are_announced() -> None:
    model = open_model(make("OlmoForCausalLM", **GROUPED, clip_qkv=8.0))
    assert model.warnings == (
        "the model clips queries, keys and values at 8 (clip_qkv); QK and VO ignore it",
    )


def test_a_wrong_head_mapping_or_orientation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    llama, gpt2 = make("LlamaForCausalLM", **GROUPED), make("GPT2LMHeadModel", **GPT2_SIZES)
    runs = {case: run_of(case, module, monkeypatch) for case, module in (("llama", llama), ("gpt2", gpt2))}
    with monkeypatch.context() as patch:
        patch.setattr(Attention, "kv_head", lambda self, head: head % self.kv_heads)
        with pytest.raises(AssertionError):
            check(open_model(llama), runs["llama"])

    model = open_model(gpt2)
    check(model, runs["gpt2"])
    first = model.layers[0]
    view = dataclasses.replace(first.attention.output, stored_out_in=True)
    turned = dataclasses.replace(first, attention=dataclasses.replace(first.attention, output=view))
    with pytest.raises(AssertionError):
        check(dataclasses.replace(model, layers=(turned, model.layers[1])), runs["gpt2"])
