"""The tokens for which a law is computed: which are equal, which are padding, and which token sees which."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from attnlaw.core.errors import BadSetting
from attnlaw.theory.init.architecture import Architecture

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Tokens:
    """The token ids of one input, in order.

    Args:
        padded: number of padding ids at the end, which no token sees.
        segments: segment (0 or 1) of each token, for BERT. An empty value puts all tokens into segment 0.

    >>> Tokens((5, 9, 5)).distinct
    (5, 9)
    """

    ids: tuple[int, ...]
    padded: int = 0
    segments: tuple[int, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.padded >= len(self.ids):
            raise BadSetting("padding", f"expected fewer than the {len(self.ids)} {{tokens}}", self.padded)
        if self.segments and len(self.segments) != len(self.ids):
            raise BadSetting(
                "segments", f"expected one for each of {len(self.ids)} {{tokens}}", self.segments
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def seen(self) -> int:
        """The number of tokens that are not padding. They come first."""
        return len(self.ids) - self.padded

    @property
    def distinct(self) -> tuple[int, ...]:
        """The different ids, in the order of their first occurrence."""
        return tuple(dict.fromkeys(self.ids))

    def allowed(self, causal: bool) -> BoolArray:
        """Return a mask of shape (s, s). Entry (i, j) is true if token i sees token j."""
        i, j = np.ogrid[: len(self.ids), : len(self.ids)]
        shown: BoolArray = np.broadcast_to(j < self.seen, (len(self.ids),) * 2)
        return shown & (j <= i) if causal else shown

    def targets(self, causal: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positions that the loss counts, and the id to predict at each of them."""
        ids = np.asarray(self.ids[: self.seen])
        places = np.arange(self.seen)
        return (places[:-1], ids[1:]) if causal else (places, ids)


def random_tokens(architecture: Architecture, count: int, padded: int, seed: int) -> Tokens:
    """Draw `count - padded` different ids, and append `padded` ids of padding."""
    pad = architecture.padding if architecture.padding is not None else 0
    least = count - padded + 1
    if architecture.vocabulary < least:
        raise BadSetting(
            "tokens", f"expected fewer than the size of the vocabulary, {architecture.vocabulary}", count
        )
    rng = np.random.default_rng(seed)
    ids = rng.choice(architecture.vocabulary - 1, count - padded, replace=False)
    ids = ids + (ids >= pad)
    return Tokens((*(int(token) for token in ids), *([pad] * padded)), padded)


def check_tokens(architecture: Architecture, tokens: Tokens) -> None:
    """Raise a `BadSetting` if there are too many tokens for the model, or ids outside of its vocabulary."""
    if architecture.longest is not None and len(tokens) > architecture.longest:
        what = "positions" if architecture.positions else "tokens in the sliding window"
        message = f"expected at most {architecture.longest}, the number of {what} of {architecture.name}"
        raise BadSetting("tokens", message, len(tokens))
    for token in tokens.ids:
        if token >= architecture.vocabulary:
            raise BadSetting(
                "ids", f"expected ids below the size of the vocabulary, {architecture.vocabulary}", token
            )
