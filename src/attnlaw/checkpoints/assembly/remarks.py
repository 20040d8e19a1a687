"""List how a model differs from the plain encoder (extensions), and what was not read (warnings)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from attnlaw.checkpoints.assembly.match import NUMBER, Match, is_decoder
from attnlaw.checkpoints.assembly.norms import is_pre_norm
from attnlaw.checkpoints.assembly.scores import clip_of, is_rotary
from attnlaw.checkpoints.blocks import StoredLayer, View
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.model import MissingTensor
from attnlaw.checkpoints.tensors import Tensors

# Types whose rounding errors are far below the bulk of a trained spectrum.
WIDE = ("float16", "float32", "float64", "bfloat16")
MOST_NAMES = 8  # the largest number of names in one warning
MOST_MISSING = 4  # the largest number of missing tensors that are named
TOWERS = ("vision", "audio")
NUMBERED = re.compile(rf"((?:[^.]+\.)*?){NUMBER}\.", re.DOTALL)  # up to the first number in a name
ATTENTION = re.compile("attn|attention|[._](qkv|query|q_proj|q_lin)[._]", re.IGNORECASE)
NORM = re.compile(r"norm|(^|[._])ln([._]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class UnreadLayers:
    name: str  # the common part of their names
    matrices: int  # the number of their matrices
    of_network: bool  # true if data that pass through the layers that were read also pass through these


@dataclass(frozen=True)
class Reading:
    """What was read of a checkpoint, and by which tables."""

    match: Match
    layers: Sequence[StoredLayer]
    tensors: Tensors
    config: Config
    others: Sequence[int]  # the numbers of layers with linear attention
    missing: Sequence[MissingTensor]
    unused: Sequence[str]  # tensors that do not change the weights
    foreign_type: str | None  # the model type, if the family does not list it

    @cached_property
    def extensions(self) -> tuple[str, ...]:
        """The names of features that the plain post-norm encoder of the bounds does not have."""
        family, layers, config = self.match.family, self.layers, self.config
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
            "no feed-forward": self.obstacle is None and not all(layer.feed_forwards for layer in layers),
            "parallel attention and feed-forward": same_norm or declared,
            "shared layers": family.shared_layers,
            "pre-norm": is_pre_norm(family, config),
            "rotary positions": is_rotary(family, config),
        }
        return tuple(name for name, is_present in present.items() if is_present)

    @cached_property
    def obstacle(self) -> str | None:
        """The reason why formulas for whole networks do not hold for the model, or None if they do."""
        layers = self.layers
        if self.others:
            return self._linear_warning
        # A layer with unread matrices and no feed-forward block has one of an unknown kind.
        whole = not self._left_out or all(layer.feed_forwards for layer in layers)
        if not whole or any(part.of_network for part in self._unread):
            return "attnlaw could not read some layers, or some feed-forward matrices"
        if any(layer.attention.gate for layer in layers):
            return "gates multiply the output of the heads, and the formulas do not cover gates"
        if earlier := self._key_sources:
            return f"some layers use the keys and values of the layers {format_ranges(earlier)}"
        for at in self.match.stacks:
            for name in at.stack.unread:
                if at.layers[0] + name in self.tensors.shapes:
                    return f"layers have blocks that the formulas do not cover (tensor {name})"
        return None

    def warnings(self) -> Iterator[str]:
        """Yield sentences about the parts that were not read and about the limits of the numbers."""
        family, config, foreign_type = self.match.family, self.config, self.foreign_type
        for tensor in self.missing[:MOST_MISSING]:
            yield f"tensor {tensor.name} is missing: {tensor.reason}"
        if len(self.missing) > MOST_MISSING:
            yield f"{len(self.missing) - MOST_MISSING} more tensors are missing"
        if self.others:
            yield self._linear_warning
        yield from self._attention_warnings()
        if any(layer.attention.scores.query_norm for layer in self.layers):
            yield (
                "the model normalises queries and keys before it multiplies them; QK does not include "
                "this, so it does not give the exact scores"
            )
        if clip := clip_of(config):
            yield f"the model clips queries, keys and values at {clip:g} (clip_qkv); QK and VO ignore it"
        if any(layer.attention.scores.cap for layer in self.layers):
            yield "the model caps the scores (attn_logit_softcapping); QK does not include this cap"
        if family.shared_layers and "num_hidden_layers" not in config:
            yield (
                f"{config.source} does not say how often the model applies its shared layers. attnlaw "
                "counts each once"
            )
        if foreign_type:
            yield (
                f"attnlaw does not know model type {foreign_type}; it treats the model as {family.name}, "
                "because the tensor names fit"
            )
        for tower in TOWERS:
            if f"{tower}_config" in config and not family.towers:
                yield f"attnlaw reads only the language model and leaves out the {tower} tower"
        for part in self._unread[:MOST_NAMES]:
            matrices = _count(part.matrices, "matrix", "matrices")
            yield f"attnlaw did not read the layers {part.name} ({matrices})"
        if names := self._unread_norms() if not foreign_type else []:
            norms = _count(len(names), "norm", "norms")
            yield f"attnlaw leaves out {norms} inside the layers, such as {names[0]}"
        matched = [stack.stack for stack in self.match.stacks]
        missing = [stack.name for stack in family.stacks if stack.name and stack not in matched]
        if missing and not self._unread and not foreign_type and config.model_types:
            yield (
                f"the checkpoint has no {' and no '.join(missing)}; attnlaw audits the rest as if it were "
                "the whole model"
            )
        unstated = family.activation and config.text(*family.activation) is None
        if unstated and any(layer.feed_forwards for layer in self.layers):
            yield f"the config does not state the activation; attnlaw assumes {family.default_activation}"
        codes = {self.tensors.dtype(name) for view in self._views for name in view.tensors}
        if narrow := sorted(code for code in codes if not code.startswith(WIDE)):
            yield (
                f"weights are stored in few bits ({'; '.join(narrow)}), so rounding changes the ranks and "
                "the small singular values"
            )
        if any(code.startswith("float8_") for code in codes):
            yield "because of --unscaled, attnlaw reads float8 weights without scales as they are stored"
        yield from self.tensors.remarks
        if order := self._order_by_name():
            yield (
                f"attnlaw reads one network in this order: {', '.join(order)}; if these are several "
                "networks, save each in a separate file"
            )
        if extra := sum(stack.predicting for stack in self.match.stacks):
            yield f"attnlaw leaves out the layers for multi-token prediction: {extra}"
        if self.unused:
            tensors = _count(len(self.unused), "tensor", "tensors")
            yield f"attnlaw leaves out {tensors} that do not change the weights, such as {self.unused[0]}"
        if self._left_out:
            matrices = _count(len(self._left_out), "matrix", "matrices")
            yield f"attnlaw leaves out {matrices} inside the layers, such as {self._left_out[0]}"

    def _attention_warnings(self) -> Iterator[str]:
        blocks = [layer.attention for layer in self.layers]
        if any(block.scores.sinks for block in blocks):
            yield (
                "every head has an extra score that belongs to no token (an attention sink), so the weights "
                "of the tokens add up to less than 1; the matrices QK and VO do not include it"
            )
        if any(block.gate for block in blocks):
            yield (
                "a gate (a sigmoid of the residual stream) multiplies the output of each head; attnlaw "
                "computes VO as if the gate were open"
            )
        if any(block.value_norm for block in blocks):
            yield (
                "the model normalises values before heads mix them; VO does not include this, so it is not "
                "exactly what a head adds"
            )
        if any(block.output_norm for block in blocks):
            yield (
                "the model has a norm between the heads and their output matrix; VO includes neither this "
                "norm nor its gain"
            )
        if self._key_sources:
            yield (
                "some layers use the keys and values of earlier layers "
                f"({format_ranges(self._key_sources)}); the QK and VO of such a layer combine weights of "
                "two layers"
            )
        if any(block.scores.growing for block in blocks):
            yield (
                "in layers without rotary positions, scores grow with the position "
                "(attn_temperature_tuning); QK does not include this"
            )

    @property
    def _linear_warning(self) -> str:
        numbers = format_ranges([(number,) for number in self.others])
        if len(self.others) == 1:
            return f"layer {numbers} uses linear attention and is not audited"
        return f"layers {numbers} use linear attention and are not audited"

    @property
    def _key_sources(self) -> list[tuple[int]]:
        """The numbers of the layers whose keys and values other layers use."""
        sources = {layer.attention.source for layer in self.layers}
        return [(number,) for number in sorted(number for number in sources if number is not None)]

    @cached_property
    def _views(self) -> list[View]:
        return [view for layer in self.layers for view in layer.views]

    @cached_property
    def _prefixes(self) -> list[str]:
        return [at for stack in self.match.stacks for at in stack.layers]

    @cached_property
    def _left_out(self) -> list[str]:
        """The names of matrices inside layers that the family's table does not list."""
        known = {name for view in self._views for name in (*view.tensors, view.bias)}
        stacks, shapes = self.match.stacks, self.tensors.shapes.items()
        known |= {at + name for stack in stacks for at in stack.layers for name in stack.stack.ignored}
        matrices = [name for name, shape in shapes if len(shape) in (2, 3) and name not in known]
        return _names_with_prefix(self._prefixes, matrices)

    @cached_property
    def _unread(self) -> list[UnreadLayers]:
        """The groups of layers that have attention but are not in the family's table."""
        known = {name for view in self._views for name in view.tensors}
        inside = {*_names_with_prefix(self._prefixes, list(self.tensors.shapes))} | known
        names_by_prefix: dict[str, list[str]] = {}
        for name, shape in self.tensors.shapes.items():
            if name not in inside and len(shape) in (2, 3) and (hit := NUMBERED.match(name)):
                names_by_prefix.setdefault(hit[1], []).append(name)
        multimodal = any(f"{tower}_config" in self.config for tower in TOWERS)
        later = {stack.prefix + stack.stack.layer.partition("{")[0] for stack in self.match.stacks}
        return [
            UnreadLayers(at.strip("."), len(names), not multimodal and "mtp" not in at)
            for at, names in names_by_prefix.items()
            if at not in later and any(ATTENTION.search(name) for name in names)
        ]

    def _unread_norms(self) -> list[str]:
        """Return the names of gains of norms inside layers that the family's table does not name."""
        known = {
            at + name
            for matched in self.match.stacks
            for at in matched.layers
            for roles in (*matched.stack.norms, matched.stack.inner_norms)
            for name in roles.values()
        }
        gains = []
        for name, shape in self.tensors.shapes.items():
            module, _, kind = name.rpartition(".")
            words = [part for part in module.split(".") if not part.isdecimal()]
            if len(shape) == 1 and kind in ("weight", "gamma") and words and NORM.search(words[-1]):
                gains += [name] if module not in known else []
        return _names_with_prefix(self._prefixes, gains)

    def _order_by_name(self) -> list[str]:
        """Return the prefixes of the stacks in order, if attnlaw chose this order by their names."""
        stacks, number = self.match.stacks, rf"(?<![^.]){NUMBER}(?=\.)"
        parts = {(is_decoder(stack, self.tensors), re.sub(number, "", stack.prefix)) for stack in stacks}
        if len(parts) == len({decoder for decoder, _ in parts}):
            return []
        names = [stack.prefix.strip(".") or "(no prefix)" for stack in stacks]
        return [*names[:MOST_NAMES], *(["..."] if len(names) > MOST_NAMES else [])]


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


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
