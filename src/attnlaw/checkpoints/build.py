"""From a matched family to a `Model`: sizes, head splits, and every contradiction said in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families import Family, Stack
from attnlaw.checkpoints.match import Match, MatchedStack, match_family
from attnlaw.checkpoints.model import Attention, FeedForward, Layer, Model, View
from attnlaw.checkpoints.remarks import extensions, matrices_left_out, warnings
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.errors import InputError, printable


def build_model(name: str, tensors: Tensors, config: Config, heads: int | None = None) -> Model:
    """Read names, shapes and sizes (no weights) into a `Model`."""
    match = match_family(tensors, config)
    builder = _Builder(tensors, config, match.family, heads)
    layers: list[Layer] = []
    for stack in match.stacks:
        label = stack.stack.name or (stack.prefix.strip(".") or None if len(match.stacks) > 1 else None)
        layers += builder.layers(stack, label and printable(label), first=len(layers))
    left_out = matrices_left_out(match, layers, tensors)
    # A layer without feed-forward beside matrices that were not read: a mixture of experts, for one.
    complete = not left_out or all(layer.feed_forward for layer in layers)
    return Model(
        name=printable(name),
        family=printable(config.text("model_type") or match.family.name),
        tensors=tensors,
        layers=tuple(layers),
        applications=_applications(match, config, len(layers)),
        hidden_size=layers[0].attention.query.shape[0],
        activation=printable(config.text(*match.family.activation) or match.family.default_activation),
        embedding_view=builder.optional(match.family.embedding, stored_out_in=False),
        unembedding_view=builder.optional(match.family.unembedding, stored_out_in=True),
        extensions=extensions(match, layers, config, complete),
        warnings=warnings(match, layers, tensors, config, left_out),
        complete=complete,
    )


@dataclass(frozen=True)
class _Builder:
    tensors: Tensors
    config: Config
    family: Family
    given_heads: int | None

    def layers(self, matched: MatchedStack, label: str | None, first: int) -> list[Layer]:
        self._check_depth(matched)
        stack = matched.stack
        has_cross = self._any(matched, stack.cross)
        has_feed_forward = self._any(matched, stack.feed_forward)
        return [
            Layer(
                index=first + position,
                attention=self._attention(prefix, stack.attention, stack),
                cross=self._attention(prefix, stack.cross, stack, cross=True) if has_cross else None,
                feed_forward=self._feed_forward(prefix, stack) if has_feed_forward else None,
                stack=label,
            )
            for position, prefix in enumerate(matched.layers)
        ]

    def optional(self, names: tuple[str, ...], stored_out_in: bool) -> View | None:
        """The first matrix whose name ends in one of `names`."""
        for ending in names:
            for name, shape in self.tensors.shapes.items():
                if (name == ending or name.endswith("." + ending)) and len(shape) == 2:
                    return View(name, shape[::-1] if stored_out_in else shape, stored_out_in)
        return None

    def _any(self, matched: MatchedStack, roles: Mapping[str, str]) -> bool:
        """Whether some layer has some of these tensors; then every layer must have all of them."""
        return any(layer + name in self.tensors.shapes for layer in matched.layers for name in roles.values())

    def _check_depth(self, matched: MatchedStack) -> None:
        if not matched.positions[0]:
            return
        found = [max(axis) + 1 for axis in zip(*matched.positions, strict=True)]
        expected = [self.config.size(key) or top for key, top in zip(matched.stack.depth, found, strict=True)]
        if found != expected or len(matched.positions) != prod(expected):
            count = " x ".join(map(str, expected))
            raise InputError(
                f"{self.tensors.source}: expected {count} layers, found layers {_ranges(matched.positions)}; "
                "the checkpoint is incomplete or its config.json belongs to another model"
            )

    def _attention(
        self, prefix: str, roles: Mapping[str, str], stack: Stack, cross: bool = False
    ) -> Attention:
        output = prefix + roles["output"]
        width = self._shape(output)[0]  # heads * head_size, however query, key and value are stored
        heads = self._heads(output, width, stack.heads)
        head_size = width // heads
        kv_heads = self._key_value_heads(prefix, roles, heads, head_size)
        sizes = {"query": width, "key": kv_heads * head_size, "value": kv_heads * head_size}
        views = self._views(prefix, roles, sizes)
        if not cross:
            self._agree(views["key"].tensor, "key/value heads", kv_heads, "num_key_value_heads")
        self._agree(output, "inputs per head", head_size, "head_dim")
        for role in ("query",) if cross else ("query", "key", "value"):
            self._agree(views[role].tensor, "inputs", views[role].shape[0], self.family.hidden_size)
            self._match(views[role], "inputs", views[role].shape[0], views["output"].shape[1])
        return Attention(**views, heads=heads, kv_heads=kv_heads, cross=cross)

    def _feed_forward(self, prefix: str, stack: Stack) -> FeedForward:
        roles = stack.feed_forward
        width = self._shape(prefix + roles["out"])[0]
        views = self._views(prefix, roles, {"in": width, "gate": width})
        self._agree(views["out"].tensor, "inputs", width, stack.inner_size)
        self._agree(views["in"].tensor, "inputs", views["in"].shape[0], self.family.hidden_size)
        self._match(views["in"], "inputs", views["in"].shape[0], views["out"].shape[1])
        return FeedForward(inner=views["in"], outer=views["out"], gate=views.get("gate"))

    def _heads(self, output: str, width: int, key: str) -> int:
        declared = self.config.size(key)
        if self.given_heads and declared not in (None, self.given_heads):
            raise InputError(
                f"--heads {self.given_heads}: {self.config.source} says {declared} ({key}); leave --heads out"
            )
        heads = self.given_heads or declared
        if heads is None and self.family.default_head_size and width % self.family.default_head_size == 0:
            heads = width // self.family.default_head_size
        if heads is None:
            raise InputError(
                f"{self.tensors.source}: how many attention heads? {self.config.source} does not say "
                f"and shapes cannot ({output} has {width} inputs for all heads); pass --heads H"
            )
        if width % heads:
            raise InputError(
                f"{self.tensors.source}: tensor {output} has {width} inputs, not divisible by {heads} heads; "
                "correct the number of heads (--heads or config.json)"
            )
        return heads

    def _key_value_heads(self, prefix: str, roles: Mapping[str, str], heads: int, head_size: int) -> int:
        """Number of key heads, as many as value heads, whether stored alone or fused."""
        parts, name = next(
            (keys.split(","), name) for keys, name in roles.items() if "key" in keys.split(",")
        )
        outputs = self._shape(prefix + name)[1]
        width = (outputs - ("query" in parts) * heads * head_size) // (2 if "value" in parts else 1)
        kv_heads = width // head_size
        if kv_heads < 1 or kv_heads * head_size != width or heads % kv_heads:
            raise InputError(
                f"{self.tensors.source}: tensor {prefix + name} has {outputs} outputs, which hold no "
                f"key heads for {heads} query heads of size {head_size}; {self._remedy}"
            )
        return kv_heads

    def _views(self, prefix: str, roles: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, View]:
        """One `View` per role; fused parts lie one after the other along the output axis."""
        views = {}
        for keys, name in roles.items():
            inputs, outputs = self._shape(prefix + name)
            start = 0
            for role in keys.split(","):
                size = sizes.get(role, outputs)
                views[role] = View(prefix + name, (inputs, size), self.family.stored_out_in, start)
                start += size
            self._match(views[role], "outputs", outputs, start)
        return views

    def _shape(self, name: str) -> tuple[int, int]:
        shape = self.tensors.shapes.get(name)
        if shape is None:
            raise InputError(
                f"{self.tensors.source}: tensor {name} is missing; the checkpoint is incomplete, "
                "save or download it again"
            )
        if len(shape) != 2 or 0 in shape:
            raise InputError(
                f"{self.tensors.source}: tensor {name} has shape {list(shape)}, expected a matrix; "
                "save the unsharded, unflattened weights"
            )
        return (shape[1], shape[0]) if self.family.stored_out_in else (shape[0], shape[1])

    def _agree(self, name: str, what: str, found: int, key: str) -> None:
        """Refuse a shape that contradicts the size that the config declares under `key`, if any."""
        declared = self.config.size(key)
        if declared not in (None, found):
            raise InputError(
                f"{self.tensors.source}: tensor {name} has {found} {what}, but {self.config.source} says "
                f"{declared} ({key}); {self._remedy}"
            )

    def _match(self, view: View, what: str, found: int, expected: int) -> None:
        """Refuse a shape that contradicts the other tensors of its layer."""
        if found != expected:
            raise InputError(
                f"{self.tensors.source}: tensor {view.tensor} has {found} {what}, expected {expected} from "
                f"the rest of its layer; {self._remedy}"
            )

    @property
    def _remedy(self) -> str:
        return "save or download the weights again, with the config.json that belongs to them"


def _applications(match: Match, config: Config, layers: int) -> tuple[int, ...]:
    """The layer used at each depth; ALBERT's depth i uses group int(i / (L / G)), all its inner layers."""
    positions = match.stacks[0].positions
    depth = config.size("num_hidden_layers")
    if len(positions[0]) < 2 or depth is None:
        return tuple(range(layers))
    groups = len({group for group, _ in positions})
    inner = layers // groups
    # The float quotient is the model's own rule; where G does not divide L its rounding matters.
    return tuple(
        int(step / (depth / groups)) * inner + member for step in range(depth) for member in range(inner)
    )


def _ranges(positions: tuple[tuple[int, ...], ...]) -> str:
    """0-3, 5 for layers 0, 1, 2, 3, 5; 0.0, 1.0 for layer 0 of the groups 0 and 1."""
    if len(positions[0]) > 1:
        return ", ".join(".".join(map(str, position)) for position in positions)
    runs: list[list[int]] = []
    for (number,) in sorted(positions):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
