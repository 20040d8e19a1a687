"""Where a Transformer's blocks are normalised, how a limit of infinite width is taken. A new one is a line.

The tables are known before any mathematics is imported.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class NormPlacement:
    """Where norms stand: `before` a block, on its `output`, `after` its sum with the stream.

    With `parallel`, attention and the MLP read the same tokens and are added together.
    """

    name: str
    before: bool = False
    output: bool = False
    after: bool = False
    parallel: bool = False


@dataclass(frozen=True)
class WidthLimit:
    """What stays while the width grows: the `heads`, which widen, or their width, and more heads come.

    `random`: the scores of a head stay random and the law of the layers with them.
    """

    name: str
    random: bool


@dataclass(frozen=True)
class ScoreScaling:
    """The power of the head width that scores are multiplied by: -1/2, or -1 (muP)."""

    name: str
    power: float


@dataclass(frozen=True)
class Parametrisation:
    """How deviations and rates go with the width: muP follows it, the standard one (power 0) does not."""

    name: str
    power: int


ORDERS = by_name(
    NormPlacement("pre", before=True),
    NormPlacement("post", after=True),
    NormPlacement("parallel", before=True, parallel=True),
    NormPlacement("sandwich", before=True, output=True),
)
KEPT = by_name(WidthLimit("heads", random=True), WidthLimit("head-width", random=False))
SCORE_SCALINGS = by_name(ScoreScaling("1/sqrt(d)", -0.5), ScoreScaling("1/d", -1.0))
PARAMETRISATIONS = by_name(Parametrisation("SP", 0), Parametrisation("muP", 1))
HEADS = ("plain", "masked")  # logits of the last tokens themselves, or of BERT's transform of them
# Names of activations in config.json, by those of `attnlaw.theory.limit.variants`.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "silu": "silu",
    "swish": "silu",
}
