r"""The relative margin D of inputs, without labels. D ranks trained models of one task.

| symbol | here |
|---|---|
| z, y | logits, and the class that the model itself predicts |
| m | `margin`: z_y - max_{k != y} z_k (hard), or z_y - logsumexp_{k != y} z_k (smooth) |
| g | `gradient`: \|dm/dh0\|_F over the visible tokens; h0 is what block 0 reads |
| s | `spread`: pooled standard deviation of a token at its position |
| D | `distance`: m / (g s sqrt(T)), with T visible tokens |

D is the distance to the decision boundary in units of the spread of tokens, to first order only. It is exact
for a linear readout, and far too large if the head saturates. It ranks models of one task, trained to a
similar loss, on the same inputs. It is not an error rate. D has not been validated for causal language
models.

One backward pass gives the gradients of a whole batch. Inputs do not interact, so the gradient of the sum of
all m contains the gradient of each m.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, floor, sqrt
from typing import Any

import numpy as np

from attnlaw.analysis.forward.classifier import (
    Batch,
    Classifier,
    ModelInputs,
    as_inputs,
    batches,
    open_classifier,
)
from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate, Range
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.settings import check_value
from attnlaw.core.words import short_number
from attnlaw.numerics.draws import mean_of

MIN_RELATIVE_SPREAD = 1e-12  # relative to the size of tokens; a smaller spread is rounding


@dataclass
class HiddenSpread:
    """The spread s^2 = sum_t sum_{i: T_i > t} |h_it - mu_t|^2 / sum_t (c_t - 1)_+, added batch by batch."""

    counts: Reals | None = None
    means: Reals | None = None
    squares: float = 0.0
    size: float = 0.0

    def add(self, states: Any, mask: Any) -> None:
        """Add the hidden states of a batch (B x T x N). `mask` (B x T) marks the tokens that count."""
        x, kept = np.asarray(states), np.asarray(mask)[..., None]
        counts = kept.sum(axis=0)[:, 0].astype(np.float64)
        means = np.where(kept, x, 0.0).sum(axis=0) / np.maximum(counts, 1)[:, None]
        self.squares += float((np.where(kept, x - means, 0.0) ** 2).sum())
        self.size += float((np.where(kept, x, 0.0) ** 2).sum())
        old_counts, old_means = self._pad_to(len(counts), x.shape[-1])
        here = slice(0, len(counts))
        total = np.maximum(old_counts[here] + counts, 1)
        shift = means - old_means[here]
        self.squares += float((old_counts[here] * counts / total * (shift**2).sum(axis=1)).sum())
        old_means[here] += shift * (counts / total)[:, None]
        old_counts[here] += counts
        self.counts, self.means = old_counts, old_means

    def value(self) -> float:
        """Return the spread s, or raise an `InputError` if the inputs do not determine it."""
        freedom = 0.0 if self.counts is None else float(np.maximum(self.counts - 1, 0).sum())
        if freedom == 0:
            raise InputError(
                "inputs: no two inputs have a token at the same position, so they cannot be compared; "
                "give more inputs"
            )
        if self.squares <= MIN_RELATIVE_SPREAD**2 * self.size:
            raise InputError("inputs: all inputs are the same, so they do not vary; give inputs that differ")
        return float(np.sqrt(self.squares / freedom))

    def _pad_to(self, length: int, width: int) -> tuple[Reals, Reals]:
        if self.counts is None or self.means is None:
            return np.zeros(length), np.zeros((length, width))
        more = max(0, length - len(self.counts))
        return np.pad(self.counts, (0, more)), np.pad(self.means, ((0, more), (0, 0)))


MIN_INPUTS = 12  # fewer rank nothing
RECOMMENDED_INPUTS = 32  # fewer rank worse
CAUSAL_REMARK = "D has not been validated for causal language models: do not use it to choose between them"
CLEAR = 2  # standard errors of a clear difference
SAME = 1e-3  # relative difference below which two models have the same D


@dataclass(frozen=True)
class Margin:
    input: int
    tokens: int
    position: int | None  # the token that is read; None for a classifier
    predicted: int
    margin: float
    gradient: float
    distance: float | None  # D; None if margin and gradient are both 0
    confidence: float  # the largest probability

    @property
    def status(self) -> str:
        """The status: "flat" if the gradient is 0, else "tie" if the margin is 0, else "ok"."""
        if self.gradient == 0:
            return "flat"
        return "tie" if self.margin == 0 else "ok"


@dataclass(frozen=True)
class Margins:
    """The relative margins D of one model over inputs.

    Inputs with margin m = 0 (`ties`) or gradient g = 0 (`flat`) are left out of the means. The median
    includes them unless both are 0, because then D is not defined.

    Args:
        mean_log: mean of log D, or None if a smooth margin is negative and has no logarithm.
        median: median of D with a confidence interval from ranks.
        repeated: number of inputs that are equal to an earlier one.
        unknown: number of tokens that the tokenizer does not know.
    """

    model: str
    rows: tuple[Margin, ...]
    mean_log: Estimate | None
    median: Range
    mean: float | None
    spread: float
    causal: bool
    classes: int
    inputs_sha256: str
    repeated: int = 0
    unknown: int = 0

    @property
    def inputs(self) -> int:
        return len(self.rows)

    @property
    def geometric_mean(self) -> Estimate | None:
        """The geometric mean of D, which is the main number, or None if log D has no mean.

        The error of this mean is the error of the mean logarithm times the value.
        """
        if self.mean_log is None:
            return None
        value = exp(self.mean_log.value)
        return Estimate(value, value * (self.mean_log.error or 0.0))

    @property
    def ties(self) -> int:
        return sum(row.margin == 0 for row in self.rows)

    @property
    def flat(self) -> int:
        return sum(row.gradient == 0 for row in self.rows)

    @property
    def confidence(self) -> float:
        """The mean over inputs of the probability of the predicted class."""
        return float(np.mean([row.confidence for row in self.rows]))

    @property
    def remark(self) -> str | None:
        """A remark about the limits of these numbers, or None if there is nothing to say."""
        counted = {
            f"left out {self.ties} of {self.inputs} inputs whose two best classes tie (margin 0)": self.ties,
            f"left out {self.flat} of {self.inputs} inputs whose margin does not depend on the input "
            "(gradient 0)": self.flat,
            f"repeated inputs: {self.repeated} of {self.inputs}": self.repeated,
            f"the tokenizer does not know {self.unknown} of the tokens": self.unknown,
            f"{self.inputs} inputs are few: use {RECOMMENDED_INPUTS} or more for a reliable D": self.inputs
            < RECOMMENDED_INPUTS,
            CAUSAL_REMARK: self.causal,
            "the mean of log D does not exist, because a smoothed margin is negative": self.mean_log is None,
        }
        return "; ".join(words for words, count in counted.items() if count) or None


@dataclass(frozen=True)
class Difference:
    """The mean difference of log D between two models, over the inputs that have D in both."""

    log_ratio: Estimate
    inputs: int

    @property
    def sentence(self) -> str:
        """The difference in words: its size, its size in standard errors, and whether it is clear.

        >>> Difference(Estimate(-0.03, 0.02), 32).sentence
        '3.0% smaller, 1.5 standard errors of log D: no clear difference'
        >>> Difference(Estimate(0.9, 0.1), 32).sentence
        '2.46 times as large, 9.0 standard errors of log D: a clear difference'
        """
        value, error = self.log_ratio.value, self.log_ratio.error or 0.0
        if abs(value) < SAME:
            return f"the same within {SAME:.1%}"
        change = expm1(value)
        size = f"{100 * abs(change):#.2g}".removesuffix(".") + f"% {'larger' if value > 0 else 'smaller'}"
        if change > 1:
            size = f"{short_number(exp(value))} times as large"
        if error == 0:
            return f"{size} on every input: a clear difference"
        verdict = "no clear difference" if abs(value) < CLEAR * error else "a clear difference"
        return f"{size}, {abs(value) / error:.1f} standard errors of log D: {verdict}"


def measure_margins(
    model: str | os.PathLike[str] | Any,
    inputs: Any,
    margin: str = "hard",
    at: int = 0,
    positions: str | Sequence[int] = "last",
    seed: int = 0,
    blocks: Sequence[Any] | None = None,
    progress: Progress = no_progress,
) -> Margins:
    """Measure D of every input from the model's own predictions, without labels.

    Args:
        model: a directory or a torch module. Directories may contain BERT and RoBERTa with a classifier, and
            GPT-2 and LLaMA-like language models.
        inputs: at least 12 inputs that training did not see, as lists of ids or a tensor. See
            `attnlaw.analysis.forward.classifier`.
        margin: "hard" or "smooth".
        at: number of the block whose input is h0.
        positions: the token to read from a causal model: "last", "sample", or one position for each input.
        blocks: the blocks of a torch module, first to last.

    >>> import torch
    >>> head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 3))
    >>> found = measure_margins(head, torch.randn(40, 1, 2, generator=torch.manual_seed(0)))
    >>> found.inputs, found.ties, found.remark
    (40, 0, None)
    """
    inputs = as_inputs(inputs)
    if len(inputs) < MIN_INPUTS:
        raise InputError(
            f"inputs: found {len(inputs)}, expected at least {MIN_INPUTS}; give more, ideally 200"
        )
    network = open_classifier(model, inputs, blocks)
    margins = relative_margins(network, inputs, margin, at, positions, seed, progress)
    usable = sum(row.status == "ok" for row in margins.rows)
    if usable < MIN_INPUTS:
        raise InputError(
            f"inputs: {len(inputs) - usable} of {len(inputs)} have a margin or a gradient of 0; {usable} are "
            f"left, expected at least {MIN_INPUTS}; give other inputs"
        )
    return margins


def relative_margins(
    network: Classifier,
    inputs: ModelInputs,
    margin: str = "hard",
    at: int = 0,
    positions: str | Sequence[int] = "last",
    seed: int = 0,
    progress: Progress = no_progress,
) -> Margins:
    """Measure D of any number of inputs, on a network that is already open."""
    check_value("margin", margin, str, choices=MARGINS)
    check_value("at", at, int, minimum=0, maximum=max(0, len(network.blocks) - 1))
    spread, rows = HiddenSpread(), []
    for batch in batches(inputs, network, positions, seed, progress):
        rows += _measure_batch(network, batch, margin, at, spread)
    s = spread.value()
    rows.sort(key=lambda row: row["input"])
    margins = tuple(Margin(**row, distance=_distance(row, s)) for row in rows)
    usable = [row.distance for row in margins if row.status == "ok"]
    return Margins(
        model=network.name,
        rows=margins,
        mean_log=_mean_log(margins),
        median=median_with_interval([row.distance for row in margins if row.distance is not None]),
        mean=float(np.mean(np.array(usable))) if usable else None,
        spread=s,
        causal=network.causal,
        classes=network.classes,
        inputs_sha256=inputs.sha256,
        repeated=inputs.duplicate_count,
    )


def compare_margins(a: Margins, b: Margins) -> Difference:
    """Return the mean over inputs of the difference log D(a) - log D(b), with its standard error.

    Each model has its own spread s. The error of s is not included.
    """
    if a.inputs_sha256 != b.inputs_sha256 or [r.position for r in a.rows] != [r.position for r in b.rows]:
        raise InputError(
            "the two models read different token ids or positions; give models with the same tokenizer"
        )
    if a.classes != b.classes:
        raise InputError(
            f"one model has {a.classes} classes, the other {b.classes}; give two models for the same task"
        )
    first, second = _log_distances(a.rows), _log_distances(b.rows)
    pairs = [first[key] - second[key] for key in first if key in second]
    if len(pairs) < MIN_INPUTS:
        raise InputError(
            f"{len(pairs)} inputs have a D in both models, but the comparison needs at least "
            f"{MIN_INPUTS}; give more inputs"
        )
    return Difference(mean_of(pairs), len(pairs))


def hard_margin(logits: Any) -> Any:
    """Return the predicted logit minus the largest other logit."""
    top, predicted = logits.max(dim=1)
    return top - _without_predicted(logits, predicted).max(dim=1).values


def smooth_margin(logits: Any) -> Any:
    """Return the predicted logit minus the log-sum-exp of the other logits. The margin may be negative."""
    top, predicted = logits.max(dim=1)
    return top - _without_predicted(logits, predicted).logsumexp(dim=1)


MARGINS = {"hard": hard_margin, "smooth": smooth_margin}


def median_with_interval(values: Sequence[float]) -> Range:
    """Return the median of n values, and those at rank floor(n/2 - sqrt n) from both ends (None if n < 8)."""
    ranked, n = sorted(values), len(values)
    if n == 0:
        return Range(None, None, None)
    lower, upper = ranked[(n - 1) // 2], ranked[n // 2]
    middle = lower if lower == upper else (lower + upper) / 2
    a = floor(n / 2 - sqrt(n))
    return Range(middle, ranked[a - 1], ranked[n - a]) if a >= 1 else Range(middle, None, None)


def _measure_batch(
    network: Classifier, batch: Batch, margin: str, at: int, spread: HiddenSpread
) -> list[dict[str, Any]]:
    """Measure a batch by one forward and one backward pass, and add what block `at` reads to `spread`."""
    import torch

    leaves = []

    def enter(number: int, states: Any) -> Any:
        if number != at:
            return states
        leaves.append(states.detach().requires_grad_())
        return leaves[0]

    logits = network.logits(batch, enter)
    m = MARGINS[margin](logits)
    (gradient,) = torch.autograd.grad(m.sum(), leaves[0])
    if gradient[~batch.visible].any():
        raise InputError(
            f"{network.name}: its margins depend on tokens that it should not see (padding, or later "
            "tokens); give a model that respects attention_mask, or inputs of equal length"
        )
    spread.add(leaves[0].detach(), batch.mask)
    g = gradient.flatten(1).norm(dim=1)
    confidence, predicted = logits.detach().softmax(dim=1).max(dim=1)
    columns = (batch.input_indices, batch.tokens, batch.positions, predicted, m.detach(), g, confidence)
    names = ("input", "tokens", "position", "predicted", "margin", "gradient", "confidence")
    lists = [column if isinstance(column, list) else column.tolist() for column in columns]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
    return rows if network.causal else [row | {"position": None} for row in rows]


def _without_predicted(logits: Any, predicted: Any) -> Any:
    return logits.scatter(1, predicted[:, None], -float("inf"))


def _distance(row: dict[str, Any], spread: float) -> float | None:
    if row["gradient"] == 0:
        return None if row["margin"] == 0 else float("inf") * np.sign(row["margin"])
    return float(row["margin"] / (row["gradient"] * spread * sqrt(row["tokens"])))


def _log_distances(rows: Sequence[Margin]) -> dict[int, float]:
    """Return log D by input, for the inputs whose D has a finite logarithm."""
    known = ((row.input, row.distance) for row in rows if row.status == "ok")
    return {place: float(np.log(distance)) for place, distance in known if distance and distance > 0}


def _mean_log(rows: Sequence[Margin]) -> Estimate | None:
    if any(row.margin < 0 for row in rows):
        return None
    logs = list(_log_distances(rows).values())
    return mean_of(logs) if logs else None
