"""The lens: the exact input-dependent affine map of one forward pass, and what flows between tokens."""

from attnlaw.lens.lens import Lens, linearise
from attnlaw.lens.maps import TokenMap, token_map
from attnlaw.lens.operator import Operator, TopSingularValues, top_singular_values

__all__ = [
    "Lens",
    "Operator",
    "TokenMap",
    "TopSingularValues",
    "linearise",
    "token_map",
    "top_singular_values",
]
