"""Sentences about how an untrained model starts: signals, tokens, attention and loss, and what is unusual.

They need only numbers that rows have, so the answer on a screen and the remark of a row share the sentences.
Unusual does not mean wrong: these are remarks, not verdicts.

| unusual is     | if                                                                       |
|----------------|--------------------------------------------------------------------------|
| the loss       | it starts more than `LOSS`, and two errors, above ln V                   |
| attention      | scores in the first layer have a standard deviation above `SCORES`       |
| the tokens     | their mean cosine is above `ALIKE` from some layer on                    |
| the signal     | the embedding is less than `SHARE` of the stream after the first layer   |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attnlaw.core.estimate import Estimate
from attnlaw.core.words import short_number, short_percent
from attnlaw.theory.init.records import PARALLEL, InitialLaw, Spread

LOSS, SCORES, ALIKE, SHARE = 0.1, 1.0, 0.99, 0.05
NORMED = 0.05  # a stream whose size stays this close to 1 in all layers is normalised after each block
WIDE = 1.05  # standard deviation of logits from which smaller weights are worth a word
RANGE = 10.0  # growth or decay from layer 1 to the last, within which signals are in range
NEAR_UNIFORM, DISTINCT = 0.95, 0.5  # entropy over uniform, and mean cosine, that the words below name


@dataclass(frozen=True)
class Start:
    """The numbers about an untrained model from which the sentences are made."""

    rms: Mapping[int, Estimate]  # by layer, where layer 0 is the embeddings
    cosine: Mapping[int, Estimate]  # by layer; empty for a single token
    score_sd: Estimate | None
    entropy: Estimate | None
    logit_sd: Estimate
    loss: Estimate | None
    uniform_loss: float
    gradient: Mapping[int, Estimate]  # by layer; empty if gradients were not computed
    infinite: bool  # whether the width is infinite


def start_of(law: InitialLaw) -> Start:
    """Return the numbers that the sentences need, from the distribution of an untrained model."""

    def by_layer(name: str) -> dict[int, Estimate]:
        known: list[tuple[int, Spread | None]] = [(layer.layer, getattr(layer, name)) for layer in law.layers]
        return {layer: spread.estimate for layer, spread in known if spread is not None}

    return Start(
        rms=by_layer("rms"),
        cosine=by_layer("cosine"),
        score_sd=law.score_sd,
        entropy=law.entropy,
        logit_sd=law.logit_sd,
        loss=law.loss,
        uniform_loss=law.uniform_loss,
        gradient=by_layer("gradient"),
        infinite=law.model_width is None,
    )


@dataclass(frozen=True)
class StartRemark:
    """A sentence about a model, without a full stop. `unusual` is None if that is not known."""

    text: str
    unusual: bool | None


def start_remarks(start: Start) -> list[StartRemark]:
    """Return sentences about signals, tokens, attention, loss and gradients of an untrained model."""
    return [remark for describe in TOPICS if (remark := describe(start)) is not None]


def _signals(start: Start) -> StartRemark | None:
    depth = max(start.rms)
    first, after, last = (start.rms[layer].value for layer in (0, 1, depth))
    if all(abs(rms.value - 1) < NORMED for layer, rms in start.rms.items() if layer):
        words = "norms keep the residual stream at size 1 in every layer"
        return StartRemark(f"Signals stay in range: {words}", False)
    growth = last / after if after else 1.0
    if 0 < first < SHARE * after:
        words = f"The embedding is only {short_percent(first / after)} of the residual stream after layer 1"
        more = f", which grows {short_number(growth, 2)}-fold up to layer {depth}" if depth > 1 else ""
        return StartRemark(f"{words}{more}", True)
    moves = "shrinks" if last < first else "grows"
    sizes = (
        f"the residual stream {moves} from size {short_number(first)} to {short_number(last)} in {depth} "
        "layers"
    )
    if 1 / RANGE <= growth <= RANGE:
        return StartRemark(f"Signals stay in range: {sizes}", False)
    return StartRemark(f"Signals {'grow' if growth > 1 else 'vanish'} with depth: {sizes}", None)


def _tokens(start: Start) -> StartRemark | None:
    if not start.cosine:
        return None
    names = {
        1 - PARALLEL: "all tokens are parallel up to rounding",
        ALIKE: f"their mean cosine is above {ALIKE}",
    }
    for limit, words in names.items():
        for layer, cosine in start.cosine.items():
            if cosine.value > limit:
                text = f"Tokens become alike (rank collapse): {words} from layer {layer} on"
                return StartRemark(text, True)
    depth = max(start.cosine)
    cosine = start.cosine[depth]
    words = "stay distinct" if cosine.value < DISTINCT else "become similar but do not collapse"
    return StartRemark(
        f"Tokens {words}: mean cosine {cosine} after layer {depth} (1 means that all are alike)", False
    )


def _attention(start: Start) -> StartRemark | None:
    if start.score_sd is None or start.entropy is None:
        return None
    share = (
        f"the mean entropy in layer 1 is {short_percent(start.entropy.value)} of the entropy of "
        "uniform attention"
    )
    if start.score_sd.value > SCORES:
        spread = f"scores have a standard deviation of {short_number(start.score_sd.value, 2)}"
        return StartRemark(f"Attention does not start uniform: {spread}, and {share}", True)
    nearly = "almost uniform" if start.entropy.value >= NEAR_UNIFORM else "fairly uniform"
    return StartRemark(f"Attention starts {nearly}: {share}", False)


def _loss(start: Start) -> StartRemark | None:
    if start.loss is None:
        size = f"have a standard deviation of {_size(start.logit_sd.value)}"
        if start.cosine and not start.infinite:
            text = f"The loss is too large to be computed from so many logits, because they {size}"
            return StartRemark(text, True)
        reason = (
            "In the limit of infinite width, the logits of a tied head are not defined"
            if start.cosine
            else "A single token has no next token"
        )
        return StartRemark(f"{reason}, so there is no loss. The other logits {size}", None)
    above, error = start.loss.value - start.uniform_loss, start.loss.error or 0.0
    guess = f"the {start.uniform_loss:.4g} of a uniform guess over {_vocabulary(start)} ids (ln V)"
    if above > max(LOSS, 2 * error):
        text = f"The loss starts at {start.loss}, {_size(above)} above {guess}"
        if start.logit_sd.value > WIDE:
            text += (
                f": output weights smaller by a factor of {_size(start.logit_sd.value)} would give logits of "
                "standard deviation 1"
            )
        return StartRemark(text, True)
    if abs(above) <= 2 * error:
        return StartRemark(f"The loss starts at {start.loss}, near {guess}", False)
    side = "above" if above > 0 else "below"
    return StartRemark(f"The loss starts at {start.loss}, {_size(abs(above))} {side} {guess}", False)


def _vocabulary(start: Start) -> str:
    return f"V = {round(math.exp(start.uniform_loss)):,}"


def _size(number: float) -> str:
    """Format a number with two decimals, or without any if it is large."""
    return f"{number:.2f}" if number < 100 else f"{number:,.0f}"


def _gradients(start: Start) -> StartRemark | None:
    if len(start.gradient) < 2:
        return None
    last = max(start.gradient)
    if not start.gradient[last].value:
        return None
    ratio = start.gradient[min(start.gradient)].value / start.gradient[last].value
    return StartRemark(
        f"The gradient of layer 1 is {short_number(ratio, 2)} times as large as the gradient of layer {last}",
        None,
    )


TOPICS: tuple[Callable[[Start], StartRemark | None], ...] = (_signals, _tokens, _attention, _loss, _gradients)
