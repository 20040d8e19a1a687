"""Find vectors that a checkpoint lost: gains and biases that only some layers of a stack have.

A missing matrix is an error when the layers are built. A missing vector is not, because the layer can be read
as one that never had it.
"""

from __future__ import annotations

from collections.abc import Iterator

from attnlaw.checkpoints.assembly.match import Match, MatchedStack
from attnlaw.checkpoints.blocks import View
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families import LayerTable
from attnlaw.checkpoints.model import MissingTensor
from attnlaw.checkpoints.tensors import Tensors

OF_OTHERS, OF_BIAS = "the other layers have such a tensor", "the norm has a bias, so it must have a gain"
HALVES = ((".weight", ".bias"), (".gamma", ".beta"))  # gain and bias of a norm


def missing_tensors(
    match: Match, tensors: Tensors, config: Config, embedding: View | None, unembedding: View | None
) -> tuple[MissingTensor, ...]:
    """Return the missing gains and biases, and the table of word embeddings if that is missing too."""
    missing = [
        MissingTensor(name, reason)
        for matched in match.stacks
        for name, reason in _missing_vectors(matched, tensors)
    ]
    tied = unembedding is not None and config.values.get("tie_word_embeddings") is not False
    if embedding is None and not tied and match.family.embedding and config.size("vocab_size"):
        reason = (
            "config.json gives a vocabulary size, but attnlaw found no word embeddings under a name "
            "that it knows"
        )
        missing.append(MissingTensor(match.family.embedding[0], reason, grave=False))
    return tuple(missing)


def _missing_vectors(matched: MatchedStack, tensors: Tensors) -> Iterator[tuple[str, str]]:
    shapes, stack = tensors.shapes, matched.stack
    owners = dict(_vectors(stack))
    stored = {vector for vector in owners if any(at + vector in shapes for at in matched.layers)}
    for number, at in enumerate(matched.layers):
        for vector, owner in owners.items():
            if at + vector in shapes:
                continue
            is_lost = vector in stored and (owner is None or at + owner in shapes)
            may_lack = number == 0 and _first_may_lack(stack, at, vector, tensors)
            if is_lost and not may_lack:
                yield at + vector, OF_OTHERS
            elif _has_bias_alone(at + vector, tensors):
                yield at + vector, OF_BIAS
    for name in (stack.first_norm, stack.last_norm):
        vector = f"{matched.prefix}{name}.weight"
        if name and vector not in shapes and _has_bias_alone(vector, tensors):
            yield vector, OF_BIAS


def _vectors(stack: LayerTable) -> Iterator[tuple[str, str | None]]:
    """Yield the vectors of a layer, each with the matrix without which it is not expected, or None."""
    matrices: dict[str, str] = {}
    for roles in (stack.attention, stack.cross, *stack.feed_forward):
        for keys, weight in roles.items():
            matrices |= dict.fromkeys(keys.split(","), weight)
            if weight.endswith(".weight"):
                yield f"{weight.removesuffix('weight')}bias", weight
        for role, bias in stack.biases.items():
            if role in matrices:
                yield bias, matrices[role]
    for role, name in stack.inner_norms.items():
        for ending in (ending for half in HALVES for ending in half):
            if name:
                yield name + ending, matrices.get(role)
    for roles in stack.norms:
        for name in filter(None, roles.values()):
            yield from ((name + ending, None) for half in HALVES for ending in half)


def _has_bias_alone(gain: str, tensors: Tensors) -> bool:
    """Return whether the name is that of a gain, and only the bias of its norm is there."""
    return any(
        gain.endswith(end) and gain.removesuffix(end) + other in tensors.shapes for end, other in HALVES
    )


def _first_may_lack(stack: LayerTable, at: str, vector: str, tensors: Tensors) -> bool:
    """Return whether the layer has all norms of a way that lacks this one, as ModernBERT's first layer."""
    norm = vector.rpartition(".")[0]
    ways = [{name for name in roles.values() if name} for roles in stack.norms]
    return any(norm in way for way in ways) and any(
        norm not in way and all(f"{at}{name}.weight" in tensors.shapes for name in way) for way in ways
    )
