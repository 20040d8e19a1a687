"""How large a layer may be: the bounds of its sizes, known before any mathematics is imported."""

from __future__ import annotations

from math import isqrt

from attnlaw.core.errors import BadSetting

MOST = 10**18  # of widths, heads and layers
BATCHES = 40  # of the jackknife, and so the fewest draws that have a standard error
MOST_DRAWS = 10**8
# A law that would take more memory than this is refused.
MOST_BYTES = 2**32
# Arrays of a Gram matrix's size that stand side by side while its root is taken.
ROOT_ARRAYS = 7
MOST_TOKENS = isqrt(MOST_BYTES // (8 * ROOT_ARRAYS))


def check_tokens(tokens: int) -> None:
    """A `BadSetting` for tokens whose Gram matrix and its root would take too much memory."""
    if tokens > MOST_TOKENS:
        memory = f"their Gram matrix and its root take more than {MOST_BYTES // 2**30} GiB of memory"
        raise BadSetting("tokens", f"expected at most {MOST_TOKENS}: {memory}", tokens)
