"""Layers in the names of tensors: the first part of a name that is a number is the number of the layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

LAYER = re.compile(r"^((?:[^.]+\.)*?)(\d+)(?:\.|$)")
MOST_RUNS = 6  # a text names at most so many runs of layers
Place = tuple[str, int]  # what the name has before the number, and the number


def layer_of(name: str) -> Place | None:
    """Return the layer number in the name of a tensor, or None if the name has no layer number.

    >>> layer_of("transformer.h.2.attn.c_attn.weight"), layer_of("transformer.wte.weight")
    (('transformer.h', 2), None)
    """
    hit = LAYER.match(name)
    return None if hit is None else (hit[1].rstrip("."), int(hit[2]))


def name_in_layer(name: str) -> str:
    """Return the part of a tensor's name after the number of its layer.

    >>> name_in_layer("transformer.h.2.attn.c_attn.weight")
    'attn.c_attn.weight'
    """
    hit = LAYER.match(name)
    return name if hit is None else name[hit.end() :] or name


def numbers_text(numbers: Iterable[int]) -> str:
    """Return numbers in increasing order, with runs of three or more numbers shortened."""
    ordered = sorted(set(numbers))
    starts = [0, *(place + 1 for place, (low, high) in enumerate(pairwise(ordered)) if high > low + 1)]
    runs = [ordered[start:end] for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True)]
    words = [
        word
        for run in runs
        for word in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run])
    ]
    if len(words) > MOST_RUNS:
        words = [*words[: MOST_RUNS - 1], f"{len(words) - MOST_RUNS + 1} more"]
    return join_words(words)


def layers_text(stack: str | None, numbers: Iterable[int]) -> str:
    """Return layers of a stack in words, at the start of a sentence.

    >>> layers_text(None, [2, 3]), layers_text("decoder", [1]), layers_text(None, range(12))
    ('Layers 2 and 3', 'Decoder layer 1', 'Layers 0 to 11')
    """
    ordered = sorted(set(numbers))
    noun = "layer" if len(ordered) == 1 else "layers"
    text = f"{stack} {noun}" if stack else noun
    return f"{text[0].upper()}{text[1:]} {numbers_text(ordered)}"


def stack_names(prefixes: Iterable[str], stacks: Iterable[str | None]) -> dict[str, str]:
    """Return names for stacks of layers, by the beginning of the names of their tensors.

    A single stack has no name.

    >>> stack_names(["model.encoder.layers", "model.decoder.layers"], ["encoder", "decoder"])
    {'model.encoder.layers': 'encoder', 'model.decoder.layers': 'decoder'}
    """
    every, known = list(dict.fromkeys(prefixes)), set(stacks)
    if len(every) < 2:
        return dict.fromkeys(every, "")
    return {prefix: next(filter(known.__contains__, prefix.split(".")), prefix) for prefix in every}


def join_words(words: Iterable[str]) -> str:
    """Join words with commas and a final "and".

    >>> join_words(["query", "key", "value"])
    'query, key and value'
    """
    every = list(words)
    return " and ".join([", ".join(every[:-1]), every[-1]] if len(every) > 1 else every)
