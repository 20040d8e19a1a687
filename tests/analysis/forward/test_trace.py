"""Passes of every family: rebuilt to rounding, against Kronecker products, and against the Jacobian."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from analysis.forward.tiny_models import KINDS, save_tiny, tiny_model
from real_checkpoints import real_checkpoint

from attnlaw.analysis.forward.load import load_base_model
from attnlaw.analysis.forward.trace import trace_forward
from attnlaw.core.errors import InputError

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny-decoder"
IDS = [3, 1, 4, 1, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_is_rebuilt(tmp_path, kind):
    passed = trace_forward(*load_base_model(save_tiny(kind, tmp_path)), IDS)
    assert passed.states.shape == passed.output.shape == (5, 8)
    assert passed.reconstruction_error < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_the_pass_is_that_of_transformers(tmp_path, kind):
    """The same model loaded by transformers in float32: the outputs agree to single precision."""
    passed = trace_forward(*load_base_model(save_tiny(kind, tmp_path)), IDS)
    model = tiny_model(kind)
    with torch.no_grad():
        expected = model.base_model(torch.tensor([IDS])).last_hidden_state[0].numpy()
    scale = np.abs(expected).max()
    # Rounding of 2 layers with about a hundred additions each, in float32.
    np.testing.assert_allclose(passed.output, expected, rtol=0, atol=200 * np.finfo(np.float32).eps * scale)


@pytest.mark.slow
def test_real_bert_is_rebuilt():
    passed = trace_forward(
        *load_base_model(real_checkpoint("rxnfp-pretrained")), [12, 16, 20, 11, 13, 16, 14, 13]
    )
    assert passed.states.shape == (8, 256)
    assert len(passed.chain.blocks) == 4 * 12
    assert passed.reconstruction_error < 1e-10


def test_shipped_decoder_is_rebuilt():
    passed = trace_forward(*load_base_model(EXAMPLE), list(b"the exact operator of a pass"))
    assert passed.states.shape == (28, 128)
    assert passed.reconstruction_error < 1e-10


def test_other_inputs_are_not_rebuilt_by_the_operator(tmp_path):
    """T and c belong to one X: at another the same affine map misses."""
    kind, model = load_base_model(save_tiny("bert", tmp_path))
    here, there = trace_forward(kind, model, [3, 1, 4]), trace_forward(kind, model, [2, 7, 8])
    moved = here.operator.matvec(there.states.ravel(order="F")) + here.operator.offset
    assert np.linalg.norm(moved - there.output.ravel(order="F")) > 1e-2 * np.linalg.norm(there.output)


def kronecker_pass(kind: str, model, ids: list[int]) -> np.ndarray:
    """T from weights by name and the hidden states that transformers reports, in Kronecker products."""
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    with torch.no_grad():
        result = model(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
    s, width = result.hidden_states[0].shape[1:]
    x = result.hidden_states[0][0].numpy()
    total = np.eye(s * width)

    def norm(name: str, x: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
        gain, shift = weights[f"{name}.weight"], weights.get(f"{name}.bias", 0)
        centre = np.eye(width) if kind == "llama" else np.eye(width) - 1 / width
        sigma = np.sqrt(((x @ centre) ** 2).mean(axis=1) + eps)
        return np.kron(np.diag(gain) @ centre, np.diag(1 / sigma)), x @ centre / sigma[:, None] * gain + shift

    def attention(layer: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        a = result.attentions[layer][0].numpy()
        if kind == "bert":
            at = f"encoder.layer.{layer}.attention."
            wv, wo = weights[at + "self.value.weight"].T, weights[at + "output.dense.weight"].T
            bv, bo = weights[at + "self.value.bias"], weights[at + "output.dense.bias"]
        elif kind == "gpt2":
            at = f"h.{layer}.attn."
            wv, wo = weights[at + "c_attn.weight"][:, 2 * width :], weights[at + "c_proj.weight"]
            bv, bo = weights[at + "c_attn.bias"][2 * width :], weights[at + "c_proj.bias"]
        else:
            at = f"layers.{layer}.self_attn."
            wv, wo = weights[at + "v_proj.weight"].T, weights[at + "o_proj.weight"].T
            bv, bo = weights[at + "v_proj.bias"], weights[at + "o_proj.bias"]
        size = len(wo) // len(a)
        matrix, value = np.zeros((s * width, s * width)), np.tile(bo, (s, 1))
        for h in range(len(a)):
            g = h * (wv.shape[1] // size) // len(a)  # the key/value head that query head h reads
            rows, read = slice(h * size, (h + 1) * size), slice(g * size, (g + 1) * size)
            matrix += np.kron((wv[:, read] @ wo[rows]).T, a[h])
            value = value + a[h] @ (x @ wv[:, read] + bv[read]) @ wo[rows]
        return matrix, value

    def feed_forward(layer: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if kind == "llama":
            at = f"layers.{layer}.mlp."
            gate = x @ weights[at + "gate_proj.weight"].T + weights[at + "gate_proj.bias"]
            w1, b1 = weights[at + "up_proj.weight"].T, weights[at + "up_proj.bias"]
            w2, b2 = weights[at + "down_proj.weight"].T, weights[at + "down_proj.bias"]
            slopes = gate / (1 + np.exp(-gate))
        else:
            from scipy.special import ndtr

            names = (
                (f"encoder.layer.{layer}.intermediate.dense", f"encoder.layer.{layer}.output.dense")
                if kind == "bert"
                else (f"h.{layer}.mlp.c_fc", f"h.{layer}.mlp.c_proj")
            )
            w1, w2 = (
                weights[f"{name}.weight"].T if kind == "bert" else weights[f"{name}.weight"] for name in names
            )
            b1, b2 = (weights[f"{name}.bias"] for name in names)
            slopes = ndtr(x @ w1 + b1)  # GELU is z times the normal distribution function
        units = np.eye(s)
        matrix = sum(
            np.kron((w1 @ np.diag(slopes[i]) @ w2).T, np.outer(units[i], units[i])) for i in range(s)
        )
        return matrix, slopes * (x @ w1 + b1) @ w2 + b2

    identity = np.eye(s * width)
    for layer in range(2):
        if kind == "bert":
            at = f"encoder.layer.{layer}."
            for branch, after in (
                (attention, "attention.output.LayerNorm"),
                (feed_forward, "output.LayerNorm"),
            ):
                matrix, value = branch(layer, x)
                scale, x = norm(at + after, x + value, model.config.layer_norm_eps)
                total = scale @ (identity + matrix) @ total
        else:
            eps = model.config.rms_norm_eps if kind == "llama" else model.config.layer_norm_epsilon
            names = (
                (f"layers.{layer}.input_layernorm", f"layers.{layer}.post_attention_layernorm")
                if kind == "llama"
                else (f"h.{layer}.ln_1", f"h.{layer}.ln_2")
            )
            for branch, before in zip((attention, feed_forward), names, strict=True):
                scale, normed = norm(before, x, eps)
                matrix, value = branch(layer, normed)
                total, x = (identity + matrix @ scale) @ total, x + value
    if kind != "bert":
        scale, x = norm("norm" if kind == "llama" else "ln_f", x, eps)
        total = scale @ total
    np.testing.assert_allclose(x, result.last_hidden_state[0].numpy(), rtol=0, atol=1e-10)
    return total


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_operator_is_the_product_of_kronecker_products(tmp_path, kind):
    _, model = load_base_model(save_tiny(kind, tmp_path))
    expected = kronecker_pass(kind, model, IDS)
    matrix = trace_forward(kind, model, IDS).operator.dense()
    np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def jacobian(kind: str, model, states: np.ndarray) -> np.ndarray:
    """d vec F / d vec X at X, by automatic differentiation of the network itself."""
    s, width = states.shape

    def forward(x: torch.Tensor) -> torch.Tensor:
        if kind == "bert":
            return model.encoder(x[None]).last_hidden_state[0]
        shift = model.wpe.weight[:s] if kind == "gpt2" else 0
        return model(inputs_embeds=(x - shift)[None]).last_hidden_state[0]

    full = torch.autograd.functional.jacobian(forward, torch.tensor(states)).numpy()
    return full.transpose(1, 0, 3, 2).reshape(s * width, s * width)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_operator_is_not_the_jacobian(tmp_path, kind):
    _, model = load_base_model(save_tiny(kind, tmp_path))
    passed = trace_forward(kind, model, IDS)
    derivative = jacobian(kind, model, passed.states)
    gap = np.linalg.norm(passed.operator.dense() - derivative)
    assert gap > 0.1 * np.linalg.norm(derivative)


# A GPT-2 that is piecewise linear: scores are zero, norms divide by a constant (a huge epsilon, undone by
# the gain), ReLU is its own slope times its input. Each change below brings back one nonlinearity.
HUGE = 1e14


@pytest.mark.parametrize(
    ("curved", "agree"), [("nothing", True), ("attention", False), ("norm", False), ("activation", False)]
)
def test_jacobian_agrees_where_the_network_is_linear(tmp_path, curved, agree):
    model = tiny_model(
        "gpt2",
        activation_function="gelu" if curved == "activation" else "relu",
        layer_norm_epsilon=1e-5 if curved == "norm" else HUGE,
    )
    with torch.no_grad():
        for layer in model.transformer.h:
            if curved != "attention":
                layer.attn.c_attn.weight[:, :16] = 0
                layer.attn.c_attn.bias[:16] = 0
        if curved != "norm":
            for name, parameter in model.named_parameters():
                if "ln_" in name and name.endswith("weight"):
                    parameter.mul_(HUGE**0.5)
    model.save_pretrained(tmp_path)
    kind, loaded = load_base_model(tmp_path)
    passed = trace_forward(kind, loaded, IDS)
    matrix, derivative = passed.operator.dense(), jacobian(kind, loaded, passed.states)
    gap = np.linalg.norm(matrix - derivative) / np.linalg.norm(derivative)
    # A norm's scale still moves by (variance of x) / epsilon, below 1e-11 here.
    assert (gap < 1e-10) if agree else (gap > 1e-3)


def test_one_token_attends_to_itself(tmp_path):
    passed = trace_forward(*load_base_model(save_tiny("bert", tmp_path)), [7])
    assert passed.reconstruction_error < 1e-12
    assert passed.operator.size == 8


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu", "tanh", "linear"])
def test_activations_that_vanish_at_zero(tmp_path, activation):
    passed = trace_forward(*load_base_model(save_tiny("gpt2", tmp_path, activation_function=activation)), IDS)
    assert passed.reconstruction_error < 1e-12


def test_dead_units_take_the_slope_at_zero(tmp_path):
    """Pre-activations that are exactly zero: phi(0)/0 is replaced, not NaN."""
    model = tiny_model("gpt2")
    with torch.no_grad():
        model.transformer.h[0].mlp.c_fc.weight[:, :4] = 0
        model.transformer.h[0].mlp.c_fc.bias[:4] = 0
    model.save_pretrained(tmp_path)
    passed = trace_forward(*load_base_model(tmp_path), IDS)
    slopes = passed.chain.blocks[1].branch.blocks[1].slopes
    np.testing.assert_allclose(slopes[:, :4], 0.5, rtol=1e-15)  # the slope of GELU at 0
    assert passed.reconstruction_error < 1e-12


def test_an_activation_that_does_not_vanish_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"is 0\.5 at 0, expected 0"):
        trace_forward(*load_base_model(save_tiny("gpt2", tmp_path, activation_function="sigmoid")), IDS)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "ids: found .*, expected whole numbers of at least 0 separated by commas, such as 1,2,3"),
        ([1, 20], "ids: found 20, expected ids of the vocabulary, from 0 to 19"),
        ([-1], "of at least 0"),
        ([1.5], "expected whole numbers"),
        ([True], "expected whole numbers"),
        (["7"], "expected whole numbers"),
        ([1] * 11, "ids has 11 tokens, but the model reads at most 10; give a shorter input"),
    ],
)
def test_bad_ids_are_refused(tmp_path, ids, message):
    kind, model = load_base_model(save_tiny("bert", tmp_path))
    with pytest.raises(InputError, match=message):
        trace_forward(kind, model, ids)


def test_positions_of_roberta_start_after_the_padding(tmp_path):
    kind, model = load_base_model(save_tiny("roberta", tmp_path))
    assert trace_forward(kind, model, [2] * 8).reconstruction_error < 1e-12
    with pytest.raises(InputError, match="ids has 9 tokens, but the model reads at most 8"):
        trace_forward(kind, model, [2] * 9)


def test_hooks_are_taken_off_again(tmp_path):
    """Those of transformers itself, set at the first pass, stay."""
    kind, model = load_base_model(save_tiny("gpt2", tmp_path))
    counts = []
    for _ in range(2):
        trace_forward(kind, model, IDS)
        counts.append(sum(len(module._forward_hooks) for module in model.modules()))
    assert counts[0] == counts[1]
