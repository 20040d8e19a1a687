"""Every family against the real implementation: scores, head contributions and feed-forward maps.

A small random model runs once. Its own pre-softmax scores are taken at the call of `softmax`, the
hidden states at the inputs of its linear maps. Biases are zero, rotary angles zero, query/key norms off.
All arithmetic is float64 on sums of at most a few hundred terms of order one, so rounding stays
below 1e-12 of the largest entry; weights are saved as float64.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.activations import ACT2FN

from attnlaw.checkpoints import Attention, Layer, Model, open_model

TOLERANCE = 1e-12
VOCABULARY = 40
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 36,
    "pad_token_id": 1,
}
GROUPED = SIZES | {"num_key_value_heads": 2}


@dataclass
class Run:
    """What a real model did in one forward pass, in the order of the calls."""

    module: torch.nn.Module
    scores: list[torch.Tensor] = field(default_factory=list)
    inputs: dict[str, list[torch.Tensor]] = field(default_factory=lambda: defaultdict(list))


def make(name: str, **changes: Any) -> torch.nn.Module:
    """A float64 `transformers` model of class `name` with random weights, zero biases, no norms of heads."""
    torch.manual_seed(7)
    kind = getattr(transformers, name)
    config = kind.config_class(**changes)
    config._attn_implementation = "eager"
    model = kind(config).double().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias") or "relative_attention_bias" in parameter_name:
                parameter.zero_()
            elif parameter.ndim > 1:
                parameter.normal_(std=0.3)
    for module_name, module in model.named_modules():
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.register_forward_hook(lambda _m, _i, out: (torch.ones_like(out[0]), out[1] * 0))
        if module_name.endswith(("q_norm", "k_norm")):
            module.register_forward_hook(lambda _m, inputs, _o: inputs[0])
    return model


@contextmanager
def recording(module: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Record the scores that reach `softmax` and the input of every submodule that has a weight."""
    run = Run(module)
    softmax = torch.nn.functional.softmax

    def recorded(scores: torch.Tensor, dim: int = -1, **_: Any) -> torch.Tensor:
        run.scores.append(scores.detach())
        return softmax(scores, dim=dim)

    handles = [
        part.register_forward_pre_hook(lambda _m, args, name=name: run.inputs[name].append(args[0].detach()))
        for name, part in module.named_modules()
        if getattr(part, "weight", None) is not None
    ]
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(torch.nn.functional, "softmax", recorded)
        yield run
    for handle in handles:
        handle.remove()


def check(model: Model, run: Run, scale: Callable[[int], float], rename: Callable[[str], str] = str) -> None:
    """The factors that attnlaw read reproduce every score and head contribution of the run."""
    seen: dict[str, int] = defaultdict(int)

    def module_of(tensor: str) -> str:
        return rename(tensor).removesuffix(".weight")

    blocks = [
        (layer, block)
        for depth in model.applications
        for layer in [model.layers[depth]]
        for block in (layer.attention, layer.cross)
        if block
    ]
    assert len(blocks) == len(run.scores)
    for (_layer, block), scores in zip(blocks, run.scores, strict=True):
        names = {role: module_of(getattr(block, role).tensor) for role in ("query", "key", "value", "output")}
        x = {role: run.inputs[name][seen[name]][0].numpy() for role, name in names.items()}
        for name in set(names.values()):
            seen[name] += 1
        check_block(
            model,
            block,
            scores=scores.reshape(block.heads, *scores.shape[-2:]).numpy(),
            x=x,
            scale=scale(block.head_size),
            output=lambda context, name=names["output"]: (
                run.module.get_submodule(name)(torch.from_numpy(context)[None])[0].detach().numpy()
            ),
        )
    for layer in model.layers:
        check_feed_forward(model, layer, run, module_of)


def check_block(
    model: Model,
    block: Attention,
    scores: np.ndarray,
    x: dict[str, np.ndarray],
    scale: float,
    output: Callable[[np.ndarray], np.ndarray],
) -> None:
    maps = {role: model.read(getattr(block, role)) for role in ("query", "key", "value", "output")}
    size = block.head_size
    for head in range(block.heads):
        own = slice(head * size, (head + 1) * size)
        group = block.kv_head(head)
        shared = slice(group * size, (group + 1) * size)
        ours = scale * (x["query"] @ maps["query"][:, own]) @ (x["key"] @ maps["key"][:, shared]).T
        theirs = scores[head]
        allowed = theirs > -1e30
        assert np.ptp(theirs[allowed]) > 1e6 * TOLERANCE
        close(ours[allowed], theirs[allowed])

        weights = np.where(allowed, np.exp(theirs - theirs.max(axis=1, keepdims=True)), 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
        contribution = weights @ (x["value"] @ maps["value"][:, shared]) @ maps["output"][own]
        only_this_head = np.zeros_like(x["output"])
        only_this_head[:, own] = x["output"][:, own]
        close(contribution, output(only_this_head))


def check_feed_forward(model: Model, layer: Layer, run: Run, module_of: Callable[[str], str]) -> None:
    """Input of M_out = phi(x M_in), or phi(x M_gate) * x M_in, with the activation the model names."""
    assert layer.feed_forward
    maps = layer.feed_forward
    x = run.inputs[module_of(maps.inner.tensor)][0]
    hidden = run.inputs[module_of(maps.outer.tensor)][0]
    activation = ACT2FN[model.activation]
    inner = x @ torch.from_numpy(model.read(maps.inner))
    if maps.gate:
        expected = activation(x @ torch.from_numpy(model.read(maps.gate))) * inner
    else:
        expected = activation(inner)
    close(expected.numpy(), hidden.numpy())
    outer = run.module.get_submodule(module_of(maps.outer.tensor))
    close((hidden @ torch.from_numpy(model.read(maps.outer))).numpy(), outer(hidden).detach().numpy())


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * max(1.0, np.abs(theirs).max()))


def tokens() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(2, VOCABULARY, (1, 7), generator=torch.manual_seed(3))}


def standard_scale(head_size: int) -> float:
    return float(head_size**-0.5)


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
    "llama": ("LlamaForCausalLM", GROUPED, "llama", set()),
    "mistral": ("MistralForCausalLM", GROUPED | {"head_dim": 10}, "mistral", set()),
    "qwen2": ("Qwen2Model", GROUPED, "qwen2", set()),
    "qwen3": ("Qwen3ForCausalLM", GROUPED | {"head_dim": 10}, "qwen3", set()),
    "gemma2": ("Gemma2ForCausalLM", GEMMA, "gemma2", set()),
    "gemma3": ("Gemma3ForCausalLM", GEMMA, "gemma3_text", set()),
    "phi3": ("Phi3ForCausalLM", GROUPED, "phi3", set()),
}
DECODERS = {"grouped-query attention", "gated feed-forward", "pre-norm", "rotary positions"}


def run_of(case: str, module: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> Run:
    arguments = tokens()
    if "cross attention" in CASES[case][3]:
        arguments["encoder_hidden_states"] = torch.randn(1, 5, 24, dtype=torch.float64)
    with recording(module, monkeypatch) as run:
        module(**arguments)
    return run


def scale_of(case: str) -> Callable[[int], float]:
    return (lambda _size: 7**-0.5) if case.startswith("gemma") else standard_scale


@pytest.mark.parametrize("case", CASES)
def test_the_factors_are_the_models_own(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_name, sizes, family, extensions = CASES[case]
    module = make(class_name, **sizes)
    module.save_pretrained(tmp_path)
    model = open_model(tmp_path)

    check(model, run_of(case, module, monkeypatch), scale_of(case))
    assert (model.family, model.hidden_size, model.heads) == (family, 24, 4)
    gated = any(layer.feed_forward and layer.feed_forward.gate for layer in model.layers)
    assert set(model.extensions) == (DECODERS if gated else extensions)
    normalised = any("normalised before their product" in text for text in model.warnings)
    assert normalised == (case in ("qwen3", "gemma3"))
    assert len(model.warnings) == normalised
    assert np.array_equal(model.embedding(), module.get_input_embeddings().weight.detach().numpy())
    if model.unembedding_view:
        unembedding = module.get_output_embeddings().weight.detach().numpy()
        assert np.array_equal(model.read(model.unembedding_view), unembedding.T)


@pytest.mark.parametrize(
    ("groups", "inner", "expected"),
    [(1, 1, [0] * 6), (2, 1, [0, 0, 0, 1, 1, 1]), (3, 2, [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5])],
)
def test_albert_applies_each_group_in_turn(groups: int, inner: int, expected: list[int]) -> None:
    sizes = ALBERT_SIZES | {"num_hidden_groups": groups, "inner_group_num": inner}
    assert list(open_model(make("AlbertModel", **sizes)).applications) == expected


def test_softcapped_scores_are_announced() -> None:
    model = open_model(make("Gemma2Model", **GEMMA | {"attn_logit_softcapping": 50.0}))
    assert any("soft-capped" in text for text in model.warnings)


WHISPER_SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 36,
    "decoder_ffn_dim": 30,
    "num_mel_bins": 8,
    "max_source_positions": 9,
    "max_target_positions": 16,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
TO_OPENAI = (
    (r"^model\.", ""),
    (r"\.layers\.", ".blocks."),
    (r"\.self_attn_layer_norm\.", ".attn_ln."),
    (r"\.encoder_attn_layer_norm\.", ".cross_attn_ln."),
    (r"\.final_layer_norm\.", ".mlp_ln."),
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
        check(model, run, standard_scale)
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
        back = {openai_name(name): name for name in state}
        model = open_model(tmp_path / "tiny.pt")
        check(model, run, standard_scale, back.__getitem__)
    assert model.family == "whisper"
    assert [layer.stack for layer in model.layers] == ["encoder"] * 2 + ["decoder"] * 3
    assert [layer.attention.heads for layer in model.layers] == [4, 4, 6, 6, 6]
    assert [layer.cross is not None for layer in model.layers] == [False] * 2 + [True] * 3
    assert set(model.extensions) == {"cross attention", "pre-norm"}
    assert np.array_equal(model.embedding(), module.get_input_embeddings().weight.detach().numpy())


TORCH_SIZES: dict[str, Any] = {"dim_feedforward": 30, "dropout": 0.0, "batch_first": True}


def torch_modules() -> dict[str, torch.nn.Module]:
    torch.manual_seed(11)
    encoder_layer = torch.nn.TransformerEncoderLayer(24, 4, **TORCH_SIZES)
    decoder_layer = torch.nn.TransformerDecoderLayer(24, 4, activation="gelu", **TORCH_SIZES)
    return {
        "TransformerEncoder": torch.nn.TransformerEncoder(encoder_layer, 2, enable_nested_tensor=False),
        "TransformerEncoderLayer": encoder_layer,
        "TransformerDecoder": torch.nn.TransformerDecoder(decoder_layer, 2),
        "Transformer": torch.nn.Transformer(24, 4, 2, 3, **TORCH_SIZES),
        "MultiheadAttention": torch.nn.MultiheadAttention(24, 4, batch_first=True),
    }


@pytest.mark.parametrize("source", ["module", "file"])
@pytest.mark.parametrize("kind", torch_modules())
def test_torch_modules(kind: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch_modules()[kind].double()
    if source == "module":
        model = open_model(module)
    else:
        torch.save(module.state_dict(), tmp_path / "weights.pt")
        model = open_model(tmp_path / "weights.pt", heads=4)

    blocks = {
        block.output.tensor.removesuffix("out_proj.weight").removesuffix("."): block
        for layer in model.layers
        for block in (layer.attention, layer.cross)
        if block
    }
    attentions = {
        name: part for name, part in module.named_modules() if isinstance(part, torch.nn.MultiheadAttention)
    }
    assert list(blocks) == list(attentions)
    for name, attention in attentions.items():
        check_torch_attention(model, blocks[name], attention, monkeypatch)
        assert blocks[name].cross == name.endswith("multihead_attn")
    for layer in model.layers:
        assert (layer.feed_forward is None) == (kind == "MultiheadAttention")
        if layer.feed_forward:
            for view in (layer.feed_forward.inner, layer.feed_forward.outer):
                stored = module.get_parameter(view.tensor).detach().numpy()
                assert np.array_equal(model.read(view), stored.T)


def check_torch_attention(
    model: Model, block: Attention, attention: torch.nn.MultiheadAttention, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.manual_seed(13)
    queries, keys, values = (
        torch.randn(1, count, 24, dtype=torch.float64, generator=draw) for count in (5, 7, 7)
    )
    whole = attention.out_proj.weight.detach().clone()
    with recording(attention, monkeypatch) as run:
        for head in range(4):  # one head at a time: the other heads' columns of the output map are zero
            attention.out_proj.weight.zero_()
            own = slice(6 * head, 6 * head + 6)
            attention.out_proj.weight[:, own] = whole[:, own]
            contribution = attention(queries, keys, values, average_attn_weights=False)[0][0].numpy()
            scores = run.scores[-1].reshape(4, 5, 7)[head].numpy()
            maps = {
                role: model.read(getattr(block, role))[:, own].T @ tensor[0].numpy().T
                for role, tensor in (("query", queries), ("key", keys), ("value", values))
            }
            close(6**-0.5 * maps["query"].T @ maps["key"], scores)
            weights = torch.from_numpy(scores).softmax(-1).numpy()
            attention.out_proj.weight.copy_(whole)
            close(weights @ maps["value"].T @ model.read(block.output)[own], contribution)


def test_a_wrong_head_mapping_or_orientation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    llama, gpt2 = make("LlamaForCausalLM", **GROUPED), make("GPT2LMHeadModel", **GPT2_SIZES)
    runs = {case: run_of(case, module, monkeypatch) for case, module in (("llama", llama), ("gpt2", gpt2))}
    with monkeypatch.context() as patch:
        patch.setattr(Attention, "kv_head", lambda self, head: head % self.kv_heads)
        with pytest.raises(AssertionError):
            check(open_model(llama), runs["llama"], standard_scale)

    model = open_model(gpt2)
    check(model, runs["gpt2"], standard_scale)
    first = model.layers[0]
    view = dataclasses.replace(first.attention.output, stored_out_in=True)
    turned = dataclasses.replace(first, attention=dataclasses.replace(first.attention, output=view))
    with pytest.raises(AssertionError):
        check(dataclasses.replace(model, layers=(turned, model.layers[1])), runs["gpt2"], standard_scale)
