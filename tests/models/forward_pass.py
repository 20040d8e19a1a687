"""What a real model computes in one forward pass, and whether the factors read from disk reproduce it.

A small random model runs once. Its own pre-softmax scores are taken at the call of `softmax`, the
hidden states at the inputs of its linear maps. Biases are zero, rotary angles zero, query/key norms off.
All arithmetic is float64 on sums of at most a few hundred terms of order one, so rounding stays
below 1e-12 of the largest entry; weights are saved as float64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from transformers.activations import ACT2FN

from attnlaw.models.model import Attention, Blocks, Model

TOLERANCE = 1e-12
VOCABULARY = 40


@dataclass
class Run:
    """What a real model did in one forward pass, in the order of the calls."""

    module: torch.nn.Module
    scores: list[torch.Tensor] = field(default_factory=list)
    inputs: dict[str, list[torch.Tensor]] = field(default_factory=lambda: defaultdict(list))


def require_transformers(version: str, what: str) -> None:
    """Skip a test whose reference an older transformers does not give."""
    if Version(transformers.__version__) < Version(version):
        pytest.skip(f"transformers before {version} does not give {what}")


def make(name: str, **changes: Any) -> torch.nn.Module:
    """A float64 `transformers` model of class `name` with random weights, zero biases, no norms of heads."""
    torch.manual_seed(7)
    kind = getattr(transformers, name)
    config = kind.config_class(**changes)
    config._attn_implementation = config._experts_implementation = "eager"
    model = kind(config).double().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias") or "relative_attention_bias" in parameter_name:
                parameter.zero_()
            elif parameter.ndim > 1:
                parameter.normal_(std=0.3)
    for module_name, module in model.named_modules():
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.register_forward_hook(lambda _m, _i, out: _no_rotation(out))
        if module_name.endswith(("q_norm", "k_norm", "q_a_layernorm", "kv_a_layernorm")):
            module.register_forward_hook(lambda _m, inputs, _o: inputs[0])
    return model


def _no_rotation(angles: Any) -> Any:
    """Cosines one and sines zero; DeepSeek-V2 has them as one complex tensor."""
    if torch.is_tensor(angles):
        return torch.ones_like(angles)
    return torch.ones_like(angles[0]), angles[1] * 0


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


def check(model: Model, run: Run, rename: Callable[[str], str] = str) -> None:
    """The factors that attnlaw read reproduce every score and head contribution of the run."""
    seen: dict[str, int] = defaultdict(int)

    def module_of(tensor: str) -> str:
        return rename(tensor).removesuffix(".weight")

    blocks = [
        (layer, block)
        for depth in model.network.applications
        for layer in [model.layers[depth]]
        for block in (layer.attention, layer.cross)
        if block
    ]
    assert len(blocks) == len(run.scores)
    for (layer, block), scores in zip(blocks, run.scores, strict=True):
        names = {role: module_of(getattr(block, role).tensor) for role in ("query", "key", "value", "output")}
        x = {role: run.inputs[name][seen[name]][0].numpy() for role, name in names.items()}
        for name in set(names.values()):
            seen[name] += 1
        check_block(
            model,
            block,
            scores=scores.reshape(block.heads, *scores.shape[-2:]).numpy(),
            x=x,
            scale=layer.attention.scores.scale,
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


def check_feed_forward(model: Model, layer: Blocks, run: Run, module_of: Callable[[str], str]) -> None:
    """Input of M_out = phi(x M_in), or phi(x M_gate) * x M_in, with the activation the model names."""
    assert layer.feed_forward
    maps = layer.feed_forward
    x = run.inputs[module_of(maps.inner.tensor)][0]
    hidden = run.inputs[module_of(maps.outer.tensor)][0]
    activation = ACT2FN[model.network.activation]
    inner = x @ torch.from_numpy(model.read(maps.inner))
    if maps.gate:
        expected = activation(x @ torch.from_numpy(model.read(maps.gate))) * inner
    else:
        expected = activation(inner)
    close(expected.numpy(), hidden.numpy())
    outer = run.module.get_submodule(module_of(maps.outer.tensor))
    close((hidden @ torch.from_numpy(model.read(maps.outer))).numpy(), outer(hidden).detach().numpy())


def close(ours: np.ndarray, theirs: np.ndarray, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * max(1.0, np.abs(theirs).max()))


def tokens() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(2, VOCABULARY, (1, 7), generator=torch.manual_seed(3))}
