"""From a matched family to a `Model`: sizes, head splits, and every contradiction said in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families import Family
from attnlaw.checkpoints.match import Match, MatchedStack, match_family
from attnlaw.checkpoints.model import Attention, FeedForward, Layer, Model, View
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.errors import InputError


def build_model(name: str, tensors: Tensors, config: Config, heads: int | None = None) -> Model:
    """Read names, shapes and sizes (no weights) into a `Model`."""
    match = match_family(tensors, config)
    builder = _Builder(tensors, config, match.family, heads)
    layers: list[Layer] = []
    for stack in match.stacks:
        label = stack.stack.name or (stack.prefix.strip(".") or None if len(match.stacks) > 1 else None)
        layers += builder.layers(stack, label, first=len(layers))
    hidden_size = layers[0].attention.query.shape[0]
    expected = config.size(*match.family.hidden_size)
    if expected is not None and expected != hidden_size:
        builder.contradiction(layers[0].attention.query, f"input size {expected}", str(hidden_size))
    return Model(
        name=name,
        family=config.text("model_type") or match.family.name,
        tensors=tensors,
        layers=tuple(layers),
        applications=_applications(match, config, len(layers)),
        hidden_size=hidden_size,
        activation=config.text(*match.family.activation) or match.family.default_activation,
        embedding_view=builder.optional(match.family.embedding, stored_out_in=False),
        unembedding_view=builder.optional(match.family.unembedding, stored_out_in=True),
        extensions=_extensions(match.family, layers, config),
        warnings=_warnings(match, tensors, config),
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
        has_cross = any(matched.layers[0] + name in self.tensors.shapes for name in stack.cross.values())
        has_feed_forward = any(
            matched.layers[0] + name in self.tensors.shapes for name in stack.feed_forward.values()
        )
        return [
            Layer(
                index=first + position,
                attention=self._attention(prefix, stack.attention, stack.heads),
                cross=self._attention(prefix, stack.cross, stack.heads, cross=True) if has_cross else None,
                feed_forward=self._feed_forward(prefix, stack.feed_forward) if has_feed_forward else None,
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

    def contradiction(self, view: View, expected: str, found: str) -> None:
        raise InputError(
            f"{self.tensors.source}: tensor {view.tensor} contradicts {self.config.source}: "
            f"expected {expected}, found {found}; give the config.json that belongs to these weights"
        )

    def _check_depth(self, matched: MatchedStack) -> None:
        numbers = [position[-1] for position in matched.positions]
        depth = self.config.size(*matched.stack.depth)
        grouped = "{group}" in matched.stack.layer
        if not grouped and "{layer}" in matched.stack.layer:
            expected = depth or max(numbers) + 1
            missing = sorted(set(range(expected)) - set(numbers))
            if missing or max(numbers) >= expected:
                found = f"layers {_ranges(numbers)}"
                raise InputError(
                    f"{self.tensors.source}: expected {expected} layers, found {found}; "
                    "the checkpoint is incomplete or its config.json belongs to another model"
                )

    def _attention(
        self, prefix: str, roles: Mapping[str, str], heads_keys: tuple[str, ...], cross: bool = False
    ) -> Attention:
        total = self._total_outputs(prefix, roles)
        heads = self._heads(prefix, roles, heads_keys, total)
        kv_heads = self.config.size("num_key_value_heads") if not cross else heads
        fused = next((keys.split(",") for keys in roles if "," in keys), [])
        if "query" in fused:
            kv_heads = kv_heads or heads
            head_size = self._divide(total["query"], heads + 2 * kv_heads, prefix + roles[",".join(fused)])
        else:
            head_size = self._divide(total["query"], heads, prefix + roles["query"])
            found = total["key"] // (2 if "key" in fused else 1) // head_size
            if kv_heads not in (None, found):
                view = View(prefix + roles["key"], (0, 0), True)
                self.contradiction(view, f"{kv_heads} key/value heads of size {head_size}", f"{found}")
            kv_heads = found
        declared = self.config.size("head_dim")
        if declared is not None and declared != head_size:
            view = View(prefix + next(iter(roles.values())), (0, 0), True)
            self.contradiction(view, f"heads of size {declared}", f"size {head_size}")
        sizes = {
            "query": heads * head_size,
            "key": kv_heads * head_size,
            "value": kv_heads * head_size,
        }
        views = self._views(prefix, roles, sizes)
        if views["output"].shape[0] != heads * head_size:
            self.contradiction(views["output"], f"{heads * head_size} inputs", str(views["output"].shape[0]))
        if heads % kv_heads:
            self.contradiction(views["key"], f"a divisor of {heads} key/value heads", str(kv_heads))
        return Attention(**views, heads=heads, kv_heads=kv_heads, cross=cross)

    def _feed_forward(self, prefix: str, roles: Mapping[str, str]) -> FeedForward:
        total = self._total_outputs(prefix, roles)
        fused = next((keys for keys in roles if "," in keys), None)
        width = self._divide(total["in"], 2, prefix + roles[fused]) if fused else total["in"]
        views = self._views(prefix, roles, {"in": width, "gate": width})
        if views["out"].shape[0] != width:
            self.contradiction(views["out"], f"{width} inputs", str(views["out"].shape[0]))
        return FeedForward(inner=views["in"], outer=views["out"], gate=views.get("gate"))

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
            if start != outputs:
                self.contradiction(views[role], f"{start} outputs", str(outputs))
        return views

    def _total_outputs(self, prefix: str, roles: Mapping[str, str]) -> dict[str, int]:
        """For each role the number of outputs of the tensor that holds it."""
        return {
            role: self._shape(prefix + name)[1] for keys, name in roles.items() for role in keys.split(",")
        }

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

    def _heads(
        self, prefix: str, roles: Mapping[str, str], keys: tuple[str, ...], total: Mapping[str, int]
    ) -> int:
        heads = self.given_heads or self.config.size(*keys)
        if heads is None and self.family.default_head_size:
            heads = total["query"] // self.family.default_head_size
        if heads is None:
            name = prefix + next(iter(roles.values()))
            raise InputError(
                f"{self.tensors.source}: how many attention heads? {self.config.source} does not say "
                f"and shapes cannot ({name} has {total['query']} outputs); pass --heads H"
            )
        return heads

    def _divide(self, outputs: int, parts: int, name: str) -> int:
        if outputs % parts or outputs < parts:
            raise InputError(
                f"{self.tensors.source}: tensor {name} has {outputs} outputs, not divisible by {parts}; "
                "correct the number of heads (--heads or config.json)"
            )
        return outputs // parts


def _applications(match: Match, config: Config, layers: int) -> tuple[int, ...]:
    """The layer used at each depth; ALBERT's group g serves depths [g L / G, (g + 1) L / G)."""
    positions = match.stacks[0].positions
    if len(positions[0]) < 2:
        return tuple(range(layers))
    depth = config.size("num_hidden_layers") or layers
    groups = len({group for group, _ in positions})
    inner = layers // groups
    return tuple(
        int(step * groups / depth) * inner + member for step in range(depth) for member in range(inner)
    )


def _extensions(family: Family, layers: list[Layer], config: Config) -> tuple[str, ...]:
    blocks = [block for layer in layers for block in (layer.attention, layer.cross) if block]
    present = {
        "grouped-query attention": any(block.kv_heads != block.heads for block in blocks),
        "gated feed-forward": any(layer.feed_forward and layer.feed_forward.gate for layer in layers),
        "cross attention": any(layer.cross for layer in layers),
        "no feed-forward": any(layer.feed_forward is None for layer in layers),
        "shared layers": (config.size("num_hidden_groups") is not None or family.name == "albert"),
        "pre-norm": family.pre_norm,
        "rotary positions": family.rotary,
    }
    return tuple(name for name, there in present.items() if there)


def _warnings(match: Match, tensors: Tensors, config: Config) -> tuple[str, ...]:
    found = []
    for stack in match.stacks:
        norm = stack.stack.query_norm
        if norm and stack.layers[0] + norm in tensors.shapes:
            found.append(
                "queries and keys are normalised before their product: QK is the map of the weights, "
                "not the scores of the model"
            )
    if config.values.get("attn_logit_softcapping") is not None:
        found.append("scores are soft-capped after QK (attn_logit_softcapping)")
    return tuple(found)


def _ranges(numbers: list[int]) -> str:
    """0-3, 5 for [0, 1, 2, 3, 5]."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
