"""Records of the law of an untrained model, for each layer and for the whole model."""

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
    """A number over several random starts: mean with error, standard deviation, 5% and 95% quantiles."""

    value: float
    error: float | None
    spread: float
    low: float
    high: float

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.value, self.error)


def spread_of(values: Array, fixed: bool = False) -> Spread:
    """Summarise the values of all draws. The deviation of a number that is not random (`fixed`) is 0."""
    mean = float(values.mean())
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    deviation = deviation if deviation > ROUNDING * abs(mean) else 0.0
    error = deviation / math.sqrt(len(values)) if len(values) > 1 else None
    if fixed:
        return Spread(mean, error, 0.0, mean, mean)
    low, high = np.quantile(values, (0.05, 0.95)).tolist()
    return Spread(mean, error, deviation, low, high)


def slopes(by_layer: list[Array]) -> Array:
    """Return the slope of a least-squares line over the layers, in each draw."""
    layer = np.arange(len(by_layer)) - (len(by_layer) - 1) / 2
    return np.asarray(np.stack(by_layer, axis=1) @ layer / (layer @ layer))


@dataclass(frozen=True)
class MatrixGradient:
    """The gradient norm |dL/dW| of one matrix. Layers count from 1; None means outside of all layers."""

    layer: int | None
    matrix: str
    gradient: Spread


@dataclass(frozen=True)
class GradientLaw:
    """Gradient norms: of all layers together, of each layer and of each matrix."""

    norm: Spread
    layers: Mapping[int, Spread]
    matrices: tuple[MatrixGradient, ...]
    exponent: Spread | None


@dataclass(frozen=True)
class LayerLaw:
    """The numbers that describe one layer (see the module `law`). Layer 0 is the embeddings.

    A measure is None if the layer does not have it. `gradient` is the norm of the layer's gradients.
    """

    layer: int
    rms: Spread | None = None
    cosine: Spread | None = None
    effective_rank: Spread | None = None
    entropy: Spread | None = None
    score_sd: Spread | None = None
    gradient: Spread | None = None


@dataclass(frozen=True, eq=False, repr=False)
class InitialLaw(BriefRepr):
    """The distribution of an untrained model for given tokens, over random starts.

    A field is None if the number does not exist. For example, the logits of a model with a tied head have no
    limit at infinite width.

    Args:
        model_width: the width N, or None in the limit of infinite width.
        logit_sd: standard deviation of the logit of an id that is not among the tokens.
        loss: mean loss of the next token (BERT: of every token). `uniform_loss` is that of a uniform guess.
        own_probability: probability that the model gives to the id at the same position.
        own_cosine: cosine between the last tokens and their embeddings, if the head is tied.
        angle_exponent: slope of log(1 - cosine) over the layers, negative if tokens become parallel.
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
        """Return a copy that also has gradient norms, for the whole model and for each layer."""
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

    def last(self, name: str, layer: int = -1) -> Estimate | None:
        """Return a measure by name after a layer (the last by default), or None if the layer has none."""
        spread: Spread | None = getattr(self.layers[layer], name)
        return None if spread is None else spread.estimate

    @property
    def rms(self) -> Estimate | None:
        return self.last("rms")

    @property
    def cosine(self) -> Estimate | None:
        return self.last("cosine")

    @property
    def cosine_spread(self) -> float | None:
        """The standard deviation over random starts of the mean cosine after the last layer."""
        cosine = self.layers[-1].cosine
        return None if cosine is None else cosine.spread

    @property
    def effective_rank(self) -> Estimate | None:
        return self.last("effective_rank")

    @property
    def entropy(self) -> Estimate | None:
        """The relative entropy of attention in the first layer, where tokens differ most."""
        return self.last("entropy", layer=1)

    @property
    def score_sd(self) -> Estimate | None:
        return self.last("score_sd", layer=1)
