"""What is measured of a layer in every draw; padding is left out.

| name           | of a layer                                                                                |
|----------------|-------------------------------------------------------------------------------------------|
| rms            | root mean square of the residual stream's entries, over all tokens                        |
| cosine         | mean cosine between different tokens                                                      |
| effective_rank | exp of the entropy of the eigenvalues of the tokens' cosine matrix over s: from 1 to s    |
| entropy        | mean entropy of a token's attention over that of uniform attention (tokens that see one   |
|                | token are left out)                                                                       |
| score_sd       | root mean square over heads of the deviation of the scores that count                     |
"""

from __future__ import annotations

import numpy as np

from attnlaw.theory.init.passes import LayerState
from attnlaw.theory.init.tokens import BoolArray, Tokens
from attnlaw.theory.limit.grams import cosine_matrix, mean_cosine
from attnlaw.theory.limit.wishart import Array

MEASURES = ("rms", "cosine", "effective_rank", "entropy", "score_sd")


def measure_layer(state: LayerState, tokens: Tokens, allowed: BoolArray) -> dict[str, Array]:
    """The measures of a layer that it has, (draws,) each.

    >>> two = LayerState(np.array([[[4.0, 2.0], [2.0, 4.0]]]))
    >>> found = measure_layer(two, Tokens((1, 2)), np.ones((2, 2)))
    >>> {name: round(float(values[0]), 3) for name, values in found.items()}
    {'rms': 2.0, 'cosine': 0.5, 'effective_rank': 1.755}
    """
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
    """-sum p log p along the last axis."""
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    entropy: Array = -(p * logs).sum(axis=-1)
    return entropy
