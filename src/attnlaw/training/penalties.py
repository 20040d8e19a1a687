"""Heavy-tailed regularisation: differentiable penalties on the spectra of weights (after arXiv 2304.02911).

The definitions are this project's reading of the paper's idea; constants may differ from the paper's.

| symbol | meaning |
|---|---|
| lambda_1 >= lambda_2 >= ... | squared singular values of a weight W |
| k | half of W's numerical rank, rounded down |
| alpha | Hill's tail exponent, 1 + k / sum_{i<=k} ln(lambda_i / lambda_{k+1}) |

Logarithms are natural. A kernel of more than two axes is read as the matrix (first axis, all others). Weights
of 16 bits, and their ranks, are measured in float32.

`tail_exponent` has a derivative if lambda_k > lambda_{k+1} > lambda_{k+2} and W has full numerical rank: if
the rank changes, k jumps, and alpha with it. `weighted_alpha` also needs lambda_1 > lambda_2, and
`stable_rank` and `frechet_prior` need only that. At a tie, autograd gives a limit of derivatives at nearby W.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.settings import check_value

Tensor = Any  # torch.Tensor; torch is imported only inside functions


def tail_exponent(weight: Tensor) -> Tensor:
    """Return Hill's estimate of the tail exponent (alpha). A heavy tail has a small alpha.

    Raise an `InputError` if the rank is below 2 or if the upper singular values are all equal, as in an
    orthogonal weight.
    """
    import torch

    values = _squared_singular_values(weight)
    epsilon = float(torch.finfo(values.dtype).eps)
    smallest = values[0].item() * (max(_as_matrix(weight).shape) * epsilon) ** 2
    k = int((values > smallest).sum()) // 2
    if k < 1:
        why = "has rank 0 or 1, too few singular values to measure a tail; leave it out of the penalty"
        raise _weight_error(weight, why)
    spread = (values[:k] / values[k]).log().sum()
    if spread.item() <= 0:
        why = "has no tail: its largest singular values are all equal; start from random weights"
        raise _weight_error(weight, why)
    return 1 + k / spread


def weighted_alpha(weight: Tensor) -> Tensor:
    """Return alpha ln lambda_1, the tail exponent times the logarithm of the largest squared singular value.

    This penalty reduces the tail exponent and the largest singular value together. If lambda_1 < 1, the
    logarithm is negative and the penalty increases alpha.
    """
    return tail_exponent(weight) * _squared_singular_values(weight)[0].log()


def stable_rank(weight: Tensor) -> Tensor:
    """Return the stable rank |W|_F^2 / |W|_2^2 of a weight.

    The stable rank is at least 1 and does not depend on the scale of W.
    """
    values = _squared_singular_values(weight)
    return values.sum() / values[0]


def frechet_prior(weight: Tensor, shape: float = 1.0) -> Tensor:
    """Return the negative log density of a Frechet law at lambda_1, up to a constant.

    If a is the `shape` of the law, the penalty is (1 + a) ln lambda_1 + lambda_1^(-a). It is smallest at the
    mode, lambda_1 = (a / (1 + a))^(1/a), so it sets a scale.

    >>> import torch
    >>> weight = torch.diag(torch.tensor([0.5, 0.2], dtype=torch.float64)).sqrt()
    >>> round(frechet_prior(weight, shape=1.0).item(), 6)  # 2 ln(1/2) + 2, its least value
    0.613706
    """
    check_value("shape", shape, float, greater_than=0)
    largest = _squared_singular_values(weight)[0]
    return (1 + shape) * largest.log() + largest ** (-shape)


@dataclass(frozen=True)
class Penalty:
    """A penalty on the spectra of weights, whose strength may decay over the epochs.

    The penalty is `measure` summed over the weights of the modules, times the strength.

    Args:
        floor: the smallest value of `measure` that counts. A module with a smaller value adds nothing.

    >>> import torch
    >>> penalty = Penalty(stable_rank, strength=0.1, decay=0.5, every=2, floor=2.0)
    >>> [penalty.strength_at(epoch) for epoch in range(4)]
    [0.1, 0.1, 0.05, 0.05]
    >>> layer = torch.nn.Linear(4, 4)
    >>> _ = torch.nn.init.eye_(layer.weight)
    >>> round(penalty([layer], epoch=2).item(), 6)  # 0.05 times a stable rank of 4
    0.2
    """

    measure: Callable[[Tensor], Tensor]  # a function of a weight, such as `stable_rank`
    strength: float  # the factor in epoch 0
    decay: float = 1.0  # the strength is `strength * decay ** (epoch // every)`
    every: int = 1  # epochs from one decay to the next
    floor: float = -math.inf

    def __post_init__(self) -> None:
        check_value("strength", self.strength, float, minimum=0)
        check_value("decay", self.decay, float, greater_than=0, maximum=1)
        check_value("every", self.every, int, minimum=1)

    def strength_at(self, epoch: int) -> float:
        """Return the strength of the penalty in an epoch. Epochs count from 0."""
        return float(self.strength * self.decay ** (epoch // self.every))

    def __call__(self, modules: Iterable[Any], epoch: int = 0) -> Tensor:
        """Return the penalty to add to the loss, a scalar tensor.

        It has no gradient if the measures of all modules are below the floor.

        Args:
            modules: modules with a `weight`, or tensors such as the `in_proj_weight` of a MultiheadAttention.
            epoch: the number of the epoch, counted from 0.
        """
        import torch

        measured = [self.measure(_weight_of(module)) for module in modules]
        if not measured:
            raise InputError("the penalty got no modules; pass the modules whose weights to penalise")
        active = [value for value in measured if value.item() >= self.floor]
        total = torch.stack(active).sum() if active else torch.zeros_like(measured[0])
        return self.strength_at(epoch) * total


def _weight_of(module: Any) -> Tensor:
    import torch

    weight = module if isinstance(module, torch.Tensor) else getattr(module, "weight", None)
    if weight is None:
        raise InputError(
            f"found a {type(module).__name__}, which has no weight; pass modules with a weight (Linear, "
            "Conv, ...) or tensors, such as the in_proj_weight of a MultiheadAttention"
        )
    return weight


def _as_matrix(weight: Tensor) -> Tensor:
    if weight.ndim < 2:
        raise _weight_error(weight, "is not a matrix; pass modules with weight matrices (Linear, Conv, ...)")
    return weight.flatten(start_dim=1)


def _squared_singular_values(weight: Tensor) -> Tensor:
    """Return the squared singular values in descending order. A zero weight is an error."""
    import torch

    matrix = _as_matrix(weight)
    if not torch.isfinite(matrix).all():
        raise _weight_error(weight, "has NaN or infinite entries: training has diverged")
    values = torch.linalg.svdvals(matrix.to(torch.promote_types(matrix.dtype, torch.float32))) ** 2
    if values[0].item() == 0:
        raise _weight_error(weight, "is zero; start from other weights, or leave it out of the penalty")
    return values


def _weight_error(weight: Tensor, why: str) -> InputError:
    return InputError(f"a weight of shape {tuple(weight.shape)} {why}")
