"""The lens: the exact input-dependent affine map of one forward pass, and what flows between tokens."""

from attnlaw.forward.lens import Lens, linearise
from attnlaw.forward.maps import TokenMap, token_map
from attnlaw.forward.operator import Operator, TopSingularValues, top_singular_values

__all__ = [
    "Lens",
    "Operator",
    "TokenMap",
    "TopSingularValues",
    "linearise",
    "token_map",
    "top_singular_values",
]
