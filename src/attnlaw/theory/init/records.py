"""The records of a law: numbers over initialisations, by layer and of the whole model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from attnlaw.core.estimate import BriefRepr, Estimate, Outcome
from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.tokens import Tokens
from attnlaw.theory.limit.wishart import Array

ROUNDING = 1e-9  # draws with a smaller relative deviation count as equal
PARALLEL = 1e-6  # with a smaller 1 - cosine, hidden units of single precision cannot distinguish tokens


@dataclass(frozen=True)
class Spread:
    """A number over initialisations: mean with its standard error, deviation, and where 90% of draws are."""

    value: float
    error: float | None
    spread: float
    low: float
    high: float

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.error)


def spread_of(values: Array, fixed: bool = False) -> Spread:
    """Over draws; of a limit that is `fixed`, draws differ by their sampled heads alone."""
    mean = float(values.mean())
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    deviation = deviation if deviation > ROUNDING * abs(mean) else 0.0
    error = deviation / math.sqrt(len(values)) if len(values) > 1 else None
    if fixed:
        return Spread(mean, error, 0.0, mean, mean)
    low, high = np.quantile(values, (0.05, 0.95)).tolist()
    return Spread(mean, error, deviation, low, high)


def slopes(by_layer: list[Array]) -> Array:
    """Least squares slope by layer, of every draw.

    >>> slopes([np.array([1.0]), np.array([3.0]), np.array([5.0])]).tolist()
    [2.0]
    """
    layer = np.arange(len(by_layer)) - (len(by_layer) - 1) / 2
    slope: Array = np.stack(by_layer, axis=1) @ layer / (layer @ layer)
    return slope


@dataclass(frozen=True)
class MatrixGradient:
    """|dL/dW| of one matrix: its layer from 1 (None outside of layers), its name there."""

    layer: int | None
    matrix: str
    gradient: Spread


@dataclass(frozen=True)
class GradientLaw:
    """Norms of gradients: of all layers together, of each, of each matrix; `exponent`: slope of their log."""

    norm: Spread
    layers: Mapping[int, Spread]
    matrices: tuple[MatrixGradient, ...]
    exponent: Spread | None


@dataclass(frozen=True)
class LayerLaw:
    """One layer, from 1 (0: the embeddings), and what `measure_layer` gives; None where it has none."""

    layer: int
    rms: Spread | None = None
    cosine: Spread | None = None
    effective_rank: Spread | None = None
    entropy: Spread | None = None
    score_sd: Spread | None = None
    gradient: Spread | None = None


@dataclass(frozen=True, eq=False, repr=False)
class InitialLaw(BriefRepr):
    """What a freshly initialised model does with its tokens, over initialisations.

    `model_width` is N, None for a limit, which need not be `random`. `logit_sd` is the deviation of the logit
    of an id that is not among the tokens, `loss` that of the next token (BERT: of every token itself) beside
    `uniform_loss`, ln V. `own_probability` is what a place gives its own id, `own_cosine` the cosine of the
    last tokens with their own embeddings (a tied head). `angle_exponent` is the slope of log(1 - cosine) by
    layer. None where there is no such number; logits of the tokens' own ids have no limit with a tied head.
    """

    architecture: Architecture
    tokens: Tokens
    model_width: int | None
    draws: int
    random: bool
    layers: tuple[LayerLaw, ...]
    logit_sd: Estimate
    loss: Estimate | None
    loss_spread: float | None
    own_probability: Estimate | None
    own_cosine: Estimate | None
    angle_exponent: Estimate | None
    outcome: Outcome
    remark: str | None = None
    gradients: GradientLaw | None = None

    def with_gradients(self, gradients: GradientLaw) -> InitialLaw:
        """The law with gradients beside its layers."""
        layers = tuple(replace(layer, gradient=gradients.layers.get(layer.layer)) for layer in self.layers)
        return replace(self, layers=layers, gradients=gradients)

    @property
    def gradient_norm(self) -> Estimate | None:
        return None if self.gradients is None else self.gradients.norm.estimate

    @property
    def gradient_exponent(self) -> Estimate | None:
        exponent = None if self.gradients is None else self.gradients.exponent
        return None if exponent is None else exponent.estimate

    @property
    def uniform_loss(self) -> float:
        return math.log(self.architecture.vocabulary)

    @property
    def initialiser(self) -> str:
        return self.architecture.read_from

    def last(self, name: str) -> Estimate | None:
        """A measure after the last layer."""
        spread: Spread | None = getattr(self.layers[-1], name)
        return None if spread is None else spread.estimate

    @property
    def rms(self) -> Estimate | None:
        return self.last("rms")

    @property
    def cosine(self) -> Estimate | None:
        return self.last("cosine")

    @property
    def cosine_spread(self) -> float | None:
        """Deviation over initialisations."""
        cosine = self.layers[-1].cosine
        return None if cosine is None else cosine.spread

    @property
    def effective_rank(self) -> Estimate | None:
        return self.last("effective_rank")

    @property
    def entropy(self) -> Estimate | None:
        """Of the first layer, where tokens differ most."""
        entropy = self.layers[1].entropy
        return None if entropy is None else entropy.estimate

    @property
    def score_sd(self) -> Estimate | None:
        """Of the first layer."""
        score_sd = self.layers[1].score_sd
        return None if score_sd is None else score_sd.estimate
