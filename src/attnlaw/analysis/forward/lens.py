"""The lens: one forward pass as an exact affine map, and measurements of the map and of the heads.

With `entrywise`, it also measures what a low rank would cost the attention of each head, entry by entry
(`spectra.entrywise`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median_high
from typing import Any

import numpy as np

from attnlaw.analysis.forward.blocks import FrozenAttention, attentions
from attnlaw.analysis.forward.heads import Head, measure_heads
from attnlaw.analysis.forward.inputs import RawInput, check_ids, open_tokenizer, read_input
from attnlaw.analysis.forward.load import load_base_model
from attnlaw.analysis.forward.operator import Operator, TopSingularValues, top_singular_values
from attnlaw.analysis.forward.remarks import HeadRemark, head_remarks
from attnlaw.analysis.forward.token_maps import TokenMap, rollout, token_map
from attnlaw.analysis.forward.trace import Trace, max_input_tokens, trace_forward
from attnlaw.checkpoints.open import open_model
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting
from attnlaw.core.estimate import BriefRepr, Estimate, Outcome
from attnlaw.core.progress import Progress, no_progress
from attnlaw.spectra.entrywise import EntrywiseError, entrywise_errors, rank_within
from attnlaw.theory.bounds.logits import Logits, logit_bounds


@dataclass(frozen=True)
class HeadErrors:
    """The errors of one head if its attention is replaced by a matrix of low rank."""

    layer: int
    head: int
    rank_within: int  # the smallest rank that keeps every weight within 0.01
    errors: tuple[EntrywiseError, ...]  # one record for each rank that was asked for


def measure_head_errors(
    blocks: Sequence[FrozenAttention], ranks: Iterable[int], progress: Progress = no_progress
) -> tuple[HeadErrors, ...]:
    tokens = int(blocks[0].probabilities.shape[-1])
    wanted = list(ranks)
    for rank in wanted:
        if not 1 <= rank <= tokens:
            raise BadSetting(
                "entrywise", f"expected ranks from 1 to {tokens}, the number of tokens in the input", rank
            )
    places = [(layer, head) for layer, block in enumerate(blocks) for head in range(len(block.probabilities))]
    errors = []
    for done, (layer, head) in enumerate(places, start=1):
        weights = blocks[layer].probabilities[head]
        errors.append(HeadErrors(layer, head, rank_within(weights), entrywise_errors(weights, wanted)))
        progress(done, len(places))
    return tuple(errors)


TOLERANCE = 1e-10
MAX_MAPS = 4  # heads whose attention is drawn
SCORE_TOLERANCE = 1e-5  # transformers rounds the softmax of LLaMA-like models to float32


@dataclass(frozen=True, eq=False, repr=False)
class Lens(BriefRepr):
    """One forward pass as an operator: `vec F(X) = T(X) vec X + c(X)`, exact at this X and nowhere else.

    The fields `spectrum`, `token_map`, `heads` and `entrywise` are None if they were not requested.

    Args:
        reconstruction_error: |T vec X + c - vec F(X)| / |F(X)|, with F from the network itself.
        offset_share: |c| / |F(X)|, the share of the biases in the output. The share exceeds 1 if T X and c
            partly cancel.
        score_error: largest difference between the network's attention and the attention computed from the
            scores. `heads` are measured on the attention from the scores.
    """

    model: str
    family: str
    ids: tuple[int, ...]
    labels: tuple[str, ...]
    layers: int
    operator: Operator
    reconstruction_error: float
    offset_share: float
    rollout: Reals
    score_error: float
    spectrum: TopSingularValues | None = None
    token_map: TokenMap | None = None
    heads: tuple[Head, ...] | None = None
    entrywise: tuple[HeadErrors, ...] | None = None

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def hidden_size(self) -> int:
        return self.operator.width

    @property
    def singular_values(self) -> list[float] | None:
        """The largest singular values of T, in decreasing order; None if not asked for or not converged."""
        if self.spectrum is None or self.spectrum.values is None:
            return None
        return list(self.spectrum.values)

    @property
    def singular_values_residual(self) -> float | None:
        return None if self.spectrum is None else self.spectrum.residual

    @property
    def probes(self) -> int | None:
        """Number of random probes for each token of an estimated token map, or None if the map is exact."""
        return None if self.token_map is None else self.token_map.probes

    @property
    def head_count(self) -> int | None:
        return self._count_heads(lambda head: True)

    @property
    def median_beta(self) -> float | None:
        return float(np.median([head.beta for head in self.heads])) if self.heads else None

    @property
    def heads_below_beta_2(self) -> int | None:
        return self._count_heads(lambda head: head.beta < head.beta_2)

    @property
    def heads_above_beta_c(self) -> int | None:
        return self._count_heads(lambda head: head.beta > head.beta_c)

    @property
    def median_rank_within(self) -> int | None:
        """The median over heads of the rank that keeps every weight within 0.01, or None if not measured."""
        return median_high(head.rank_within for head in self.entrywise) if self.entrywise else None

    @property
    def largest_rank_within(self) -> int | None:
        return max(head.rank_within for head in self.entrywise) if self.entrywise else None

    @property
    def head_remarks(self) -> tuple[HeadRemark, ...]:
        return head_remarks(self.heads or (), self.labels)

    @property
    def notable_attention(self) -> dict[tuple[int, int], Reals]:
        """The attention of at most 4 heads that stand out, or else of the sharpest, by layer and head."""
        by_rule: dict[str, list[tuple[int, int]]] = {}
        for remark in self.head_remarks:
            by_rule.setdefault(remark.rule, []).append((remark.layer, remark.head))
        ranked = [place for places in zip_longest(*by_rule.values()) for place in places if place]
        if not ranked and self.heads:
            sharpest = max(self.heads, key=lambda head: head.beta / head.beta_c)
            ranked = [(sharpest.layer, sharpest.head)]
        blocks = tuple(attentions(self.operator.block))
        chosen = list(dict.fromkeys(ranked))[:MAX_MAPS]
        return {(layer, head): blocks[layer].probabilities[head] for layer, head in chosen}

    @property
    def outcome(self) -> Outcome:
        """Whether T, c and the scores reproduce the network, and whether the singular values converged."""
        if self.reconstruction_error > TOLERANCE or self.score_error > SCORE_TOLERANCE:
            return Outcome.INEXACT
        lost = self.spectrum is not None and self.spectrum.remark is not None
        return Outcome.NOT_CONVERGED if lost else Outcome.DONE

    @property
    def remark(self) -> str | None:
        if self.reconstruction_error > TOLERANCE:
            return (
                "do not use the map of tokens, because attnlaw's copy of the blocks does not reproduce "
                f"the model's output (relative error {self.reconstruction_error:.1e}, expected at most "
                f"{TOLERANCE:.0e})"
            )
        if self.score_error > SCORE_TOLERANCE:
            return (
                "do not use the numbers of heads, because attnlaw's queries and keys do not reproduce "
                f"the model's attention (largest error {self.score_error:.1e}, expected at most "
                f"{SCORE_TOLERANCE:.0e})"
            )
        return None if self.spectrum is None else self.spectrum.remark

    def _count_heads(self, holds: Callable[[Head], bool]) -> int | None:
        return None if self.heads is None else sum(map(holds, self.heads))

    def token_map_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table `token_map`, one for each pair of tokens."""
        if self.token_map is None:
            return []
        shares = self.token_map.shares
        return [
            {
                "output": i,
                "output_id": self.ids[i],
                "output_token": self.labels[i],
                "input": j,
                "input_id": self.ids[j],
                "input_token": self.labels[j],
                "norm": Estimate(float(self.token_map.norms[i, j]), float(self.token_map.errors[i, j])),
                "share": float(shares[i, j]),
                "rollout": float(self.rollout[i, j]),
            }
            for i in range(self.tokens)
            for j in range(self.tokens)
        ]


def linearise(
    source: str | os.PathLike[str],
    given: RawInput | Sequence[int],
    top: int = 8,
    seed: int = 0,
    progress: Progress = no_progress,
    only: str | None = None,
    entrywise: Sequence[int] | None = None,
) -> Lens:
    """Return the exact affine map of one forward pass, and measurements of the heads on this input.

    T is not the Jacobian. Attention probabilities, norms and slopes are frozen, so T does not contain their
    derivatives.

    Args:
        source: local directory of a Hugging Face model.
        top: number of singular values of T.
        seed: seed of the random references of heads, and of the probes if the token map is estimated.
        only: the only part to compute: "heads", "operator" (singular values and token map) or "entrywise".
            None for all.
        entrywise: ranks at which to truncate the attention of every head.
    """
    asked = given if isinstance(given, RawInput) else RawInput("ids", ids=check_ids(given))
    kind, model = load_base_model(source)
    tokenizer = open_tokenizer(source, model.config.vocab_size)
    read = read_input(asked, tokenizer, max_input_tokens(kind, model.config))
    passed = trace_forward(kind, model, read.ids)
    operator = passed.operator
    attention_blocks = tuple(attentions(passed.chain))
    return Lens(
        model=str(source),
        family=kind,
        ids=read.ids,
        labels=read.labels,
        layers=len(attention_blocks),
        operator=operator,
        reconstruction_error=passed.reconstruction_error,
        offset_share=float(np.linalg.norm(operator.offset) / np.linalg.norm(passed.output)),
        rollout=rollout(attention_blocks),
        score_error=_score_error(passed),
        spectrum=top_singular_values(operator, top) if only in (None, "operator") else None,
        token_map=token_map(operator, seed, progress) if only in (None, "operator") else None,
        heads=measure_heads(passed.scores, _logit_bounds_by_head(source), seed, progress)
        if only in (None, "heads")
        else None,
        entrywise=None if entrywise is None else measure_head_errors(attention_blocks, entrywise, progress),
    )


def _logit_bounds_by_head(source: str | os.PathLike[str]) -> dict[tuple[int, int], Logits]:
    """Return by layer and head how large the logits of self-attention can get according to the weights."""
    bounds = logit_bounds(open_model(source)).items()
    return {(place.layer or 0, place.head or 0): logits for place, logits in bounds if place.kind == "qk"}


def _score_error(trace: Trace) -> float:
    """Return the largest difference between the network's attention and the one computed from scores."""
    return max(
        float(np.abs(scores.attention(scores.logits(head)) - block.probabilities[head]).max())
        for scores, block in zip(trace.scores, attentions(trace.chain), strict=True)
        for head in range(scores.heads)
    )
