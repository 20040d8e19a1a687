"""Statistics of draws of a model, and whether two samples of them can have one law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from attnlaw.theory.init.architecture import Architecture
from attnlaw.theory.init.chain import Chain, run_layers
from attnlaw.theory.init.logits import logits_of
from attnlaw.theory.init.tokens import Tokens


def statistics(
    grams: Sequence[Any], weights: Sequence[Any], token_logits: Any, loss: Any, tokens: Tokens
) -> dict[str, Any]:
    """One number a draw under each name: Gram entries, cosines, attention, logits of own ids, the loss."""
    samples = {}
    s = tokens.seen
    for depth, gram in ((len(grams) // 2, grams[len(grams) // 2]), (len(grams) - 1, grams[-1])):
        for i, j in ((0, 0), (s - 1, s - 1), (0, 1), (1, s - 1), (0, s - 1)):
            samples[f"gram {depth} {i} {j}"] = gram[:, i, j]
        shown = gram[:, :s, :s]
        lengths = np.sqrt(np.diagonal(shown, axis1=1, axis2=2))
        cosines = shown / (lengths[:, :, None] * lengths[:, None, :])
        samples[f"cosine {depth}"] = (cosines.sum(axis=(1, 2)) - s) / (s * (s - 1))
        samples[f"cosine {depth} 0 1"] = cosines[:, 0, 1]
    for depth, a in enumerate(weights):
        samples[f"weight {depth}"] = a[:, 0, s - 1, 0]
        samples[f"weight {depth} of itself"] = a[:, -1, s - 1, s - 1]
        samples[f"heads {depth} together"] = a[:, 0, s - 1, 1] * a[:, 1, s - 1, 1]
        samples[f"entropy {depth}"] = -(a * np.log(a + 1e-300)).sum(axis=-1).mean(axis=(1, 2))
    samples |= {f"logit {i} {v}": token_logits[:, i, v] for i, v in ((0, 0), (s - 1, 0), (s - 1, 1))}
    samples["products of logits"] = token_logits[:, 0, 0] * token_logits[:, 1, 0]
    samples["loss"] = loss
    # Lengths behind a norm are 1 but for epsilon (1e-6 of them) and rounding: there is nothing to compare.
    return {name: values for name, values in samples.items() if values.std() > 1e-4 * abs(values.mean())}


def chain_statistics(
    model: Architecture,
    tokens: Tokens,
    draws: int,
    seed: int,
    kind: type[Chain] = Chain,
    last: bool = True,
) -> dict[str, Any]:
    """The same of the chain; without `last`, Gram matrices up to the last layer but one."""
    state = kind(model, tokens, draws, np.random.default_rng(seed))
    passed = list(run_layers(state))
    logits = logits_of(state)
    places, targets = tokens.targets(model.causal)
    assert logits.token_logits is not None
    columns = [tokens.distinct.index(int(target)) for target in targets]
    loss = (logits.log_sums(state.rng)[:, places] - logits.token_logits[:, places, columns]).mean(axis=-1)
    weights = [layer.weights for layer in passed[1:]]
    grams = [layer.gram for layer in (passed if last else passed[:-1])]
    return statistics(grams, weights, logits.token_logits, loss, tokens)


def p_values(sample: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Kolmogorov-Smirnov tests of everything that varies."""
    assert sample.keys() == other.keys()
    return {name: float(ks_2samp(sample[name], other[name]).pvalue) for name in sample}
