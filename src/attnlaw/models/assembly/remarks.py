"""What a reader must know beyond the matrices: departures from the plain encoder, and what was left out."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from attnlaw.base.errors import printable
from attnlaw.models.assembly.match import NUMBER, Match, is_decoder
from attnlaw.models.assembly.norms import is_pre_norm
from attnlaw.models.config import Config
from attnlaw.models.families import Family
from attnlaw.models.model import Blocks
from attnlaw.models.tensors import Tensors

# Types in which rounding stays far below the bulk of a trained spectrum.
WIDE = ("float16", "float32", "float64", "bfloat16")
MOST_NAMES = 8  # in one warning


def extensions(match: Match, layers: Sequence[Blocks], config: Config, complete: bool) -> tuple[str, ...]:
    """What goes beyond the plain post-norm encoder that the bounds were stated for."""
    family = match.family
    blocks = [block for layer in layers for block in (layer.attention, layer.cross) if block]
    present = {
        "grouped-query attention": any(block.kv_heads != block.heads for block in blocks),
        "gated feed-forward": any(block.gate for layer in layers for block in layer.feed_forwards),
        "mixture of experts": any(layer.experts for layer in layers),
        "latent attention": any(block.shared_key for block in blocks),
        "cross attention": any(layer.cross for layer in layers),
        "no feed-forward": complete and not all(layer.feed_forwards for layer in layers),
        "parallel attention and feed-forward": config.values.get("use_parallel_residual") is True,
        "shared layers": family.shared_layers,
        "pre-norm": is_pre_norm(family, config),
        "rotary positions": family.rotary,
    }
    return tuple(name for name, there in present.items() if there)


def warnings(
    match: Match,
    layers: Sequence[Blocks],
    tensors: Tensors,
    config: Config,
    left_out: Sequence[str],
    families: Sequence[Family],
) -> tuple[str, ...]:
    """What makes the numbers mean less than they seem to, one sentence each."""
    found = []
    if any(layer.attention.scores.query_norm for layer in layers):
        found.append(
            "queries and keys are normalised before their product: QK is the map of the weights, "
            "not the scores of the model"
        )
    if any(layer.attention.scores.cap for layer in layers):
        found.append("scores are soft-capped after QK (attn_logit_softcapping)")
    if match.family.shared_layers and "num_hidden_layers" not in config:
        found.append(
            f"{config.source} does not say how often the shared layers are applied: each is counted once"
        )
    model_type = config.text("model_type")
    mapped = len(families) == 1  # by the user's own map, who knows what is read
    if model_type and not mapped and not any(model_type in family.model_types for family in families):
        found.append(f"model type {model_type} is not in the table: read as {match.family.name} by its names")
    for tower in ("vision", "audio"):
        if f"{tower}_config" in config:
            found.append(f"only the language model was read: the {tower} tower was left out")
    if (
        match.family.activation
        and config.text(*match.family.activation) is None
        and any(layer.feed_forwards for layer in layers)
    ):
        found.append(f"activation not stated: {match.family.default_activation} assumed")
    codes = {tensors.dtype(name) for layer in layers for view in layer.views for name in view.tensors}
    if narrow := sorted(code for code in codes if not code.startswith(WIDE)):
        found.append(
            f"weights are stored in few bits ({', '.join(narrow)}): rounding fills the low end of every "
            "spectrum, so small singular values and ranks are the code's, not the model's"
        )
    if any(code.startswith("float8") and not code.endswith("with scales") for code in codes):
        found.append("float8 weights without scales beside them: read as they are stored")
    if order := _order_by_name(match, tensors):
        found.append(
            f"read as one network in the order of these names: {', '.join(order)}; if they are not one, "
            "save each in a file of its own"
        )
    if extra := sum(stack.predicting for stack in match.stacks):
        found.append(f"layers that only predict further tokens were left out: {extra}")
    if left_out:
        found.append(f"matrices inside the layers were left out: {len(left_out)} such as {left_out[0]}")
    return tuple(printable(text) for text in found)


def _order_by_name(match: Match, tensors: Tensors) -> list[str]:
    """The prefixes in order, where more than numbers tells encoders (or decoders) from each other."""
    parts = {
        (is_decoder(stack, tensors), re.sub(rf"(?<![^.]){NUMBER}(?=\.)", "", stack.prefix))
        for stack in match.stacks
    }
    if len(parts) == len({decoder for decoder, _ in parts}):
        return []
    names = [stack.prefix.strip(".") or "(no prefix)" for stack in match.stacks]
    return [*names[:MOST_NAMES], *(["..."] if len(names) > MOST_NAMES else [])]


def matrices_left_out(match: Match, layers: Sequence[Blocks], tensors: Tensors) -> list[str]:
    """Matrices (or stacks of them) in a layer that its family's table does not name."""
    known = {name for layer in layers for view in layer.views for name in view.tensors}
    known |= {at + name for stack in match.stacks for at in stack.layers for name in stack.stack.ignored}
    matrices = [name for name, shape in tensors.shapes.items() if len(shape) in (2, 3) and name not in known]
    return _beginning_with([layer for stack in match.stacks for layer in stack.layers], matrices)


def _beginning_with(prefixes: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names that begin with one of the prefixes, each held against one of them only.

    Where no prefix begins with another, only the last one that is not behind a name in order can begin it.
    """
    roots: list[str] = []
    for prefix in sorted(prefixes):
        if not roots or not prefix.startswith(roots[-1]):
            roots.append(prefix)
    return [name for name in names if (at := bisect_right(roots, name)) and name.startswith(roots[at - 1])]
