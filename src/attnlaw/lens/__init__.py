"""The lens: the exact input-dependent affine map of one forward pass, and what flows between tokens."""

from attnlaw.lens.linearise import Lens, linearise
from attnlaw.lens.operator import Operator, TopSingularValues, top_singular_values
from attnlaw.lens.token_map import TokenMap, token_map

__all__ = [
    "Lens",
    "Operator",
    "TokenMap",
    "TopSingularValues",
    "linearise",
    "token_map",
    "top_singular_values",
]
