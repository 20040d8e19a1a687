"""The table of verbs. Each verb is a module or a folder in this package that declares it as `VERB`. A
declaration imports polars, torch and other slow libraries only inside functions, so help appears at once."""

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
    "audit": ("attnlaw.verbs.audit", "Find out what is wrong, unusual or untrained in a checkpoint."),
    "fit": ("attnlaw.verbs.fit", "Find the law that each matrix of a checkpoint follows."),
    "diff": ("attnlaw.verbs.diff", "Find out what changed between checkpoints."),
    "check": ("attnlaw.verbs.check", "Apply rules to a checkpoint, and fail a CI job if one is broken."),
    "lens": ("attnlaw.verbs.lens", "Show what the heads of a model do on one input."),
    "margins": ("attnlaw.verbs.margins", "Compare classifiers on inputs without labels."),
    "limit": ("attnlaw.verbs.limit", "Compute the output of an attention layer at any width."),
    "attention": ("attnlaw.verbs.attention", "Compute the singular values of attention at initialisation."),
    "init": ("attnlaw.verbs.init", "Predict how a Transformer behaves before training."),
    "learn": ("attnlaw.verbs.learn", "Predict what an attention head learns from n samples."),
    "dynamics": ("attnlaw.verbs.dynamics", "Predict how an attention head learns, step by step."),
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
    "two_layer": (
        "attnlaw.verbs.two_layer",
        "Predict the test error of a two-layer linear network that fits every label.",
    ),
    "shift": (
        "attnlaw.verbs.shift",
        "Predict the test error of kernel ridge regression if the test inputs are distributed differently.",
    ),
    "ensemble": (
        "attnlaw.verbs.ensemble",
        "Predict the error of an ensemble that averages its learners or lets them vote.",
    ),
    "early_stopping": (
        "attnlaw.verbs.early_stopping",
        "Predict the error of sparse regression that is trained as a product of small factors and stopped "
        "early.",
    ),
    "complete": (
        "attnlaw.verbs.complete",
        "Predict the missing entry of a matrix that is trained as a product of factors.",
    ),
    "coordinates": (
        "attnlaw.verbs.coordinates",
        "Compute how much the logits of a GPT-2 change in a few steps, with and without muP.",
    ),
    "growth": (
        "attnlaw.verbs.growth",
        "Show how generalization proxies grow with the depth and width of models.",
    ),
    "decoder": ("attnlaw.verbs.decoder", "Compare a real training run with the theory of dynamics."),
}
# What a program of its own writes: `attnlaw.load` and reports know it, no command and no study runs it.
RECORDED_VERBS: dict[str, tuple[str, str]] = {
    "monitor": ("attnlaw.training.monitor", "Record the spectra of a model while it trains."),
}

# `core.result` cannot import the views, which belong to a room above it. It asks for them to show a result.
result.load_views = lambda: import_module("attnlaw.verbs.views")


def verb_module(name: str) -> str:
    """Return the name of the module that declares a verb, or a verb and its simulation."""
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
    """Return the Python function of a verb, `attnlaw.NAME`."""
    return python_function(find_verb(name))
