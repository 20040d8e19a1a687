r"""Bound, typical size and probable maximum of a head's attention logits, from its weights alone.

| letter | meaning |
|---|---|
| s, c | `Scores.scale`, `Scores.cap` |
| q = z R_Q + q0, k = z' R_K + k0 | queries and keys, \|z\|^2 <= S_Q and \|z'\|^2 <= S_K (`spectra.scores`) |
| v, sigma, tau | singular values, descending, of R_Q R_K^T, of R_Q and of R_K |

- **Bound**, for any input: `s [sqrt(S_Q S_K) v_1 + sqrt(S_Q) |R_Q k0| + sqrt(S_K) |R_K q0| + |q0 . k0|]`.
- **Rotary positions** rotate queries and keys, between R_Q and R_K^T. So v_1 does not give a bound, but
  lengths stay the same. The bound of the rotated entries is `s max|q| max|k|`; it is added to the bound of
  the others. The largest length is exact:
  `max|z R + y0|^2 = min over l > sigma_1^2 of [l S + sum_i (y0 . e_i)^2 l / (l - sigma_i^2)]`, where e_i are
  the right singular vectors (a quadratic with one constraint has no duality gap). Clipping changes products
  too but never makes a vector longer, so it is treated in the same way.
- **Cap**: `c tanh(l / c)` increases with l, so the cap is applied to the bound.
- **Typical**: over isotropic tokens, the root mean square over rows of the standard deviation of a row of
  logits is `s sqrt(sum v_i^2 + |R_K q0|^2)`. Positions are left out.
- **Probable**: take `L = ln(2 n^2 / delta)`, w = s v and `A^2 = s^2 (|R_Q k0|^2 + |R_K q0|^2)`. With
  probability 1 - delta, no logit of n isotropic tokens (query and key of two different tokens) exceeds

      s |q0 . k0| + min over 0 < t < 1/w_1 of [L - sum ln(1 - t^2 w_i^2) / 2 + t^2 A^2 / (2 (1 - t w_1))] / t

  The moment generating function of Gaussian z dominates that of z on the sphere. Under rotary positions w_i =
  s sigma_i tau_i, because the sum is convex and increasing in ln w_i, and the singular values of R_Q T R_K^T
  are log-majorised by these products for every rotation T (Horn 1950). |R_Q k0| becomes sigma_1 |k0|, |R_K
  q0| becomes tau_1 |q0|, and q0 . k0 becomes |q0| |k0|.

The bound and the probable maximum are ours. arXiv 2602.18851 bounds logits of isotropic tokens by the rank;
we use all singular values. Real tokens are not isotropic. In training they align with the directions that a
head looks for, and its logits become several times as large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, log, sqrt, tanh

import numpy as np

from attnlaw.checkpoints.blocks import Attention, Scores
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.spectra.head_sizes import Lengths, ScorePart, ScoreSizes
from attnlaw.spectra.scores import block_scores, missing_sizes_reason

# The probable maximum holds for this many tokens, except with this probability.
TOKENS, CHANCE = 512, 0.05
# Relative enlargement of bounds, far above the round-off of float64.
SLACK = 1e-12
# Largest finite numbers of the types that store logits.
FLOAT8_E4M3, FLOAT16 = 448.0, 65504.0
APPLIED_AGAIN = (
    "the model applies this layer several times, and the first time without the norm layer before it"
)
PAST_FLOAT64 = "its queries or keys are too large for float64"


@dataclass(frozen=True)
class Logits:
    """Bound, typical size and probable maximum of a head's logits. `reason` explains a missing bound."""

    bound: float | None = None
    typical: float | None = None
    probable: float | None = None
    reason: str | None = None


def logit_bounds(model: Model) -> dict[MatrixLocation, Logits]:
    """Return the sizes of the logits of every head. The keys are the locations of the heads' QK matrices."""
    logits: dict[MatrixLocation, Logits] = {}
    read: dict[tuple[int | None, str], list[ScoreSizes | None]] = {}
    for location, product in model.network.leaves():
        block, key = product.block, (location.layer, location.kind)
        if KINDS[location.kind].scores and isinstance(block, Attention):
            if key not in read:
                read[key] = block_scores(model, block, location.kind)
            logits[location] = head_logits(model, location, block, read[key][location.head or 0])
    return logits


def head_logits(model: Model, location: MatrixLocation, block: Attention, sizes: ScoreSizes | None) -> Logits:
    """Return the sizes of the logits of one head. Pass `sizes` as None if queries or keys exceed float64."""
    reason = why_no_bound(model, location, block)
    if sizes is None:
        return Logits(reason=reason or PAST_FLOAT64)
    logits = logits_of(sizes, block.scores)
    return logits if reason is None else replace(logits, bound=None, reason=reason)


def why_no_bound(model: Model, location: MatrixLocation, block: Attention) -> str | None:
    """Return the reason why the logits of a block have no bound that holds for every input, or None."""
    again = location.layer is not None and model.network.applications.count(location.layer) > 1
    return missing_sizes_reason(block) or (APPLIED_AGAIN if again else None)


def logits_of(sizes: ScoreSizes, scores: Scores) -> Logits:
    """Return the bound, the typical size and the probable maximum of the logits of a head."""
    whole = sizes.whole
    bound = scores.scale * sum(map(_largest_score, sizes.parts))
    if scores.clip is not None and whole.lengths is not None:
        stretch = 1.0 if scores.rotary is None or scores.rotary.scale is None else scores.rotary.scale
        bound = min(bound, scores.scale * whole.lengths[0].values.size * (stretch * scores.clip) ** 2)
    bound *= 1 + SLACK
    typical = scores.scale * float(np.hypot(np.linalg.norm(whole.values), whole.key))
    probable = _probable_maximum(whole, scores.scale)
    if scores.cap is not None:
        bound, probable = (scores.cap * tanh(value / scores.cap) for value in (bound, probable))
        typical = min(scores.cap, typical)
    if not all(map(isfinite, (bound, typical, probable))):
        return Logits(reason=PAST_FLOAT64)
    return Logits(bound, typical, probable)


def _largest_score(part: ScorePart) -> float:
    """Return an upper bound of q . k over one part of the entries of queries and keys."""
    if part.lengths is not None:
        return largest_length(part.lengths[0]) * largest_length(part.lengths[1])
    query, key = map(sqrt, part.squares)
    linear = query * part.query + key * part.key
    return query * key * float(part.values[0]) + linear + abs(part.shifts)


def largest_length(side: Lengths) -> float:
    """Return the largest length of a query or key z R + y0 over all inputs z with |z|^2 <= S."""
    size = max(float(side.values[0]), float(np.sqrt(side.along.sum() / side.square)))
    if size == 0:
        return 0.0
    # In units of `size`, squares of large numbers do not overflow.
    squares, along = (side.values / size) ** 2, side.along / size**2
    below = squares[0] - squares
    slope = along * squares
    high = sqrt(float(slope.sum()) / side.square)
    if high == 0:  # y0 is orthogonal to the range of R
        return size * sqrt(squares[0] * side.square + float(along.sum()))
    # Bisection runs in l - sigma_1^2 (see the module), so that values of l near sigma_1^2 keep their digits.
    low = max(sqrt(float(slope[0]) / side.square), 1e-16 * high)
    for _ in range(50):
        middle = sqrt(low * high)
        if float((slope / (middle + below) ** 2).sum()) > side.square:
            low = middle
        else:
            high = middle
    dual = squares[0] + high
    return size * sqrt(dual * side.square + float((along * dual / (high + below)).sum()))


def _probable_maximum(part: ScorePart, scale: float) -> float:
    """Return the probable maximum; its formula holds for every t, so a minimum over a grid is valid."""
    values, query, key, shifts = part.values, part.query, part.key, abs(part.shifts)
    if part.lengths is not None:
        first, second = part.lengths
        q0, k0 = (sqrt(float(side.along.sum())) for side in part.lengths)
        values = first.values * second.values
        query, key, shifts = first.values[0] * k0, second.values[0] * q0, q0 * k0
    linear_variance = query**2 + key**2
    level = log(2 * TOKENS**2 / CHANCE)
    variance = float(values @ values) + linear_variance
    if variance == 0 or not isfinite(variance):
        return scale * (shifts + variance)
    size = sqrt(variance)  # t is in units of 1 / size
    w, linear_share = values / size, linear_variance / variance
    most = min(sqrt(2 * level), (1 - 1e-6) / w[0] if w[0] > 0 else np.inf)
    low, high = 0.0, most
    for _ in range(3):
        t = np.linspace(low, high, 33)[1:]
        growth = -np.log1p(-((t[:, None] * w) ** 2)).sum(axis=1) + t**2 * linear_share / (1 - t * w[0])
        levels = (level + growth / 2) / t
        best = int(np.argmin(levels))
        low, high = (t[best - 1] if best else low), t[min(best + 1, t.size - 1)]
    return scale * (shifts + size * float(levels.min()))
