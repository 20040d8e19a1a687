"""The coordinate check of muP: how much logits change in a few steps of SGD, for several widths.

In the standard parametrisation (SP) the change of logits grows with the width N. In muP (Yang and Hu, arXiv
2011.14522, 2203.03466) it has a limit. The model is a GPT-2 of two layers with heads of width 16 and a head
that is not tied. All matrices train; gains and biases do not. The check is theirs; running it on lazy
matrices, which are never drawn, is an extension by attnlaw.

| parametrisation | std of embeddings, hidden matrices, head | rates of the same                   |
|-----------------|------------------------------------------|-------------------------------------|
| SP              | 1, 1/sqrt(N), 1/sqrt(N)                  | r, r, r                             |
| muP             | 1, 1/sqrt(N), 1/sqrt(N m)                | r m, r, r / m, with m = N / base    |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnlaw.core.errors import BadSetting, require_extra
from attnlaw.core.estimate import Estimate
from attnlaw.core.library_messages import quiet_import
from attnlaw.core.progress import Progress, no_progress
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.init.architecture import PARAMETRISATIONS
from attnlaw.theory.init.tokens import Tokens

BASE = 64  # both parametrisations agree at this width
HEAD_WIDTH = 16
IDS = (5, 9, 5, 17, 33, 9, 2, 8)
VOCABULARY = 60


@dataclass(frozen=True)
class CoordinateCheck:
    """The root mean square change of the logits after all steps, averaged over random starts."""

    logit_change: Estimate


def coordinate_check(
    width: int,
    parametrisation: str = "SP",
    steps: int = 2,
    rate: float = 0.05,
    draws: int = 10,
    seed: int = 0,
    progress: Progress = no_progress,
) -> CoordinateCheck:
    """Compute how much the logits of a model change in a few steps of SGD."""
    if width % HEAD_WIDTH:
        raise BadSetting("width", f"expected a multiple of {HEAD_WIDTH}, the width of a head", width)
    with require_extra("a step of training", "lens"), quiet_import():
        from attnlaw.theory.init.lazy_model import lazy_model
    std, rates = _scales(width, parametrisation, rate)
    tokens, changes = Tokens(IDS), []
    for draw in range(draws):
        progress(draw, draws)
        model = lazy_model(config(width), seed * draws + draw, std)
        before = model.logits(tokens).detach()
        for _ in range(steps):
            for matrix in model.matrices.values():
                matrix.uses.clear()
            model.loss(tokens).backward()
            model.step(rates)
        changes.append(float((model.logits(tokens).detach() - before).square().mean().sqrt()))
    progress(draws, draws)
    return CoordinateCheck(mean_of(changes))


def config(width: int) -> dict[str, Any]:
    """Return the config.json of a two-layer GPT-2 with this width, as a dictionary."""
    return {
        "model_type": "gpt2",
        "n_embd": width,
        "n_layer": 2,
        "n_head": width // HEAD_WIDTH,
        "vocab_size": VOCABULARY,
        "n_positions": len(IDS),
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _scales(width: int, name: str, rate: float) -> tuple[Callable[[str], float], Callable[[str], float]]:
    """Return the standard deviation and the learning rate as functions of a matrix's name (see the table)."""
    m = (width / BASE) ** PARAMETRISATIONS[name]

    def std(matrix: str) -> float:
        kind = _kind(matrix)
        return 1.0 if kind == "embedding" else 1 / math.sqrt(width * (m if kind == "head" else 1.0))

    def rates(matrix: str) -> float:
        return rate * {"embedding": m, "hidden": 1.0, "head": 1 / m}[_kind(matrix)]

    return std, rates


def _kind(name: str) -> str:
    return "embedding" if name.endswith(("wte", "wpe")) else "head" if name == "lm_head" else "hidden"
