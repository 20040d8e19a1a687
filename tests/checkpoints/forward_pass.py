"""What a real model computes in one forward pass, and whether what was read from disk reproduces it.

A small model with every parameter drawn at random (gains and biases too) runs once. Its own scores are taken
at the call of `softmax`, its streams at the inputs of its modules. From the tensors of the checkpoint, the
norm that feeds a block must make of its module's input what the block's maps read; queries and keys, with
their biases, norms and positions, must give the scores; each head must add to the stream what it adds.
Types of 32 bits are replaced by float64 while it runs: on sums of a few hundred terms of order one rounding
stays below 1e-12 of the largest entry.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints.small import VOCABULARY
from packaging.version import Version
from transformers.activations import ACT2FN

from attnlaw.checkpoints.blocks import LAYER, NONE, Attention, FeedForward, Norm, Rotary, StoredLayer, View
from attnlaw.checkpoints.model import Model

TOLERANCE = 1e-12
# Of a small decoder with grouped queries.
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 36,
    "head_dim": 8,
    "pad_token_id": 1,
}
# Parameters of terms that positions add to scores, which are no part of QK.
POSITIONS = ("relative_attention_bias", "rel_embeddings", "rel_attn_embed", "pos_query_proj", "pos_key_proj")
POSITIONS += ("rel_attn.r.",)

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass
class Run:
    """What a real model did in one forward pass, in the order of the calls.

    `owners` are the modules last entered before the scores. `norms` has the input and the output of every
    norm, `angles` the cosines and sines of its positions, `outputs` what modules gave out, `routed` the
    input, the chosen experts, their weights and the output of every set of experts, or where a router has
    scaled what they read, that and the output.
    """

    module: torch.nn.Module
    scores: list[torch.Tensor] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    inputs: dict[str, list[torch.Tensor]] = field(default_factory=lambda: defaultdict(list))
    outputs: dict[str, list[Array]] = field(default_factory=lambda: defaultdict(list))
    norms: dict[str, list[tuple[Array, Array]]] = field(default_factory=lambda: defaultdict(list))
    angles: list[Any] = field(default_factory=list)
    routed: dict[str, list[tuple[Array, ...]]] = field(default_factory=lambda: defaultdict(list))


def require_transformers(version: str, what: str) -> None:
    """Skip a test whose reference an older transformers does not give."""
    if Version(transformers.__version__) < Version(version):
        pytest.skip(f"transformers before {version} does not give {what}")


def make(name: str, **changes: Any) -> torch.nn.Module:
    """A float64 `transformers` model of class `name` with random parameters, no biases of positions."""
    torch.manual_seed(7)
    kind = getattr(transformers, name)
    config = kind.config_class(**changes)
    config._attn_implementation = config._experts_implementation = "eager"
    model = kind(config).double().eval()
    draw(model)
    return model


def draw(module: torch.nn.Module) -> None:
    """Random parameters: matrices, gains around what they were, biases."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if any(part in f"{name}." for part in POSITIONS):
                parameter.zero_()
            elif "act_fn" in name:
                pass  # of activations that are trained
            elif parameter.ndim > 1:
                parameter.normal_(std=0.3)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)


@contextmanager
def recording(module: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Record the scores that reach `softmax`, the input of every module, and what norms make of theirs."""
    run = Run(module)
    softmax, single = torch.nn.functional.softmax, torch.float32

    inside: list[torch.nn.Module] = []  # attention that pools the outputs
    entered = [""]  # modules, the latest last

    def recorded(scores: torch.Tensor, dim: int = -1, **_: Any) -> torch.Tensor:
        if not inside:
            run.scores.append(scores.detach())
            run.owners.append(entered[-1])
        return softmax(scores, dim=dim)

    def without_positions(build: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *args, **kwargs: torch.zeros_like(build(*args, **kwargs))

    def seen(name: str, part: torch.nn.Module) -> Callable[..., None]:
        def hook(_module: Any, args: Any, kwargs: Any, output: Any) -> None:
            given = args[0] if args else next(iter(kwargs.values()), None)
            kind = type(part).__name__
            if torch.is_tensor(first := output[0] if isinstance(output, tuple) else output):
                run.outputs[name].append(first.detach().numpy())
            if kind.endswith(("RotaryEmbedding", "RopePositionEmbedding")):
                run.angles.append(output)
            if torch.is_tensor(given):
                run.inputs[name].append(given.detach())
            if kind.endswith("Experts") and len(args) in (1, 3):
                run.routed[name].append(tuple(part.detach().numpy() for part in (*args, output)))
            if "Norm" in kind and torch.is_tensor(given) and torch.is_tensor(output):
                run.norms[name].append((given.detach().numpy(), output.detach().numpy()))

        return hook

    handles = [
        part.register_forward_hook(seen(name, part), with_kwargs=True)
        for name, part in module.named_modules()
    ]
    for name, part in module.named_modules():
        handles.append(part.register_forward_pre_hook(lambda *_, name=name: entered.append(name)))
        if isinstance(part, torch.nn.MultiheadAttention) and part is not module:
            handles.append(part.register_forward_pre_hook(lambda part, _: inside.append(part)))
            handles.append(part.register_forward_hook(lambda *_: inside.clear()))
    with monkeypatch.context() as patch, torch.no_grad():
        for part in {sys.modules[type(module).__module__], *module.modules()}:
            for name in ("build_alibi_tensor", "build_mpt_alibi_tensor"):
                if hasattr(part, name):
                    patch.setattr(part, name, without_positions(getattr(part, name)))
        patch.setattr(torch.nn.functional, "softmax", recorded)
        patch.setattr(torch, "softmax", recorded)
        patch.setattr(torch, "float32", torch.float64)
        patch.setattr(torch, "float", torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield run
        finally:
            torch.set_default_dtype(single)
    for handle in handles:
        handle.remove()


class Names:
    """From tensors of a checkpoint to the modules that hold them, by what they contain."""

    def __init__(self, model: Model, module: torch.nn.Module) -> None:
        self.model = model
        state = module.state_dict()
        self.by_content = {_content(value.numpy()): name for name, value in reversed(state.items())}

    def __call__(self, tensor: str) -> str:
        return self.parameter(tensor).rpartition(".")[0]

    def parameter(self, tensor: str) -> str:
        return self.by_content[_content(self.model.tensors.read(tensor))]

    def of(self, view: View) -> str:
        """The module that applies a map, also of one that is saved fused with others."""
        content = _content(self.model.tensors.read(view.tensors[0]))
        if content not in self.by_content:
            content = _content(self.model.read(view).T)
        return self.by_content[content].rpartition(".")[0]


def _content(array: Array) -> tuple[tuple[int, ...], bytes]:
    """By rows only: heads may be an axis of their own."""
    return array.shape[:1], np.ascontiguousarray(array).tobytes()


def check(model: Model, run: Run, tolerance: float = TOLERANCE) -> float:
    """What attnlaw read reproduces every norm, score, head and feed-forward block of the run.

    The largest relative error of scores and heads.
    """
    error = check_attention(model, run, tolerance)
    names = Names(model, run.module)
    for layer in model.layers:
        if layer.feed_forward:
            check_feed_forward(model, layer.feed_forward, run, names, tolerance)
        if layer.experts:
            check_experts(model, layer, run, names, tolerance)
        assert layer.feed_forwards
    return error


def scored_blocks(model: Model, run: Run) -> Iterator[tuple[int, int, Attention, torch.Tensor]]:
    """Depth, layer and block of every call of attention in the run, and its scores."""
    stacks = [layer.stack or "" for layer in model.layers] if model.network.towers else [""]
    scores = iter(
        [
            call_scores
            for stack in dict.fromkeys(stacks)  # towers run in any order
            for call_scores, owner in zip(run.scores, run.owners, strict=True)
            if call_scores.ndim != 2 and owner.startswith(stack)  # routers call softmax on matrices
        ]
    )
    for depth, number in enumerate(model.network.applications):
        layer = model.layers[number]
        for block in (layer.attention, layer.cross):
            if block is not None:
                yield depth, number, block, next(scores)
    assert next(scores, None) is None


def check_attention(model: Model, run: Run, tolerance: float = TOLERANCE) -> float:
    errors = [0.0]
    names = Names(model, run.module)
    seen: dict[str, int] = defaultdict(int)
    last = {layer: depth for depth, layer in enumerate(model.network.applications)}
    for depth, number, block, scores in scored_blocks(model, run):
        modules = {view: names.of(view) for view in (block.query, block.key, block.value)}
        output = names(block.output.tensor)
        # A parameter of the block itself has no module of its own.
        bare = not names.parameter(block.output.tensor).endswith("weight")
        whole = output if bare else output.rpartition(".")[0]
        called = output in run.inputs and not bare  # or its weights were taken by a function of torch
        if not called:
            modules = dict.fromkeys(modules, whole)
        x = {view: _tokens(_call(run.inputs[name], seen[name])) for view, name in modules.items()}
        context = run.inputs[output][seen[output]][0].numpy() if called else None
        total = None if called else added(run, whole, seen[whole], x[block.query])
        for name in {*modules.values(), output}:
            seen[name] += 1
        if last[number] == depth:  # the first application of shared layers reads another norm
            check_norm(model, block.norm, x[block.query], run, names, tolerance)
            if block.source_norm is not None:
                check_norm(model, block.source_norm, x[block.value], run, names, tolerance)
        part = run.module.get_submodule(output)
        head_scores = unbanded(scores, len(x[block.query]))
        error = check_block(
            model,
            block,
            scores=head_scores.numpy(),
            x=(x[block.query], x[block.key], x[block.value]),
            context=context,
            total=total,
            output=lambda given, part=part: part(torch.from_numpy(given)[None])[0].detach().numpy(),
            angles=run.angles,
            tolerance=tolerance,
        )
        errors.append(error)
    return max(errors)


def _call(calls: list[torch.Tensor], number: int) -> torch.Tensor:
    """The input of one call; a later layer may read what came of the only one."""
    return calls[min(number, len(calls) - 1)]


def added(run: Run, name: str, call: int, x: Array) -> Array:
    """What a block of attention adds to the stream; XLNet's adds it itself, before its norm."""
    if f"{name}.layer_norm" in run.inputs:
        return _tokens(run.inputs[f"{name}.layer_norm"][call]) - x
    return run.outputs[name][call][0]


def _tokens(given: torch.Tensor) -> Array:
    """Tokens x numbers of a batch of one, which Longformer has second."""
    token_rows: Array = (given[0] if given.shape[0] == 1 else given[:, 0]).numpy()
    return token_rows


def normalised(model: Model, norm: Norm, z: Array) -> Array:
    """g * zhat + b along the last axis."""
    centred = z - z.mean(axis=-1, keepdims=True) if norm.kind == LAYER else z
    scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + norm.epsilon)
    output: Array = model.gain(norm) * centred / scale + model.shift(norm)
    return output


def check_norm(
    model: Model, norm: Norm | None, x: Array, run: Run, names: Names, tolerance: float = TOLERANCE
) -> None:
    """The norm's own module gives what the block reads, and our numbers do, too; no norm: none gives it."""
    assert norm is not None
    giving = {
        name: given.reshape(x.shape)
        for name, calls in run.norms.items()
        for given, output in calls
        if output.size == x.size and np.array_equal(output.reshape(x.shape), x)
    }
    if norm.kind == NONE:
        assert not giving
    else:
        name = next(iter(giving)) if norm.gain is None else names(norm.gain)
        close(normalised(model, norm, giving[name]), x, tolerance)


def projected(model: Model, view: View, x: Array) -> Array:
    """What a map makes of its inputs, bias and all."""
    if view.after is not None:
        x = projected(model, view.after, x)
        x = x if view.norm is None else normalised(model, view.norm, x)
    output: Array = x @ model.read(replace(view, after=None)) + model.bias(view)
    return output


def heads_of(model: Model, view: View, x: Array, heads: int, norm: Norm | None) -> Array:
    """Queries, keys or values, heads x tokens x size, normalised."""
    projection = projected(model, view, x)
    if norm is not None and norm.joint:
        projection = normalised(model, norm, projection)
    parts = projection.reshape(len(x), heads, -1)
    if norm is not None and not norm.joint:
        parts = normalised(model, norm, parts)
    return parts.transpose(1, 0, 2)


def turned(parts: Array, rotary: Rotary | None, angles: list[Any]) -> Array:
    """Queries or keys turned by their positions."""
    if rotary is None:
        return parts
    cosine, sine = circle(rotary, parts.shape[1], angles)
    chosen = parts[..., rotary.start : rotary.start + rotary.size]
    pair = (chosen[..., 0::2], chosen[..., 1::2]) if rotary.adjacent else np.split(chosen, 2, axis=-1)
    a, b = pair[0] * cosine - pair[1] * sine, pair[1] * cosine + pair[0] * sine
    kept = [parts[..., : rotary.start], parts[..., rotary.start + rotary.size :]]
    return np.concatenate([kept[0], a, b, kept[1]], axis=-1)


def circle(rotary: Rotary, length: int, angles: list[Any]) -> tuple[Array, Array]:
    """Cosines and sines by position: the model's own where it has ours, which it rounds to float32."""
    half = rotary.size // 2
    theirs = []
    for rotation in angles:
        cosine, sine = (rotation.real, rotation.imag) if torch.is_tensor(rotation) else rotation
        if cosine.shape[-1] not in (half, 2 * half):  # of layers with other heads
            continue
        rows = cosine.numel() // cosine.shape[-1]
        cosine, sine = (part.reshape(rows, -1).numpy() for part in (cosine, sine))
        if cosine.shape[1] == 2 * half and np.array_equal(cosine[:, 0::2], cosine[:, 1::2]):
            cosine, sine = cosine[:, ::2], sine[:, ::2]
        still = np.zeros((length - rows, half))  # tokens before the patches of an image
        theirs.append((np.vstack([still + 1, cosine[:, :half]]), np.vstack([still, sine[:, :half]])))
    if rotary.base is None:
        return theirs[0]
    angle = np.arange(length)[:, None] * rotary.base ** (-2 * np.arange(half) / rotary.size)
    ours = np.cos(angle), np.sin(angle)
    near = [pair for pair in theirs if np.abs(pair[0] - ours[0]).max() < length * 2.0**-23]
    assert near or not theirs
    return near[0] if near else ours


def check_block(
    model: Model,
    block: Attention,
    scores: Array,
    x: tuple[Array, Array, Array],
    context: Array | None,
    output: Callable[[Array], Array],
    angles: list[Any],
    tolerance: float = TOLERANCE,
    total: Array | None = None,
) -> float:
    """The largest relative error of its scores and of what each head adds.

    `context` is what the output map read, or `total` what all heads add.
    """
    errors = []
    how, groups = block.scores, block.kv_heads
    query = heads_of(model, block.query, x[0], block.heads, None if how.normed_last else how.query_norm)
    key = heads_of(model, block.key, x[1], groups, None if how.normed_last else how.key_norm)
    if block.shared_key is not None:
        shared = projected(model, block.shared_key, x[1])
        key = np.concatenate([key, np.broadcast_to(shared, (groups, *shared.shape))], axis=-1)
    query, key = turned(query, how.rotary, angles), turned(key, how.rotary, angles)
    if how.normed_last:
        query, key = (
            normalised(model, norm, parts.transpose(1, 0, 2)).transpose(1, 0, 2)
            for norm, parts in ((how.query_norm, query), (how.key_norm, key))
        )
    value = heads_of(model, block.value, x[2], groups, block.value_norm)
    outer, shift = model.read(block.output), model.bias(block.output)
    size = outer.shape[0] // block.heads
    mixtures = []
    for head in range(block.heads):
        group = block.kv_head(head)
        ours = how.scale * query[head] @ key[group].T
        ours = ours if how.cap is None else how.cap * np.tanh(ours / how.cap)
        theirs = scores[head]
        allowed = theirs > -1e3
        if how.sinks is not None:
            sink = model.tensors.read(how.sinks)[head]
            ours = np.hstack([ours, np.full((len(ours), 1), sink)])
            ours -= np.where(allowed, ours, -np.inf).max(axis=1, keepdims=True)  # as the model does
        assert np.ptp(theirs[allowed]) > 1e6 * TOLERANCE
        errors.append(close(ours[allowed], theirs[allowed], tolerance))

        weights = np.where(allowed, np.exp(theirs - theirs.max(axis=1, keepdims=True)), 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
        mixtures.append(weights[:, : len(value[group])] @ value[group])
    mixed = np.hstack(mixtures)
    if block.output_norm is not None:
        mixed = normalised(model, block.output_norm, mixed)
    if block.gate is not None:
        mixed = mixed / (1 + np.exp(-projected(model, block.gate, x[0])))
    heads = [slice(head * size, (head + 1) * size) for head in range(block.heads)]
    adds = [mixed[:, columns] @ outer[columns] for columns in heads]
    if context is not None:
        for columns, add in zip(heads, adds, strict=True):
            only_this_head = np.zeros_like(context)
            only_this_head[:, columns] = context[:, columns]
            errors.append(close(add + shift, output(only_this_head), tolerance))
    if total is not None:
        errors.append(close(np.sum(adds, axis=0) + shift, total, tolerance))
    return max(errors)


def unbanded(scores: torch.Tensor, length: int) -> torch.Tensor:
    """Scores as heads x tokens x tokens, also those of Longformer: tokens x heads x a band around each."""
    if scores.shape[-2:] == (length, length) or scores.ndim < 4 or scores.shape[1] != length:
        return scores.reshape(-1, *scores.shape[-2:])
    band = scores[0].transpose(0, 1)
    half = band.shape[-1] // 2
    full_scores = torch.full((band.shape[0], length, length), -torch.inf, dtype=band.dtype)
    for token in range(length):
        for other in range(max(0, token - half), min(length, token + half + 1)):
            full_scores[:, token, other] = band[:, token, other - token + half]
    return full_scores


def check_feed_forward(
    model: Model, maps: FeedForward, run: Run, names: Names, tolerance: float = TOLERANCE
) -> None:
    """Input of M_out = phi(x M_in), or phi(x M_gate) * x M_in, with the activation the model names."""
    x = run.inputs[names.of(maps.inner)][0]
    x = x.reshape(-1, x.shape[-1]).numpy()
    check_norm(model, maps.norm, x, run, names, tolerance)
    hidden = run.inputs[names(maps.outer.tensor)][0]
    hidden = hidden.reshape(-1, hidden.shape[-1])
    outer = run.module.get_submodule(names(maps.outer.tensor))
    block = run.module.get_submodule(names(maps.outer.tensor).rpartition(".")[0])
    close(inside(model, maps, x, getattr(block, "act_fn", None)), hidden.numpy(), tolerance)
    close(projected(model, maps.outer, hidden.numpy()), outer(hidden).detach().numpy(), tolerance)


def check_experts(
    model: Model, layer: StoredLayer, run: Run, names: Names, tolerance: float = TOLERANCE
) -> None:
    """What the experts of a layer add together, by the weights that the model's own router gave them."""
    first = layer.experts[0].outer
    state = run.module.state_dict()
    if first.member is None:
        alone = model.tensors.read(first.tensor)
        name = next(
            name
            for name, value in state.items()
            if value.ndim == 3 and any(np.array_equal(matrix, alone) for matrix in value.numpy())
        ).rpartition(".")[0]
    else:
        name = names(first.tensor)
    if len(run.routed[name][0]) == 2:
        check_scaled_experts(model, layer, run, names, name, tolerance)
        return
    x, chosen, weights, output = run.routed[name][0]
    for expert in layer.experts:
        check_norm(model, expert.norm, x, run, names, tolerance)
    ours = np.zeros_like(output)
    for number, expert in enumerate(layer.experts):
        expert_output = projected(model, expert.outer, inside(model, expert, x))
        ours += np.where(chosen == number, weights, 0.0).sum(axis=-1, keepdims=True) * expert_output
    close(ours, output, tolerance)


def check_scaled_experts(
    model: Model, layer: StoredLayer, run: Run, names: Names, name: str, tolerance: float = TOLERANCE
) -> None:
    """Each expert by itself, which reads the stream's norm times the router's sigmoid (0 unless chosen)."""
    router = name.removesuffix("experts") + "router"
    x, scores = run.inputs[router][0].numpy(), run.outputs[router][0]
    assert scores.max() <= 1
    given, output = (part.reshape(len(layer.experts), *x.shape) for part in run.routed[name][0])
    for number, expert in enumerate(layer.experts):
        check_norm(model, expert.norm, x, run, names, tolerance)
        close(x * scores[:, number, None], given[number], tolerance)
        close(projected(model, expert.outer, inside(model, expert, given[number])), output[number], tolerance)


def clipped_swiglu(gate: Array, inner: Array) -> Array:
    """The experts of gpt-oss (arXiv 2508.10925): alpha = 1.702, both clipped at 7, the input moved by 1."""
    gate = np.minimum(gate, 7.0)
    return (np.clip(inner, -7.0, 7.0) + 1) * gate / (1 + np.exp(-1.702 * gate))


def inside(
    model: Model,
    maps: FeedForward,
    x: Array,
    model_activation: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Array:
    """What M_out reads; by the model's `own` activation where that has parameters."""
    if model.network.activation == "clipped_swiglu":
        assert maps.gate is not None
        return clipped_swiglu(projected(model, maps.gate, x), projected(model, maps.inner, x))
    activation = ACT2FN[model.network.activation].double()
    if isinstance(model_activation, torch.nn.Module) and [*model_activation.parameters()]:
        assert type(model_activation) is type(activation)
        activation = model_activation
    inner = projected(model, maps.inner, x)
    if maps.gate is None:
        hidden: Array = activation(torch.from_numpy(inner)).detach().numpy()
    else:
        hidden = activation(torch.from_numpy(projected(model, maps.gate, x))).detach().numpy() * inner
    return hidden if maps.outer_norm.kind == NONE else normalised(model, maps.outer_norm, hidden)


def close(ours: Array, theirs: Array, tolerance: float = TOLERANCE) -> float:
    """The error relative to the largest entry (or to one), refused beyond the tolerance."""
    scale = max(1.0, np.abs(theirs).max())
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)
    return float(np.abs(ours - theirs).max() / scale)


def tokens() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(2, VOCABULARY, (1, 7), generator=torch.manual_seed(3))}
