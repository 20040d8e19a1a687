"""Norms of a model: x = g * zhat + b, where zhat has root mean square at most one.

| kind | zhat of z | g applied to a map M on row vectors |
|---|---|---|
| `layer` | (z - mean) / sqrt(variance + epsilon) | C diag(g) M, since zhat C = zhat |
| `rms` | z / sqrt(mean square + epsilon) | diag(g) M |
| `none` | z: nothing is normalised | M |

C = I - 11^T / N takes the mean over the inputs off every column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlaw.core.arrays import Reals

LAYER, RMS, NONE = KINDS = ("layer", "rms", "none")


@dataclass(frozen=True)
class Norm:
    """A norm as it is stored: the tensors of its gain and bias, None where it has none.

    `offset` is added to the stored gain (Gemma stores g - 1). Of queries and keys it normalises every head
    by itself, or with `joint` all heads together.
    """

    kind: str
    gain: str | None = None
    bias: str | None = None
    epsilon: float = 0.0
    offset: float = 0.0
    joint: bool = False


@dataclass(frozen=True, eq=False)
class NormFold:
    """What a norm puts before a map: C diag(gain), or diag(gain) alone, a matrix that is never formed.

    `gain` has one entry for each input, or one for all.
    """

    gain: Reals
    centred: bool

    def __call__(self, columns: Reals) -> Reals:
        """The product with a matrix of as many rows."""
        return self._centred(self.gain[:, None] * columns)

    def transposed(self, columns: Reals) -> Reals:
        """The product of its transpose."""
        return self.gain[:, None] * self._centred(columns)

    def _centred(self, columns: Reals) -> Reals:
        return np.asarray(columns - columns.mean(axis=0)) if self.centred else columns


# Read by a block that nothing is normalised for; of a block whose norm is not known, None stands.
NO_NORM = Norm(NONE)


@dataclass(frozen=True)
class Rotary:
    """Which numbers of a head are turned with the position, and which of them together.

    Of `size` numbers from `start` on, number i turns with i + size / 2, or (`adjacent`) 2i with 2i + 1,
    by position * base^(-2i / size); `base` is None where the config does not say or rescales it. `scale` is
    what they are multiplied by besides (yarn, longrope), None where the config's type of positions is not
    known.
    """

    size: int
    adjacent: bool = False
    base: float | None = None
    start: int = 0
    scale: float | None = 1.0


@dataclass(frozen=True)
class Scores:
    """How scores come from queries and keys: norms of both, positions, `scale * q . k`, then a cap.

    A cap c makes c tanh(s / c) of a score s. With `normed_last`, positions come before the norms. `sinks` is
    the tensor of one more score for each head, which no token has: weights of tokens add up to less than 1.
    `clip` is the largest magnitude of an entry of queries and keys, which larger ones are set to before
    positions. `growing`: queries are multiplied by a factor that grows with their position.
    """

    scale: float
    cap: float | None = None
    rotary: Rotary | None = None
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    normed_last: bool = False
    sinks: str | None = None
    clip: float | None = None
    growing: bool = False


UNSCALED = Scores(1.0)
