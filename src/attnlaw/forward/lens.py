"""One call: a model and token ids to the exact affine map of their forward pass, and what it shows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.forward.blocks import Array, attentions
from attnlaw.forward.load import load
from attnlaw.forward.maps import TokenMap, rollout, token_map
from attnlaw.forward.operator import Operator, TopSingularValues, top_singular_values
from attnlaw.forward.trace import trace

TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Lens:
    """The operator of one forward pass: `vec F(X) = T(X) vec X + c(X)`, exact at this X and nowhere else.

    `reconstruction_error` is |T vec X + c - vec F(X)| / |F(X)|, F from the network itself;
    `offset_share` is |c| / |F(X)|, what the biases give, and may exceed 1 where T X and c cancel.
    """

    model: str
    family: str
    ids: tuple[int, ...]
    layers: int
    operator: Operator
    reconstruction_error: float
    offset_share: float
    singular_values: TopSingularValues
    token_map: TokenMap
    rollout: Array
    status: str

    def describe(self) -> dict[str, Any]:
        """Plain values for JSON; the operator itself is left out."""
        return {
            "model": self.model,
            "family": self.family,
            "ids": list(self.ids),
            "layers": self.layers,
            "hidden_size": self.operator.width,
            "reconstruction_error": self.reconstruction_error,
            "offset_share": self.offset_share,
            "singular_values": {
                "values": None if self.singular_values.values is None else list(self.singular_values.values),
                "residual": self.singular_values.residual,
                "status": self.singular_values.status,
            },
            "token_map": {
                "norms": self.token_map.norms.tolist(),
                "errors": self.token_map.errors.tolist(),
                "probes": self.token_map.probes,
            },
            "rollout": self.rollout.tolist(),
            "status": self.status,
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per pair of tokens: positions, ids, norm with its error, shares of the row, rollout."""
        shares = self.token_map.shares
        return [
            {
                "output": i,
                "output_id": self.ids[i],
                "input": j,
                "input_id": self.ids[j],
                "norm": float(self.token_map.norms[i, j]),
                "error": float(self.token_map.errors[i, j]),
                "share": float(shares[i, j]),
                "rollout": float(self.rollout[i, j]),
            }
            for i in range(len(self.ids))
            for j in range(len(self.ids))
        ]


def linearise(
    source: str | os.PathLike[str],
    ids: Sequence[int],
    top: int = 8,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Lens:
    """The exact input-dependent affine map of a model's forward pass over token ids (arXiv 2601.17958).

    `source` is the local directory of a Hugging Face encoder or decoder (BERT, RoBERTa, GPT-2, LLaMA,
    Mistral, Qwen 2), run in float64. `top` singular values come by Lanczos; `seed` draws the probes of
    the token map where it is estimated. T is not the Jacobian: it carries no derivative of the attention
    probabilities, norms and slopes, which are frozen.
    """
    kind, model = load(source)
    passed = trace(kind, model, ids)
    operator, error = passed.operator, passed.reconstruction_error
    found = tuple(attentions(passed.chain))
    return Lens(
        model=str(source),
        family=kind,
        ids=tuple(int(number) for number in ids),
        layers=len(found),
        operator=operator,
        reconstruction_error=error,
        offset_share=float(np.linalg.norm(operator.offset) / np.linalg.norm(passed.output)),
        singular_values=top_singular_values(operator, top),
        token_map=token_map(operator, seed, progress),
        rollout=rollout(found),
        status="exact"
        if error <= TOLERANCE
        else f"reconstruction error {error:.1e} is above {TOLERANCE:.0e}: do not read the map; "
        "the model computes something that its blocks do not show",
    )
