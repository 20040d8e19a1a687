"""The law of an untrained Transformer, for each layer, for its logits and for its loss.

attnlaw measures these numbers in every layer of every draw. It leaves out padding. The module `remarks`
has sentences about them.

| name           | of a layer                                                                                |
|----------------|-------------------------------------------------------------------------------------------|
| rms            | root mean square of the residual stream's entries, over all tokens                        |
| cosine         | mean cosine between different tokens                                                      |
| effective_rank | exp of the entropy of the eigenvalues of the tokens' cosine matrix over s: from 1 to s    |
| entropy        | mean entropy of attention rows / mean entropy of uniform rows: a ratio of means over      |
|                | heads and tokens (tokens that see only one token are left out)                            |
| score_sd       | root mean square over heads of the standard deviation of the scores that the mask allows  |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnlaw.core.estimate import Outcome
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.settings import check_value
from attnlaw.theory.init.architecture import KEPT, SCORE_SCALINGS, Architecture, at_width
from attnlaw.theory.init.chain import Chain, LayerState, run_layers
from attnlaw.theory.init.limit_chain import LimitChain
from attnlaw.theory.init.logits import logits_of, own_cosine
from attnlaw.theory.init.records import PARALLEL, InitialLaw, LayerLaw, slopes, spread_of
from attnlaw.theory.init.remarks import start_of, start_remarks
from attnlaw.theory.init.tokens import BoolArray, Tokens, check_tokens
from attnlaw.theory.limit.inputs import cosine_matrix, mean_cosine
from attnlaw.theory.limit.wishart import Array

MATCHED = "Only the means and covariances of hidden units are exact (--units); other numbers are approximate"


def remarks(law: InitialLaw, exact: bool = True) -> str | None:
    """Return a model's unusual properties as one text, or None if there are none."""
    lines = [remark.text for remark in start_remarks(start_of(law)) if remark.unusual]
    return "; ".join(lines if exact else [*lines, MATCHED]) or None


MEASURES = ("rms", "cosine", "effective_rank", "entropy", "score_sd")


def measure_layer(state: LayerState, tokens: Tokens, allowed: BoolArray) -> dict[str, Array]:
    """Return the numbers of the module's table for one layer, by name. Each has the shape (draws,)."""
    s = tokens.seen
    gram = state.gram[:, :s, :s]
    squares = np.diagonal(gram, axis1=-2, axis2=-1)
    table = {"rms": np.sqrt(squares.mean(axis=-1))}
    if s > 1:
        cosines = cosine_matrix(gram)
        table["cosine"] = mean_cosine(cosines)
        table["effective_rank"] = np.exp(_entropy(np.maximum(np.linalg.eigvalsh(cosines / s), 0.0)))
    if state.weights is not None and state.scores is not None:
        rows = (allowed.sum(axis=-1) > 1) & (np.arange(len(tokens)) < s)
        if rows.any():
            uniform = np.log(allowed[rows].sum(axis=-1)).mean()
            table["entropy"] = _entropy(state.weights[:, :, rows]).mean(axis=(-2, -1)) / uniform
            seen = (allowed & (np.arange(len(tokens)) < s)[:, None]).ravel()
            flat = state.scores.reshape(*state.scores.shape[:2], -1)[..., seen]
            table["score_sd"] = np.sqrt(flat.var(axis=-1).mean(axis=-1))
    return table


def _entropy(p: Array) -> Array:
    """Return -sum p log p along the last axis."""
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    return np.asarray(-(p * logs).sum(axis=-1))


REPLICATES = 4  # draws of a limit that is not random; they differ only by the heads they sample
_CHUNK = 2**19  # scores, or entries of queries, that are drawn at once


def initial_law(
    architecture: Architecture,
    tokens: Tokens,
    draws: int = 100,
    seed: int = 0,
    *,
    width: float | None = None,
    keep: str = "heads",
    scaling: str = "1/sqrt(d)",
    units: int = 0,
    progress: Progress = no_progress,
) -> InitialLaw:
    """Compute the distribution of an untrained model's layers, logits and loss, for given tokens.

    The result for the layers is exact at every finite width if `units` is 0. The loss is approximate if the
    vocabulary has more than 4096 ids. Its sum over the vocabulary is then drawn from a normal distribution.

    Args:
        tokens: the token ids. Only which of them are equal matters.
        width: a width to which the model is scaled, with the same gains and embedding variances. None keeps
            the width of the model, and infinity gives the limit.
        keep: what else is the same at another width: "heads" (their number) or "head-width".
        scaling: "1/d" divides scores by another sqrt(d), as muP does, where d is the head width.
        units: number of hidden units to draw instead of all units of an MLP. Mean and covariance are still
            exact. The value 0 draws all units.

    >>> model = Architecture.from_config({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4})
    >>> law = initial_law(model, Tokens((5, 9, 2)), draws=50)
    >>> len(law.layers), 0.1 < law.logit_sd.value < 0.2
    (3, True)
    """
    check_value("draws", draws, int, minimum=2)
    check_value("keep", keep, str, choices=KEPT)
    check_value("scaling", scaling, str, choices=SCORE_SCALINGS)
    check_tokens(architecture, tokens)
    infinite = width == math.inf
    model = architecture if width is None or infinite else at_width(architecture, int(width), keep)
    extra_power = SCORE_SCALINGS[scaling]
    uniform = infinite and extra_power < 0 and keep == "heads"
    factor = model.head_width**extra_power
    model = replace(model, score_scales=tuple(factor * scale for scale in model.score_scales))
    fixed = infinite and not model.experts and (uniform or not KEPT[keep])
    draws = (1 if uniform else REPLICATES) if fixed else draws
    tables = _draw_tables(model, tokens, draws, seed, keep if infinite else None, uniform, units, progress)
    law = _summarise(model, tokens, tables, fixed)
    law = replace(law, model_width=None if infinite else model.width)
    exact = not 0 < units < model.hidden or infinite
    return replace(law, outcome=Outcome.DONE if exact else Outcome.INEXACT, remark=remarks(law, exact))


def _draw_tables(
    model: Architecture,
    tokens: Tokens,
    draws: int,
    seed: int,
    limit: str | None,
    uniform: bool,
    units: int,
    progress: Progress,
) -> list[dict[str, Array]]:
    """Return the measures of all draws: a table for each layer, and then one for the logits."""
    turned = model.head_width if model.frequencies or model.query_key_norm else 0
    rows = len(tokens) * max(len(tokens), turned)
    state_numbers = (2 * len(tokens) + len(tokens.distinct) + 1) ** 2
    size = min(draws, max(1, _CHUNK // max(model.heads * rows, state_numbers)))
    parts: list[list[dict[str, Array]]] = []
    for start in range(0, draws, size):
        progress(start, draws)
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(start,))))
        count = min(size, draws - start)
        if limit is None:
            state = Chain(model, tokens, count, rng, units)
        else:
            state = LimitChain(model, tokens, count, rng, KEPT[limit], uniform)
        by_layer = [measure_layer(layer, tokens, state.allowed) for layer in run_layers(state)]
        parts.append([*by_layer, _head_table(state)])
    progress(draws, draws)
    return [
        {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
        for tables in zip(*parts, strict=True)
    ]


def _head_table(state: Chain) -> dict[str, Array]:
    logits, tokens = logits_of(state), state.tokens
    table = {"logit_sd": logits.deviation()}
    if (cosine := own_cosine(state)) is not None:
        table["own_cosine"] = cosine
    if logits.token_logits is None:
        return table
    sums = logits.log_sums(state.rng)
    if not np.isfinite(sums).all():
        return table
    places, targets = tokens.targets(state.model.causal)
    if len(places):
        target_logits = logits.token_logits[:, places, _columns(tokens, targets)]
        table["loss"] = (sums[:, places] - target_logits).mean(axis=-1)
    seen = np.arange(tokens.seen)
    own_logits = logits.token_logits[:, seen, _columns(tokens, tokens.ids[: tokens.seen])]
    table["own_probability"] = np.exp(own_logits - sums[:, seen]).mean(axis=-1)
    return table


def _columns(tokens: Tokens, ids: Any) -> list[int]:
    return [tokens.distinct.index(int(token)) for token in ids]


def _summarise(
    model: Architecture, tokens: Tokens, tables: list[dict[str, Array]], fixed: bool
) -> InitialLaw:
    *by_layer, head = tables
    layer_laws = tuple(
        LayerLaw(layer, **{name: spread_of(table[name], fixed) for name in MEASURES if name in table})
        for layer, table in enumerate(by_layer)
    )
    known = {name: spread_of(values, fixed) for name, values in head.items()}
    slope = _slope([table["cosine"] for table in by_layer[1:]]) if tokens.seen > 1 else None
    estimates = {name: spread.estimate for name, spread in known.items()}
    return InitialLaw(
        architecture=model,
        tokens=tokens,
        model_width=model.width,
        draws=len(head["logit_sd"]),
        random=not fixed,
        layers=layer_laws,
        logit_sd=estimates["logit_sd"],
        loss=estimates.get("loss"),
        loss_spread=known["loss"].spread if "loss" in known else None,
        own_probability=estimates.get("own_probability"),
        own_cosine=estimates.get("own_cosine"),
        angle_exponent=None if slope is None else spread_of(slope, fixed).estimate,
        outcome=Outcome.DONE,
    )


def _slope(cosines: Sequence[Array]) -> Array | None:
    """Return the slope of log(1 - cosine) over layers until tokens are parallel; None for too few layers."""
    apart = 1 - np.stack(cosines, axis=1)
    # The fit ends before the first layer whose tokens are parallel up to rounding errors.
    counted = int((apart > PARALLEL).all(axis=0).cumprod().sum())
    return None if counted < 2 else slopes([np.log(distances) for distances in apart[:, :counted].T])
