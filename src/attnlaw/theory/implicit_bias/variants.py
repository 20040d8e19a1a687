"""What the problems of this room may be made of: links, rules of shrinking, graphs. A new one is a line here.

The tables are known before any mathematics is imported: functions of arrays are named by `module:function`.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.variants import Variants, by_name, parse_positive, with_parameter


@dataclass(frozen=True)
class Link:
    """y = f(<x, beta>) + noise: `function` names f."""

    name: str
    function: str
    example: str | None = None
    parameters: tuple[float, ...] = ()

    def at(self, parameter: str) -> Link:
        return with_parameter(self, parameter, parse_positive(parameter))


@dataclass(frozen=True)
class Rule:
    """What is made of a noisy coefficient at a threshold: `function(phi, threshold, init)`."""

    name: str
    label: str
    function: str
    starts: bool = False  # it has a start, of scale `init`


@dataclass(frozen=True)
class Graph:
    """Whether the corner of a 2 x 2 matrix is seen, which connects its rows and columns."""

    name: str
    label: str
    observed: bool


_LINKS = "attnlaw.theory.implicit_bias.single_index"
_RULES = "attnlaw.theory.implicit_bias.early_stopping"

LINKS = Variants(
    Link("identity", f"{_LINKS}:identity"),
    Link("relu", f"{_LINKS}:relu"),
    Link("sin", f"{_LINKS}:sine"),
    # z + sin(3 z)/2
    Link("wave", f"{_LINKS}:wave"),
    # tanh(G z)
    Link("tanh:G", f"{_LINKS}:tanh", example="tanh:2"),
)
RULES = by_name(
    Rule("flow", "gradient flow, stopped", f"{_RULES}:flow_at_threshold", starts=True),
    Rule("hard", "hard threshold", f"{_RULES}:hard"),
    Rule("soft", "soft threshold", f"{_RULES}:soft"),
)
GRAPHS = by_name(
    Graph("connected", "corner seen: connected", observed=True),
    Graph("disconnected", "corner not seen: disconnected", observed=False),
)
