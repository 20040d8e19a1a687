"""What a low rank would cost the attention of each head, entry by entry (`spectra.entrywise`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnlaw.analysis.forward.blocks import FrozenAttention
from attnlaw.core.errors import BadSetting
from attnlaw.core.progress import Progress, no_progress
from attnlaw.spectra.entrywise import EntrywiseError, entrywise_errors, rank_within


@dataclass(frozen=True)
class HeadErrors:
    """One head on one input: `rank_within` is the least rank that keeps every weight within 0.01.

    `errors` has a record for each rank that was asked for.
    """

    layer: int
    head: int
    rank_within: int
    errors: tuple[EntrywiseError, ...]


def measure_head_errors(
    blocks: Sequence[FrozenAttention], ranks: Iterable[int], progress: Progress = no_progress
) -> tuple[HeadErrors, ...]:
    """The errors of every head of every attention block of a pass, at some ranks, layer by layer."""
    tokens = int(blocks[0].probabilities.shape[-1])
    wanted = list(ranks)
    for rank in wanted:
        if not 1 <= rank <= tokens:
            raise BadSetting("entrywise", f"expected ranks from 1 to {tokens}, the tokens of the input", rank)
    places = [(layer, head) for layer, block in enumerate(blocks) for head in range(len(block.probabilities))]
    errors = []
    for done, (layer, head) in enumerate(places, start=1):
        weights = blocks[layer].probabilities[head]
        errors.append(HeadErrors(layer, head, rank_within(weights), entrywise_errors(weights, wanted)))
        progress(done, len(places))
    return tuple(errors)
