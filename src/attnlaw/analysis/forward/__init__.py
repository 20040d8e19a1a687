"""Everything that needs a forward pass: the lens on one input, and margins of many inputs without labels."""

from attnlaw.analysis.forward.amplification import Amplification, amplification
from attnlaw.analysis.forward.condition import Condition, condition
from attnlaw.analysis.forward.lens import Lens, linearise
from attnlaw.analysis.forward.margins import Difference, Margin, Margins, compare_margins, measure_margins
from attnlaw.analysis.forward.operator import Operator, TopSingularValues, top_singular_values
from attnlaw.analysis.forward.token_maps import TokenMap, token_map

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
