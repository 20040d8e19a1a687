"""The table of verbs. Each verb is a module or a folder in this package that declares it as `VERB`.

A declaration imports polars, torch and other slow libraries only inside functions. So `attnlaw --help` and
error messages appear at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from attnlaw.core import result
from attnlaw.core.errors import InputError
from attnlaw.core.function import python_function
from attnlaw.core.verb import Verb

# Its name, the module that declares it as VERB, and what it does in one sentence.
VERBS: dict[str, tuple[str, str]] = {
    "audit": ("attnlaw.verbs.audit", "Spectra, null tests and proxies of a checkpoint."),
    "fit": ("attnlaw.verbs.fit", "The law that each matrix of a checkpoint follows."),
    "diff": ("attnlaw.verbs.diff", "What changed between checkpoints, tensor by tensor and head by head."),
    "check": ("attnlaw.verbs.check", "Rules over a checkpoint's numbers, and an exit status."),
    "lens": ("attnlaw.verbs.lens", "What heads do on one input, and the pass as one exact affine map."),
    "margins": ("attnlaw.verbs.margins", "What ranks trained models of one task, on inputs without labels."),
    "limit": ("attnlaw.verbs.limit", "The law of an attention layer at any width, against its limit."),
    "attention": ("attnlaw.verbs.attention", "The singular spectrum of attention at initialisation."),
    "init": ("attnlaw.verbs.init", "A whole Transformer before training, from its config.json."),
    "learn": ("attnlaw.verbs.learn", "Predict what a single attention head learns from n samples."),
    "dynamics": ("attnlaw.verbs.dynamics", "How a single attention head learns, step by step."),
}
# The kinds of question that commands answer, as `attnlaw --help` groups them.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "Weights on disk": ("audit", "fit", "diff", "check"),
    "A model and its inputs": ("lens", "margins"),
    "Theory": ("limit", "attention", "init", "learn", "dynamics"),
    "Work": ("study", "reproduce", "report", "lab"),
}
# Verbs without a command: studies and reports know them, Python has the functions behind them.
STUDY_VERBS: dict[str, tuple[str, str]] = {
    "two_layer": ("attnlaw.verbs.two_layer", "The risk of a two-layer linear network that interpolates."),
    "shift": ("attnlaw.verbs.shift", "The risk of weighted kernel ridge regression under covariate shift."),
    "ensemble": ("attnlaw.verbs.ensemble", "The error of learners that are averaged or vote."),
    "early_stopping": (
        "attnlaw.verbs.early_stopping",
        "The risk of factors that start small and stop early.",
    ),
    "complete": ("attnlaw.verbs.complete", "What factors put where a matrix is not seen."),
    "coordinates": ("attnlaw.verbs.coordinates", "The coordinate check of muP on lazy matrices."),
    "growth": ("attnlaw.verbs.growth", "How proxies grow with depth and width over several models."),
    "decoder": ("attnlaw.verbs.decoder", "A real training run beside the theory of dynamics."),
}
# What a program of its own writes: `attnlaw.load` and reports know it, no command and no study runs it.
RECORDED_VERBS: dict[str, tuple[str, str]] = {
    "monitor": ("attnlaw.training.monitor", "The spectra of a model while it trains."),
}

# `core.result` cannot import the views, which belong to a room above it. It asks for them to show a result.
result.load_views = lambda: import_module("attnlaw.verbs.views")


def verb_module(name: str) -> str:
    """Return the name of the module that declares a verb.

    `learn.simulate` is declared in the module of `learn`.
    """
    first = name.partition(".")[0]
    known = VERBS | STUDY_VERBS | RECORDED_VERBS
    if first not in known:
        raise InputError(f"{name!r} is not a verb; expected one of {', '.join(VERBS | STUDY_VERBS)}")
    return known[first][0]


def find_verb(name: str) -> Verb[Any, Any]:
    """Return the verb that has this name. `learn.simulate` is the verb that simulates `learn`."""
    verb: Verb[Any, Any] = import_module(verb_module(name)).VERB
    while verb.name != name and verb.simulation is not None:
        verb = verb.simulation
    if verb.name != name:
        raise InputError(f"{name!r} is not a verb; expected one of {', '.join(VERBS | STUDY_VERBS)}")
    return verb


@cache
def verb_function(name: str) -> Callable[..., Any]:
    """Return the Python function of a verb, which users call as `attnlaw.NAME`."""
    return python_function(find_verb(name))
