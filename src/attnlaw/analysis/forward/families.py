"""Families of models: how the modules of a Hugging Face model form a chain of affine blocks.

Post-norm (BERT): X -> norm(X + attention(X)) -> norm(X + feed_forward(X)).
Pre-norm (GPT-2, LLaMA): X -> X + attention(norm(X)) -> X + feed_forward(norm(X)), with one norm at the end.

A gated feed-forward block (LLaMA), x -> (phi(x W_gate) * x W_in) W_out, is linear in the second factor if the
first is frozen: D_i = diag(phi(x_i W_gate)). This choice is an extension of arXiv 2601.17958. Freezing the
other factor and the slope of phi would also be exact, but would give another operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.forward.blocks import (
    BlockChain,
    FrozenAttention,
    FrozenBlock,
    FrozenFeedForward,
    FrozenNorm,
    Residual,
)
from attnlaw.analysis.forward.scores import FrozenScores
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError

# Torch tensors of one forward pass. For a module without children: its input and output. For an attention
# module: its mask and None.
ModuleTensors = Mapping[Any, tuple[Any, Any]]
# Weight of shape (in, out) and bias of an affine module.
Affine = tuple[Reals, Reals]


@dataclass(frozen=True, eq=False)
class BlockModules:
    attention: Any  # the attention module, which returns its probabilities
    query_module: Any  # a module whose input is what queries are made of
    output: Any  # the output projection of attention
    feed_forward_modules: Mapping[str, Any]  # the feed-forward matrices, by the kind that an audit gives them


@dataclass(frozen=True)
class FamilyReader:
    """Functions and classes that build and read models of one type with `transformers`."""

    config: str  # this and `model`, `classifier` and `causal` are names of classes
    model: str
    read_blocks: Callable[[Any, ModuleTensors, Sequence[Reals]], Iterator[FrozenBlock]]
    read_scores: Callable[[Any, ModuleTensors], Iterator[FrozenScores]]
    find_modules: Callable[[Any], BlockModules]
    options: Mapping[str, Any] = field(default_factory=dict)
    positions_after_padding: bool = False  # whether positions start after the id of the padding token
    classifier: str | None = None
    labels: str = "classifier.weight"  # name of the last tensor of the classifier
    causal: str | None = None


def _bert_blocks(model: Any, seen: ModuleTensors, probabilities: Sequence[Reals]) -> Iterator[FrozenBlock]:
    for layer, weights in zip(model.encoder.layer, probabilities, strict=True):
        attention, inner = layer.attention, layer.intermediate
        value, output = _affine(attention.self.value), _affine(attention.output.dense)
        yield Residual(FrozenAttention(weights, *value, *output))
        yield _norm(attention.output.LayerNorm, seen)
        yield Residual(_feed_forward(inner.dense, inner.intermediate_act_fn, layer.output.dense, seen))
        yield _norm(layer.output.LayerNorm, seen)


def _gpt2_blocks(model: Any, seen: ModuleTensors, probabilities: Sequence[Reals]) -> Iterator[FrozenBlock]:
    for layer, weights in zip(model.h, probabilities, strict=True):
        fused, bias = _affine(layer.attn.c_attn)
        third = fused.shape[1] // 3
        value = fused[:, 2 * third :], bias[2 * third :]
        attention = FrozenAttention(weights, *value, *_affine(layer.attn.c_proj))
        yield Residual(BlockChain((_norm(layer.ln_1, seen), attention)))
        feed_forward = _feed_forward(layer.mlp.c_fc, layer.mlp.act, layer.mlp.c_proj, seen)
        yield Residual(BlockChain((_norm(layer.ln_2, seen), feed_forward)))
    yield _norm(model.ln_f, seen)


def _llama_blocks(model: Any, seen: ModuleTensors, probabilities: Sequence[Reals]) -> Iterator[FrozenBlock]:
    for layer, weights in zip(model.layers, probabilities, strict=True):
        value, output = _affine(layer.self_attn.v_proj), _affine(layer.self_attn.o_proj)
        attention = FrozenAttention(weights, *_repeat_value_heads(value, output, len(weights)), *output)
        yield Residual(BlockChain((_norm(layer.input_layernorm, seen), attention)))
        gate = _first_in_batch(layer.mlp.act_fn(seen[layer.mlp.gate_proj][1]))
        feed_forward = FrozenFeedForward(*_affine(layer.mlp.up_proj), gate, *_affine(layer.mlp.down_proj))
        yield Residual(BlockChain((_norm(layer.post_attention_layernorm, seen), feed_forward)))
    yield _norm(model.norm, seen)


def _bert_scores(model: Any, seen: ModuleTensors) -> Iterator[FrozenScores]:
    for layer in model.encoder.layer:
        attention = layer.attention.self
        query, key = _affine(attention.query), _affine(attention.key)
        inputs, allowed = _inputs_and_mask(attention.query, attention, seen)
        heads, scale = attention.num_attention_heads, float(attention.scaling)
        yield FrozenScores(inputs, *query, *key, heads, heads, scale, allowed)


def _gpt2_scores(model: Any, seen: ModuleTensors) -> Iterator[FrozenScores]:
    for layer in model.h:
        attention = layer.attn
        fused, bias = _affine(attention.c_attn)
        width = fused.shape[1] // 3
        query, key = ((fused[:, part], bias[part]) for part in (slice(0, width), slice(width, 2 * width)))
        inputs, allowed = _inputs_and_mask(attention.c_attn, attention, seen)
        heads, scale = attention.num_heads, float(attention.scaling)
        yield FrozenScores(inputs, *query, *key, heads, heads, scale, allowed)


def _llama_scores(model: Any, seen: ModuleTensors) -> Iterator[FrozenScores]:
    cos, sin = (part[0].numpy() for part in seen[model.rotary_emb][1])
    for layer in model.layers:
        attention = layer.self_attn
        query, key = _affine(attention.q_proj), _affine(attention.k_proj)
        heads = query[1].size // attention.head_dim, key[1].size // attention.head_dim
        inputs, allowed = _inputs_and_mask(attention.q_proj, attention, seen)
        yield FrozenScores(inputs, *query, *key, *heads, float(attention.scaling), allowed, (cos, sin))


def _bert_modules(block: Any) -> BlockModules:
    attention = block.attention.self
    maps = {"ffn_in": block.intermediate.dense, "ffn_out": block.output.dense}
    return BlockModules(attention, attention.query, block.attention.output.dense, maps)


def _gpt2_modules(block: Any) -> BlockModules:
    maps = {"ffn_in": block.mlp.c_fc, "ffn_out": block.mlp.c_proj}
    return BlockModules(block.attn, block.attn.c_attn, block.attn.c_proj, maps)


def _llama_modules(block: Any) -> BlockModules:
    attention, mlp = block.self_attn, block.mlp
    maps = {"ffn_in": mlp.up_proj, "ffn_gate": mlp.gate_proj, "ffn_out": mlp.down_proj}
    return BlockModules(attention, attention.q_proj, attention.o_proj, maps)


_BERT = _bert_blocks, _bert_scores, _bert_modules, {"add_pooling_layer": False}
_GPT2 = _gpt2_blocks, _gpt2_scores, _gpt2_modules
_LLAMA = _llama_blocks, _llama_scores, _llama_modules
# A new family with one of these layouts is one more entry.
FAMILIES: dict[str, FamilyReader] = {
    "bert": FamilyReader("BertConfig", "BertModel", *_BERT, classifier="BertForSequenceClassification"),
    "roberta": FamilyReader(
        *("RobertaConfig", "RobertaModel", *_BERT),
        positions_after_padding=True,
        classifier="RobertaForSequenceClassification",
        labels="classifier.out_proj.weight",
    ),
    "gpt2": FamilyReader("GPT2Config", "GPT2Model", *_GPT2, causal="GPT2LMHeadModel"),
    "llama": FamilyReader("LlamaConfig", "LlamaModel", *_LLAMA, causal="LlamaForCausalLM"),
    "mistral": FamilyReader("MistralConfig", "MistralModel", *_LLAMA, causal="MistralForCausalLM"),
    "qwen2": FamilyReader("Qwen2Config", "Qwen2Model", *_LLAMA, causal="Qwen2ForCausalLM"),
}


def _first_in_batch(tensor: Any) -> Reals:
    array: Reals = tensor.detach().numpy()[0]
    return array


def _affine(module: Any) -> Affine:
    """Return the weight as (in, out) and the bias of a Linear or a Conv1D."""
    weight = module.weight.detach().numpy()
    weight = weight if type(module).__name__ == "Conv1D" else weight.T
    bias = np.zeros(weight.shape[1]) if module.bias is None else module.bias.detach().numpy()
    return weight, bias


def _repeat_value_heads(value: Affine, output: Affine, heads: int) -> Affine:
    """Repeat each value head once for every query head that reads it."""
    head_size = output[0].shape[0] // heads
    groups = value[1].size // head_size

    def repeat(columns: Reals) -> Reals:
        by_head = columns.reshape(*columns.shape[:-1], groups, head_size)
        return np.repeat(by_head, heads // groups, axis=-2).reshape(*columns.shape[:-1], -1)

    return repeat(value[0]), repeat(value[1])


def _inputs_and_mask(reads: Any, attention: Any, seen: ModuleTensors) -> tuple[Reals, NDArray[np.bool_]]:
    """Return the inputs of an attention module (those of `reads`), and which pairs of tokens it allows."""
    inputs, mask = _first_in_batch(seen[reads][0]), seen[attention][0]
    shape = len(inputs), len(inputs)
    # The mask adds the smallest number of its type to masked scores, and 0 to the others.
    allowed = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask[0, 0].numpy() == 0, shape)
    return inputs, allowed


def _norm(module: Any, seen: ModuleTensors) -> FrozenNorm:
    """Return a LayerNorm or an RMSNorm with the scales of its measured input."""
    x = _first_in_batch(seen[module][0])
    centred = type(module).__name__ == "LayerNorm"
    variance = x.var(axis=-1) if centred else (x**2).mean(axis=-1)
    gain = module.weight.detach().numpy()
    shift = module.bias.detach().numpy() if centred else np.zeros_like(gain)
    return FrozenNorm(gain, shift, 1 / np.sqrt(variance + module.eps), centred)


def _feed_forward(inner: Any, activation: Any, outer: Any, seen: ModuleTensors) -> FrozenFeedForward:
    slopes = _first_in_batch(_slopes(activation, seen[inner][1]))
    return FrozenFeedForward(*_affine(inner), slopes, *_affine(outer))


def _slopes(activation: Any, z: Any) -> Any:
    """Return the slopes phi(z)/z of an activation with phi(0) = 0, and phi'(0) at z = 0."""
    import torch

    zero = torch.zeros((), dtype=z.dtype, requires_grad=True)
    at_zero = activation(zero)
    if at_zero.item() != 0:
        raise InputError(
            f"the activation {type(activation).__name__} is {at_zero.item():.4g} at 0, expected 0: the "
            "lens only reads activations that are zero at zero, such as GELU, ReLU, SiLU and tanh"
        )
    (at_origin,) = torch.autograd.grad(at_zero, zero)
    # Divide by 1 if z is 0, so that neither branch of `where` is undefined.
    safe = torch.where(z == 0, 1.0, z)
    return torch.where(z == 0, at_origin, activation(z) / safe)
