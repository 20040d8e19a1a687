"""A model of `transformers` on lazy weights: gradients and steps of SGD without ever drawing the weights.

A `LazyWeight` replaces every matrix of a model without storage (torch's meta device). If the model's code
asks it for a product or for some rows, a `LazyMatrix` answers. Gains, biases and positions are the library's;
gains and biases do not train.

A lazy matrix is a Gaussian matrix that is drawn only in the directions that are asked for. It is exact in
law, also while SGD trains it.

| here    | means                                                                                    |
|---------|------------------------------------------------------------------------------------------|
| W       | (out, in) with independent N(0, std^2) entries                                           |
| V, Y    | rows asked from the right, orthonormal (k, in), and the answers: `V W^T = Y` (k, out)    |
| U, B    | rows asked from the left, orthonormal (m, out), and the answers: `U W = B` (m, in)       |
| D, X    | a use of W: `dL/dW = D^T X`, D (s, out) the gradient of the output, X (s, in) the input  |

For a new q orthogonal to V, `W q = U^T B q + (I - U^T U) g` with a fresh normal g. For a new p orthogonal to
U, `W^T p = V^T Y^T p + (I - V^T V) g`. This is Gaussian conditioning. It is exact for any sequence of
questions, even if each one depends on all answers before (Bolthausen, 2014). A step of SGD adds
`-rate D^T X`, which has low rank. The norm of a gradient is `|dL/dW|_F^2 = sum (D D^T) o (X X^T)`.

A question about s rows costs O(s^2 (in + out)), and more with every question before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch.nn import functional

from attnlaw.core.library_messages import quiet_import
from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.tokens import Tokens

SAME = 1e-10  # a remainder below this share of the rows' length is rounding: the answer is known


@dataclass(eq=False)
class LazyMatrix:
    """A random matrix W (out, in) with normal entries of standard deviation `std`, drawn only as needed."""

    out: int
    inner: int  # the number of columns, `in` above
    std: float
    generator: torch.Generator
    zero_row: int | None = None  # a row that is zero before the first step, the embedding of padding
    uses: list[tuple[Any, Any]] = field(default_factory=list)  # pairs (D, X) since the last step
    steps: list[tuple[Any, Any]] = field(default_factory=list)  # pairs (rate D, X) of all steps of SGD

    def __post_init__(self) -> None:
        self.V, self.Y = self._empty(self.inner), self._empty(self.out)
        self.U, self.B = self._empty(self.out), self._empty(self.inner)

    def right(self, x: Any) -> Any:
        """Return the product X W^T for rows X of shape (s, in)."""
        known, rest = self._split_rows(x, self.V)
        if len(rest[1]):
            fresh = self._draw_normals(len(rest[1]), self.out)
            fresh = fresh - fresh @ self.U.T @ self.U + rest[1] @ self.B.T @ self.U
            self.V, self.Y = torch.cat([self.V, rest[1]]), torch.cat([self.Y, fresh])
            known = torch.cat([known, rest[0]], dim=1)
        answer = self._without_row(known @ self.Y)
        for d, moved in self.steps:
            answer = answer - (x @ moved.T) @ d
        return answer

    def left(self, d: Any) -> Any:
        """Return the product D W for rows D of shape (s, out)."""
        known, rest = self._split_rows(self._without_row(d), self.U)
        if len(rest[1]):
            fresh = self._draw_normals(len(rest[1]), self.inner)
            fresh = fresh - fresh @ self.V.T @ self.V + rest[1] @ self.Y.T @ self.V
            self.U, self.B = torch.cat([self.U, rest[1]]), torch.cat([self.B, fresh])
            known = torch.cat([known, rest[0]], dim=1)
        answer = known @ self.B
        for moved, x in self.steps:
            answer = answer - (d @ moved.T) @ x
        return answer

    def gradient_norm(self) -> float:
        """Return the Frobenius norm of the gradient dL/dW of all uses since the last step."""
        d, x = self._gradient()
        return math.sqrt(max(float(((d @ d.T) * (x @ x.T)).sum()), 0.0))

    def step(self, rate: float) -> None:
        """Make a step of SGD with the gradients of all uses, and forget these uses."""
        d, x = self._gradient()
        self.steps.append((rate * d, x))
        self.uses.clear()

    def _gradient(self) -> tuple[Any, Any]:
        if not self.uses:  # an expert that no token was routed to
            return self._empty(self.out), self._empty(self.inner)
        d, x = (torch.cat(part) for part in zip(*self.uses, strict=True))
        return d, x

    def _split_rows(self, rows: Any, known: Any) -> tuple[Any, tuple[Any, Any]]:
        """Return C and (T, Q), with Q orthonormal and orthogonal to `known`: the rows are `C known + T Q`."""
        c = rows @ known.T
        rest = rows - c @ known
        again = rest @ known.T  # a second projection removes rounding errors
        c, rest = c + again, rest - again @ known
        left, sizes, q = torch.linalg.svd(rest, full_matrices=False)
        count = int((sizes > SAME * max(float(rows.norm()), 1e-300)).sum())
        count = min(count, rows.shape[1] - len(known))
        return c, (left[:, :count] * sizes[:count], q[:count])

    def _draw_normals(self, rows: int, columns: int) -> Any:
        return self.std * torch.randn(rows, columns, dtype=torch.float64, generator=self.generator)

    def _without_row(self, answer: Any) -> Any:
        if self.zero_row is None:
            return answer
        answer = answer.clone()
        answer[:, self.zero_row] = 0.0
        return answer

    @staticmethod
    def _empty(columns: int) -> Any:
        return torch.zeros(0, columns, dtype=torch.float64)


class _RightProduct(torch.autograd.Function):  # type: ignore[misc]
    """The product X W^T with a lazy matrix W; the backward pass adds the pair (D, X) to its uses."""

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


class _RowLookup(torch.autograd.Function):  # type: ignore[misc]
    """The lookup of rows of a lazy matrix W by their numbers, in which padding gets no gradient."""

    @staticmethod
    def forward(ctx: Any, hook: Any, numbers: Any, matrix: LazyMatrix, padding: int | None) -> Any:
        ctx.matrix = matrix
        chosen = functional.one_hot(numbers.reshape(-1), matrix.out).double()
        answer = matrix.left(chosen).reshape(*numbers.shape, matrix.inner)
        # The library gives the embedding of the padding id no gradient.
        if padding is not None:
            chosen[:, padding] = 0.0
        ctx.chosen = chosen
        return answer

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.matrix.uses.append((ctx.chosen, grads[0].reshape(-1, ctx.matrix.inner)))
        return torch.zeros(()), None, None, None


class LazyWeight:
    """A replacement for a weight tensor of a model. A lazy matrix computes its products and rows."""

    _is_hf_initialized = True  # the library must not initialise it
    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self, matrix: LazyMatrix) -> None:
        self.matrix = matrix

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _ANSWERS[func](*args, **(kwargs or {}))


class LazyStack(list[LazyWeight]):
    """A replacement for a weight tensor with three axes, such as experts: a stack of lazy matrices."""


def _linear(x: Any, weight: LazyWeight, bias: Any = None) -> Any:
    answer = _RightProduct.apply(x, weight.matrix)
    return answer if bias is None else answer + bias


def _embedding(numbers: Any, weight: LazyWeight, padding_idx: int | None, **_: Any) -> Any:
    # Autograd needs an input with a gradient, and token ids have none.
    hook = torch.zeros((), requires_grad=True)
    return _RowLookup.apply(hook, numbers, weight.matrix, padding_idx)


# The calls that model code makes with its weights: Linear and routers, the Conv1D of GPT-2, Embedding.
_ANSWERS: dict[Any, Callable[..., Any]] = {
    functional.linear: _linear,
    torch.addmm: lambda bias, x, weight: _linear(x, weight, bias),
    functional.embedding: _embedding,
}


class LazyModel:
    """A model of `transformers` on lazy matrices. A matrix that is used twice appears once in `matrices`."""

    def __init__(self, model: Any, matrices: Mapping[str, LazyMatrix]) -> None:
        self.model, self.matrices = model, matrices

    def loss(self, tokens: Tokens, causal: bool = True) -> Any:
        """Return the loss on tokens as a float64 tensor that can be differentiated."""
        logits = self.logits(tokens)
        places, targets = tokens.targets(causal)
        return functional.cross_entropy(logits[places], torch.as_tensor(targets))

    def logits(self, tokens: Tokens) -> Any:
        """Return the logits of all ids at every token, as a tensor of shape (tokens, vocabulary)."""
        given = {
            "input_ids": torch.tensor([tokens.ids]),
            "attention_mask": torch.tensor([[1] * tokens.seen + [0] * tokens.padded]),
            **({"token_type_ids": torch.tensor([tokens.segments])} if tokens.segments else {}),
        }
        return self.model(**given, use_cache=False).logits[0]

    def step(self, rates: Callable[[str], float]) -> None:
        """Make a step of SGD on every matrix. Call `loss().backward()` before."""
        for name, matrix in self.matrices.items():
            matrix.step(rates(name))


def lazy_model(
    values: Mapping[str, Any],
    seed: int,
    std: Callable[[str], float] | None = None,
    architecture: Architecture | None = None,
) -> LazyModel:
    """Build the model that a config.json describes, with lazy matrices as weights."""
    with quiet_import():
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

        import_module("transformers.modeling_utils")  # transformers itself does this when a model is built

    known = architecture or Architecture.from_config(values)
    kind = AutoModelForMaskedLM if known.head == "masked" else AutoModelForCausalLM
    with torch.device("meta"):
        config = AutoConfig.for_model(**values)
        model = kind.from_config(config, attn_implementation="eager", experts_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    drawn = known.deviations
    std = std or (lambda name: drawn.residual if name.endswith("c_proj") else drawn.query)
    matrices = _replace_matrices(model, std, generator)
    for module in model.modules():
        left = (*module._parameters.values(), *module._buffers.values())
        if any(tensor.is_meta for tensor in left if tensor is not None):
            module.to_empty(device="cpu", recurse=False)
            _zero_biases(module)
            model._init_weights(module)
    return LazyModel(model.double().eval().requires_grad_(False), matrices)


def _replace_matrices(
    model: Any, std: Callable[[str], float], generator: torch.Generator
) -> dict[str, LazyMatrix]:
    """Replace all matrices of a model by lazy ones, and return these by name. Tied weights share one."""
    replacements: dict[int, Any] = {}
    matrices: dict[str, LazyMatrix] = {}

    def lazy(name: str, out: int, inner: int, pad: int | None) -> LazyWeight:
        matrices[name] = LazyMatrix(out, inner, std(name), generator, pad)
        return LazyWeight(matrices[name])

    for owner, module, key, weight in list(_weights(model)):
        name = f"{owner}.{key}".removesuffix(".weight")
        if id(weight) not in replacements:
            *stack, out, inner = weight.shape
            if type(module).__name__ == "Conv1D":  # stored (in, out)
                out, inner = inner, out
            pad = getattr(module, "padding_idx", None)
            if stack:
                experts = (lazy(f"{name}.{number}", out, inner, pad) for number in range(stack[0]))
                replacements[id(weight)] = weight, LazyStack(experts)
            else:
                replacements[id(weight)] = weight, lazy(name, out, inner, pad)
        del module._parameters[key]
        setattr(module, key, replacements[id(weight)][1])
    return matrices


def _weights(model: Any) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield module name, module, key and weight for every matrix and stack of matrices in a model."""
    for owner, module in model.named_modules():
        for key, weight in module._parameters.items():
            if weight is not None and weight.ndim > 1:
                yield owner, module, key, weight


def _zero_biases(module: Any) -> None:
    """Set biases to zero, because the library may leave them as they are."""
    for name, parameter in module._parameters.items():
        if parameter is not None and "bias" in name:
            torch.nn.init.zeros_(parameter)
