"""List how a model differs from the plain encoder (extensions), and what was not read (warnings)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from attnlaw.checkpoints.assembly.match import NUMBER, Match, is_decoder
from attnlaw.checkpoints.assembly.norms import is_pre_norm
from attnlaw.checkpoints.assembly.scores import clip_of, is_rotary
from attnlaw.checkpoints.blocks import StoredLayer
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import printable

# Types whose rounding errors are far below the bulk of a trained spectrum.
WIDE = ("float16", "float32", "float64", "bfloat16")
MOST_NAMES = 8  # the largest number of names in one warning
TOWERS = ("vision", "audio")
NUMBERED = re.compile(rf"((?:[^.]+\.)*?){NUMBER}\.", re.DOTALL)  # up to the first number in a name
ATTENTION = re.compile("attn|attention|[._](qkv|query|q_proj|q_lin)[._]", re.IGNORECASE)
NORM = re.compile(r"norm|(^|[._])ln([._]|$)", re.IGNORECASE)


def extensions(match: Match, layers: Sequence[StoredLayer], config: Config, whole: bool) -> tuple[str, ...]:
    """Return the names of features that the plain post-norm encoder of the bounds does not have."""
    family = match.family
    declared = any(config.values.get(key) is True for key in ("use_parallel_residual", "parallel_attn"))
    blocks = [block for layer in layers for block in (layer.attention, layer.cross) if block]
    norms = ((layer.attention.norm, layer.feed_forward.norm) for layer in layers if layer.feed_forward)
    same_norm = any(norm and norm.gain and norm == other for norm, other in norms)
    present = {
        "grouped-query attention": any(block.kv_heads != block.heads for block in blocks),
        "gated feed-forward": any(block.gate for layer in layers for block in layer.feed_forwards),
        "mixture of experts": any(layer.experts for layer in layers),
        "latent attention": any(block.shared_key for block in blocks),
        "gated attention": any(block.gate for block in blocks),
        "attention sinks": any(block.scores.sinks for block in blocks),
        "keys as values": any(block.key == block.value for block in blocks),
        "norms inside blocks": any(block.value_norm or block.output_norm for block in blocks),
        "cross attention": any(layer.cross for layer in layers),
        "no feed-forward": whole and not all(layer.feed_forwards for layer in layers),
        "parallel attention and feed-forward": same_norm or declared,
        "shared layers": family.shared_layers,
        "pre-norm": is_pre_norm(family, config),
        "rotary positions": is_rotary(family, config),
    }
    return tuple(name for name, is_present in present.items() if is_present)


@dataclass(frozen=True)
class UnreadLayers:
    name: str  # the common part of their names
    matrices: int  # the number of their matrices
    of_network: bool  # true if data that pass through the layers that were read also pass through these


def missing_from_network(
    match: Match,
    layers: Sequence[StoredLayer],
    tensors: Tensors,
    others: Sequence[int],
    left_out: Sequence[str],
    unread: Sequence[UnreadLayers],
) -> str | None:
    """Return why formulas for whole networks do not hold for the model, or None if they do."""
    if others:
        return _linear_warning(others)
    # A layer with unread matrices and no feed-forward block has one of an unknown kind.
    whole = not left_out or all(layer.feed_forwards for layer in layers)
    if not whole or any(part.of_network for part in unread):
        return "attnlaw could not read some layers, or some feed-forward matrices"
    if any(layer.attention.gate for layer in layers):
        return "gates multiply the output of the heads, and the formulas do not cover gates"
    if earlier := sorted({layer.attention.source for layer in layers if layer.attention.source is not None}):
        numbers = format_ranges([(number,) for number in earlier])
        return f"some layers use the keys and values of the layers {numbers}"
    names = (name for at in match.stacks for name in at.stack.unread if at.layers[0] + name in tensors.shapes)
    return next(
        (f"layers have blocks that the formulas do not cover (tensor {name})" for name in names), None
    )


def _linear_warning(others: Sequence[int]) -> str:
    if len(others) == 1:
        return f"layer {others[0]} uses linear attention and is not audited"
    numbers = format_ranges([(number,) for number in others])
    return f"layers {numbers} use linear attention and are not audited"


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def unread_layers(
    match: Match, layers: Sequence[StoredLayer], tensors: Tensors, config: Config
) -> list[UnreadLayers]:
    """Return the groups of layers that have attention but are not in the family's table."""
    read = tuple(at for stack in match.stacks for at in stack.layers)
    known = {name for layer in layers for view in layer.views for name in view.tensors}
    inside = {*_names_with_prefix(read, list(tensors.shapes))} | known
    names_by_prefix: dict[str, list[str]] = {}
    for name, shape in tensors.shapes.items():
        if name not in inside and len(shape) in (2, 3) and (hit := NUMBERED.match(name)):
            names_by_prefix.setdefault(hit[1], []).append(name)
    multimodal = any(f"{tower}_config" in config for tower in TOWERS)
    later = {stack.prefix + stack.stack.layer.partition("{")[0] for stack in match.stacks}
    return [
        UnreadLayers(at.strip("."), len(names), not multimodal and "mtp" not in at)
        for at, names in names_by_prefix.items()
        if at not in later and any(ATTENTION.search(name) for name in names)
    ]


def model_warnings(
    match: Match,
    layers: Sequence[StoredLayer],
    tensors: Tensors,
    config: Config,
    left_out: Sequence[str],
    unread: Sequence[UnreadLayers],
    others: Sequence[int],
    foreign_type: str | None,
    unused: Sequence[str],
) -> tuple[str, ...]:
    """Return sentences about the parts that were not read and about the limits of the numbers."""
    messages = [_linear_warning(others)] if others else []
    messages += _attention_warnings(layers)
    note = messages.append
    if any(layer.attention.scores.query_norm for layer in layers):
        note(
            "the model normalises queries and keys before it multiplies them; QK ignores this, so it "
            "does not give the exact scores"
        )
    if clip := clip_of(config):
        note(f"the model clips queries, keys and values at {clip:g} (clip_qkv); QK and VO ignore this")
    if any(layer.attention.scores.cap for layer in layers):
        note("the model caps the scores (attn_logit_softcapping); QK ignores this cap")
    if match.family.shared_layers and "num_hidden_layers" not in config:
        note(
            f"{config.source} does not say how often the model applies its shared layers, so attnlaw "
            "counts each once"
        )
    if foreign_type:
        note(
            f"attnlaw does not know model type {foreign_type}; it treats the model as "
            f"{match.family.name}, because the tensor names fit"
        )
    for tower in TOWERS:
        if f"{tower}_config" in config and not match.family.towers:
            note(f"attnlaw reads only the language model and leaves out the {tower} tower")
    for part in unread[:MOST_NAMES]:
        note(f"attnlaw did not read the layers {part.name} ({_count(part.matrices, 'matrix', 'matrices')})")
    if names := _unread_norms(match, tensors) if not foreign_type else []:
        note(
            f"attnlaw leaves out {_count(len(names), 'norm', 'norms')} inside the layers, such as {names[0]}"
        )
    matched = [stack.stack for stack in match.stacks]
    missing = [stack.name for stack in match.family.stacks if stack.name and stack not in matched]
    if missing and not unread and not foreign_type and config.model_types:
        note(
            f"the checkpoint has no {' and no '.join(missing)}; attnlaw audits the rest as if it were "
            "the whole model"
        )
    unstated = match.family.activation and config.text(*match.family.activation) is None
    if unstated and any(layer.feed_forwards for layer in layers):
        note(f"the config does not state the activation; attnlaw assumes {match.family.default_activation}")
    codes = {tensors.dtype(name) for layer in layers for view in layer.views for name in view.tensors}
    if narrow := sorted(code for code in codes if not code.startswith(WIDE)):
        note(
            f"weights are stored in few bits ({'; '.join(narrow)}), so rounding changes the ranks and the "
            "small singular values"
        )
    if any(code.startswith("float8_") for code in codes):
        note("because of --unscaled, attnlaw reads float8 weights without scales as they are stored")
    messages += tensors.remarks
    if order := _order_by_name(match, tensors):
        note(
            f"attnlaw reads one network in this order: {', '.join(order)}; if these are several networks, "
            "save each in a separate file"
        )
    if extra := sum(stack.predicting for stack in match.stacks):
        note(f"attnlaw leaves out the layers for multi-token prediction: {extra}")
    if unused:
        note(
            f"attnlaw leaves out {_count(len(unused), 'tensor', 'tensors')} that do not change the weights, "
            f"such as {unused[0]}"
        )
    if left_out:
        note(
            f"attnlaw leaves out {_count(len(left_out), 'matrix', 'matrices')} inside the layers, such as "
            f"{left_out[0]}"
        )
    return tuple(printable(text) for text in messages)


def _attention_warnings(layers: Sequence[StoredLayer]) -> list[str]:
    blocks = [layer.attention for layer in layers]
    sources = [(block.source,) for block in blocks if block.source is not None]
    sentences = {
        "every head has an extra score that belongs to no token (an attention sink), so the weights of "
        "the tokens add up to less than one; QK and VO ignore it": any(
            block.scores.sinks for block in blocks
        ),
        "a gate (a sigmoid of the residual stream) multiplies the output of each head; attnlaw computes "
        "VO as if the gate were open": any(block.gate for block in blocks),
        "the model normalises values before heads mix them; VO ignores this, so it is not exactly what a "
        "head adds": any(block.value_norm for block in blocks),
        "the model has a norm between the heads and their output matrix; VO ignores this norm and its "
        "gain": any(block.output_norm for block in blocks),
        f"some layers use the keys and values of earlier layers ({format_ranges(sorted({*sources}))}); "
        "the QK and VO of such a layer combine weights of two layers": bool(sources),
        "in layers without rotary positions, scores grow with the position (attn_temperature_tuning); QK "
        "ignores this": any(block.scores.growing for block in blocks),
    }
    return [text for text, is_true in sentences.items() if is_true]


def _unread_norms(match: Match, tensors: Tensors) -> list[str]:
    """Return the names of gains of norms inside layers that the family's table does not name."""
    known = {
        at + name
        for matched in match.stacks
        for at in matched.layers
        for roles in (*matched.stack.norms, matched.stack.inner_norms)
        for name in roles.values()
    }
    gains = []
    for name, shape in tensors.shapes.items():
        module, _, kind = name.rpartition(".")
        words = [part for part in module.split(".") if not part.isdecimal()]
        if len(shape) == 1 and kind in ("weight", "gamma") and words and NORM.search(words[-1]):
            gains += [name] if module not in known else []
    return _names_with_prefix([layer for stack in match.stacks for layer in stack.layers], gains)


def _order_by_name(match: Match, tensors: Tensors) -> list[str]:
    """Return the prefixes of the stacks in order, if attnlaw chose this order by their names."""
    parts = {
        (is_decoder(stack, tensors), re.sub(rf"(?<![^.]){NUMBER}(?=\.)", "", stack.prefix))
        for stack in match.stacks
    }
    if len(parts) == len({decoder for decoder, _ in parts}):
        return []
    names = [stack.prefix.strip(".") or "(no prefix)" for stack in match.stacks]
    return [*names[:MOST_NAMES], *(["..."] if len(names) > MOST_NAMES else [])]


def matrices_left_out(match: Match, layers: Sequence[StoredLayer], tensors: Tensors) -> list[str]:
    """Return the names of matrices inside layers that the family's table does not list."""
    views = [view for layer in layers for view in layer.views]
    known = {name for view in views for name in (*view.tensors, view.bias)}
    known |= {at + name for stack in match.stacks for at in stack.layers for name in stack.stack.ignored}
    matrices = [name for name, shape in tensors.shapes.items() if len(shape) in (2, 3) and name not in known]
    return _names_with_prefix([layer for stack in match.stacks for layer in stack.layers], matrices)


def _names_with_prefix(prefixes: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that begin with one of the prefixes.

    Among sorted prefixes of which none begins with another, only the last one before a name can begin it.
    """
    roots: list[str] = []
    for prefix in sorted(prefixes):
        if not roots or not prefix.startswith(roots[-1]):
            roots.append(prefix)
    return [name for name in names if (at := bisect_right(roots, name)) and name.startswith(roots[at - 1])]


def format_ranges(positions: Sequence[tuple[int, ...]]) -> str:
    """Return "0-3, 5" for layers 0, 1, 2, 3, 5, and "0.0, 1.0" for layer 0 of the groups 0 and 1."""
    if positions and len(positions[0]) > 1:
        return ", ".join(".".join(map(str, position)) for position in positions)
    runs: list[list[int]] = []
    for (number,) in sorted(positions):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
