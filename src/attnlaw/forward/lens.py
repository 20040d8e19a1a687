"""One call: a model and token ids to the exact affine map of their forward pass, and what it shows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.base.declare import Progress, silent
from attnlaw.base.estimate import Estimate, Outcome
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
    spectrum: TopSingularValues
    token_map: TokenMap
    rollout: Array

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def hidden_size(self) -> int:
        return self.operator.width

    @property
    def singular_values(self) -> list[float] | None:
        """The largest ones of T, descending; None where Lanczos did not converge."""
        return None if self.spectrum.values is None else list(self.spectrum.values)

    @property
    def singular_values_residual(self) -> float | None:
        return self.spectrum.residual

    @property
    def probes(self) -> int | None:
        """Random probes per token behind the norms of the map; None where these are exact."""
        return self.token_map.probes

    @property
    def outcome(self) -> Outcome:
        """Whether T and c rebuild what the network computes, and the singular values were found."""
        if self.reconstruction_error > TOLERANCE:
            return Outcome.INEXACT
        return Outcome.DONE if self.spectrum.remark is None else Outcome.NOT_CONVERGED

    @property
    def remark(self) -> str | None:
        if self.reconstruction_error > TOLERANCE:
            return (
                f"reconstruction error {self.reconstruction_error:.1e} is above {TOLERANCE:.0e}: do not read "
                "the map; the model computes something that its blocks do not show"
            )
        return self.spectrum.remark

    def rows(self) -> list[dict[str, Any]]:
        """One row per pair of tokens: positions, ids, norm with its error, share of the row, rollout."""
        shares = self.token_map.shares
        return [
            {
                "output": i,
                "output_id": self.ids[i],
                "input": j,
                "input_id": self.ids[j],
                "norm": Estimate(float(self.token_map.norms[i, j]), float(self.token_map.errors[i, j])),
                "share": float(shares[i, j]),
                "rollout": float(self.rollout[i, j]),
            }
            for i in range(self.tokens)
            for j in range(self.tokens)
        ]


def linearise(
    source: str | os.PathLike[str],
    ids: Sequence[int],
    top: int = 8,
    seed: int = 0,
    progress: Progress = silent,
) -> Lens:
    """The exact input-dependent affine map of a model's forward pass over token ids (arXiv 2601.17958).

    `source` is the local directory of a Hugging Face encoder or decoder (BERT, RoBERTa, GPT-2, LLaMA,
    Mistral, Qwen 2), run in float64. `top` singular values come by Lanczos; `seed` draws the probes of
    the token map where it is estimated. T is not the Jacobian: it carries no derivative of the attention
    probabilities, norms and slopes, which are frozen.
    """
    kind, model = load(source)
    passed = trace(kind, model, ids)
    operator = passed.operator
    found = tuple(attentions(passed.chain))
    return Lens(
        model=str(source),
        family=kind,
        ids=tuple(int(number) for number in ids),
        layers=len(found),
        operator=operator,
        reconstruction_error=passed.reconstruction_error,
        offset_share=float(np.linalg.norm(operator.offset) / np.linalg.norm(passed.output)),
        spectrum=top_singular_values(operator, top),
        token_map=token_map(operator, seed, progress),
        rollout=rollout(found),
    )
