"""All that needs a forward pass: the lens on one input, and margins of many inputs without labels."""

from attnlaw.forward.amplification import Amplification, amplification
from attnlaw.forward.condition import Condition, condition
from attnlaw.forward.lens import Lens, linearise
from attnlaw.forward.maps import TokenMap, token_map
from attnlaw.forward.margins import Difference, Margin, Margins, compare_margins, measure_margins
from attnlaw.forward.operator import Operator, TopSingularValues, top_singular_values

__all__ = [
    "Amplification",
    "Condition",
    "Difference",
    "Lens",
    "Margin",
    "Margins",
    "Operator",
    "TokenMap",
    "TopSingularValues",
    "amplification",
    "compare_margins",
    "condition",
    "linearise",
    "measure_margins",
    "token_map",
    "top_singular_values",
]
