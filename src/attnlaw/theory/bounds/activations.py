"""Lipschitz constants of activations, rounded up to two decimals as arXiv 2605.07297 rounds them.

| activation | sup of the derivative | constant |
|---|---|---|
| GELU, exact and tanh form | 1.12890, 1.12899 | 1.13 |
| SiLU; quick GELU, x sigmoid(1.702 x) | 1.09984 | 1.10 |
| Mish | 1.08850 | 1.09 |
| ReLU, tanh, identity | 1 | 1 |
"""

from __future__ import annotations

from attnlaw.core.errors import InputError

LIPSCHITZ: dict[str, float] = {
    "gelu": 1.13,
    "gelu_new": 1.13,
    "gelu_fast": 1.13,
    "gelu_python": 1.13,
    "gelu_pytorch_tanh": 1.13,
    "silu": 1.10,
    "swish": 1.10,
    "quick_gelu": 1.10,
    "mish": 1.09,
    "relu": 1.0,
    "tanh": 1.0,
    "identity": 1.0,
    "linear": 1.0,
}


def lipschitz(activation: str) -> float:
    """The constant of an activation by its Hugging Face name.

    >>> lipschitz("gelu")
    1.13
    """
    if activation not in LIPSCHITZ:
        raise InputError(
            f"activation {activation!r} has no Lipschitz constant here; known: {', '.join(LIPSCHITZ)}"
        )
    return LIPSCHITZ[activation]
