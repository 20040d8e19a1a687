"""A model's own code on lazy layers: gradients and steps of SGD of models whose weights are never drawn.

The model is built without storage (torch's meta device); every `Linear`, `Conv1D` and `Embedding` is replaced
by one that asks a `LazyMatrix`, and what is left (gains, biases, positions) is initialised by the library
itself. Gains and biases do not train. Experts, whose weights are one tensor, are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from attnlaw.base.errors import InputError
from attnlaw.initial.architecture import Architecture
from attnlaw.initial.lazy import LazyMatrix
from attnlaw.initial.tokens import Tokens


class _Right(torch.autograd.Function):  # type: ignore[misc]
    """X W^T, its gradient D W; the pair (D, X) is kept."""

    @staticmethod
    def forward(ctx: Any, x: Any, matrix: LazyMatrix) -> Any:
        rows = x.detach().reshape(-1, x.shape[-1])
        ctx.matrix, ctx.rows = matrix, rows
        return matrix.right(rows).reshape(*x.shape[:-1], matrix.out)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        d = grads[0].reshape(-1, grads[0].shape[-1])
        ctx.matrix.uses.append((d, ctx.rows))
        return ctx.matrix.left(d).reshape(*grads[0].shape[:-1], ctx.matrix.inner), None


class _Rows(torch.autograd.Function):  # type: ignore[misc]
    """Rows of W by their numbers; the pair (ones at these numbers, gradient) is kept."""

    @staticmethod
    def forward(ctx: Any, hook: Any, numbers: Any, matrix: LazyMatrix) -> Any:
        ctx.matrix = matrix
        ctx.chosen = torch.nn.functional.one_hot(numbers.reshape(-1), matrix.out).double()
        return matrix.left(ctx.chosen).reshape(*numbers.shape, matrix.inner)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.matrix.uses.append((ctx.chosen, grads[0].reshape(-1, ctx.matrix.inner)))
        return torch.zeros(()), None, None


class _LazyLinear(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, matrix: LazyMatrix) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self, x: Any) -> Any:
        return _Right.apply(x, self.matrix)


class _LazyEmbedding(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, matrix: LazyMatrix, scale: float, offset: int) -> None:
        super().__init__()
        self.matrix, self.scale, self.offset = matrix, scale, offset
        self.hook = torch.zeros((), requires_grad=True)  # numbers have no gradient of their own

    def forward(self, *numbers: Any, position_ids: Any = None, **others: Any) -> Any:
        chosen = numbers[0] if position_ids is None else position_ids + self.offset
        return self.scale * _Rows.apply(self.hook, chosen, self.matrix)


class LazyModel:
    """A model of `transformers` on lazy matrices: `matrices` by name, tied ones once."""

    def __init__(self, model: Any, matrices: Mapping[str, LazyMatrix]) -> None:
        self.model, self.matrices = model, matrices

    def loss(self, tokens: Tokens, causal: bool = True) -> Any:
        """The loss on tokens, with a gradient; of logits in double precision."""
        logits = self.logits(tokens)
        places, targets = tokens.targets(causal)
        return torch.nn.functional.cross_entropy(logits[places], torch.as_tensor(targets))

    def logits(self, tokens: Tokens) -> Any:
        """Logits (s, V)."""
        mask = torch.tensor([[1] * tokens.seen + [0] * tokens.padded])
        return self.model(input_ids=torch.tensor([tokens.ids]), attention_mask=mask, use_cache=False).logits[
            0
        ]

    def step(self, rates: Callable[[str], float]) -> None:
        """A step of SGD on every matrix, after `loss().backward()`."""
        for name, matrix in self.matrices.items():
            matrix.step(rates(name))


def lazy_model(
    values: Mapping[str, Any],
    seed: int,
    std: Callable[[str], float] | None = None,
    architecture: Architecture | None = None,
) -> LazyModel:
    """The model of a config.json's values, of which no weight is drawn until it is asked for.

    `std` gives the deviation of a matrix by its name in the model; else that of the architecture.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    known = architecture or Architecture.from_config(values)
    if known.experts:
        raise InputError(f"{known.name}: gradients of experts are not known; choose a model without them")
    kind = AutoModelForMaskedLM if known.head == "masked" else AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(AutoConfig.for_model(**values), attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    matrices = _replaced(model, known, std or (lambda name: _deviation(known, name)), generator)
    for module in model.modules():
        if any(
            one.is_meta
            for one in (*module._parameters.values(), *module._buffers.values())
            if one is not None
        ):
            module.to_empty(device="cpu", recurse=False)
            _biases(module)
            model._init_weights(module)
    return LazyModel(model.double().eval(), matrices)


def _replaced(
    model: Any, known: Architecture, std: Callable[[str], float], generator: torch.Generator
) -> dict[str, LazyMatrix]:
    """Put lazy layers in place of all that hold a matrix; tied weights share one."""
    found: dict[int, tuple[str, LazyMatrix]] = {}
    for name, module in list(model.named_modules()):
        weight = getattr(module, "weight", None)
        if weight is None or weight.ndim != 2 or list(module.children()):
            continue
        embeds = isinstance(module, torch.nn.Embedding)
        out, inner = weight.shape[::-1] if type(module).__name__ == "Conv1D" else weight.shape
        pad = module.padding_idx if embeds else None
        if id(weight) not in found:
            found[id(weight)] = (name, LazyMatrix(out, inner, std(name), generator, pad))
        matrix = found[id(weight)][1]
        if embeds:
            scale = float(getattr(module, "scalar_embed_scale", 1.0))
            lazy: torch.nn.Module = _LazyEmbedding(matrix, scale, getattr(module, "offset", 0))
        else:
            lazy = _LazyLinear(matrix)
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, lazy)
    return dict(found.values())


def _deviation(known: Architecture, name: str) -> float:
    """The deviation of a matrix by its name: GPT-2's alone differ, its maps back into the stream."""
    std = known.deviations
    return std.residual if name.endswith("c_proj") else std.query


def _biases(module: Any) -> None:
    """Zero what the library may leave as it is."""
    for name, parameter in module._parameters.items():
        if parameter is not None and "bias" in name:
            torch.nn.init.zeros_(parameter)
