"""Read LoRA adapters (arXiv 2106.09685) as `peft` saves them. `adapted` adds them to their base model.

A weight W, stored (out, in), becomes W + s B A with A (`lora_A`, r x in), B (`lora_B`, out x r), and s =
lora_alpha / r, or lora_alpha / sqrt(r) with `use_rslora`. The ranks follow from the shapes, so `rank_pattern`
is not read. `X.lora_B.bias` (times s) is added to the bias of X, and other tensors (`modules_to_save`) take
the place of the base's.

`alpha_pattern` overrides lora_alpha for some modules. As in peft, the first pattern counts that equals the
end of the module's name, starting after a dot. A dot in a pattern matches any character. Adapters that also
change their base (PiSSA keeps the rest of W there) are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from attnlaw.checkpoints.blocks import Product, View
from attnlaw.checkpoints.config import require_value
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import MatrixLocation, Network
from attnlaw.checkpoints.tensors import (
    NotFiniteError,
    Tensors,
    require_finite,
    require_real,
    without_wrappers,
)
from attnlaw.core.arrays import Reals, as_float
from attnlaw.core.errors import InputError, printable
from attnlaw.core.files import parse_json, read_bounded, require_valid_path

KIND = "lora"
CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
LOW_RANK = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight", re.DOTALL)
UPDATE_BIAS = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_B(?:\.default)?\.bias", re.DOTALL)
# What peft puts into the name of a tensor that takes the place of the base's.
WRAPPER = re.compile(r"^base_model\.model\.|(?<=\.)(base_layer|modules_to_save(\.default)?)\.")
BIAS = "bias"
ORIGINAL = ".original_module."  # a copy of the base's tensor, which is not in use
OTHER_METHOD = re.compile(r"(^|\.)(lora_|token_adapter|trainable_tokens)")
MODULE_NAME = re.compile(r"[A-Za-z0-9_.-]+")  # regular expressions are never run
# Ways to initialise an adapter that do not change the base, in addition to True and False.
KEEP_BASE = ("gaussian", "eva", "orthogonal")
SWITCHES = ("use_rslora", "fan_in_fan_out", "use_dora", "use_qalora")
MOST_ALPHA = 1e100  # far above any real value, and safe in float64


@dataclass(frozen=True)
class Update:
    """The update `scale * up @ down` of a module's weight. `up`, `down` and `bias` are names of tensors."""

    module: str
    down: str
    up: str
    scale: float
    bias: str | None = None  # `scale` times it is added to the module's bias

    @property
    def layer(self) -> int | None:
        """The number of the layer: the first number in the module's name, or None if there is no number."""
        number = re.search(r"\.(\d{1,9})\.", f".{self.module}.")
        return int(number[1]) if number else None


@dataclass(frozen=True)
class Adapter:
    """An open adapter.

    `transposed` says that the base stores weights as (in, out). `replaced` has the tensors that take the
    place of the base's, by their names in the base.
    """

    source: str
    tensors: Tensors
    updates: tuple[Update, ...]
    transposed: bool
    replaced: Mapping[str, str] = field(default_factory=dict)

    def factors(self, update: Update) -> tuple[Reals, Reals]:
        """Read the factors (in x r) and (r x out) of an update, with its scale, in float64."""
        down, up = (
            as_float(require_real(self.tensors.read(name), self.source, name))
            for name in (update.down, update.up)
        )
        for name, matrix in ((update.down, down), (update.up, up)):
            require_finite(matrix, self.source, name, "training has diverged: use an earlier checkpoint")
        with np.errstate(over="ignore"):
            left = update.scale * down.T
            limit = np.abs(left).max() * np.abs(up).max() * len(up.T)  # no entry of the product is larger
        if not np.isfinite(limit):
            raise NotFiniteError(
                f"{self.source}: the product of {update.down} and {update.up}, times {update.scale:.3g}, "
                "overflows; training has diverged: use an earlier checkpoint",
                update.up,
                0,
            )
        return left, up.T


@dataclass(frozen=True)
class LowRankBlock:
    """A block of a model with a single matrix product: the low-rank update of one weight."""

    adapter: Adapter
    update: Update

    def factors(self, model: Model, kind: str) -> Iterator[tuple[Reals, Reals]]:
        yield self.adapter.factors(self.update)

    def applied(self, model: Model, kind: str, left: Reals, right: Reals) -> None:
        """Return None, because an adapter does not say which norm comes before its weights."""

    def product(self) -> Product:
        shapes = self.adapter.tensors.shapes
        (rank, inputs), outputs = shapes[self.update.down], shapes[self.update.up][0]
        down = View(self.update.down, (inputs, rank), stored_out_in=True)
        up = View(self.update.up, (rank, outputs), stored_out_in=True)
        return Product((down, up), (inputs, outputs), rank, self)


def adapter_model(adapter: Adapter, name: str) -> Model:
    """Return a model without layers that has one matrix for each weight that the adapter changes."""
    updates = sorted(adapter.updates, key=lambda update: (update.layer is None, update.layer or 0))
    leaves = ((MatrixLocation(each.layer, KIND), LowRankBlock(adapter, each).product()) for each in updates)
    warnings: tuple[str, ...] = ()
    if adapter.replaced:
        warnings = (
            f"the adapter also replaces tensors of its base model ({len(adapter.replaced)}, such as "
            f"{printable(min(adapter.replaced))}), which attnlaw leaves out here; to include them, give the "
            "base model with --adapter",
        )
    network = Network((), (), (), None, tuple(leaves))
    return Model(printable(name), KIND, adapter.tensors, network, warnings=warnings)


def is_adapter(path: Path) -> bool:
    """Return whether a directory contains a LoRA adapter and no model."""
    has_config = require_valid_path(path).is_dir() and (path / CONFIG).is_file()
    return has_config and not any(path.glob("model*.safetensors*"))


def open_adapter(path: Path, open_file: Callable[[Path], Tensors]) -> Adapter:
    """Open the LoRA adapter in a directory without reading its weights."""
    config = _config(path / CONFIG)
    file = next((path / name for name in WEIGHTS if (path / name).is_file()), None)
    if file is None:
        raise InputError(
            f"{path}: this directory has no {' or '.join(WEIGHTS)}; copy or download the adapter again"
        )
    tensors = without_wrappers(open_file(file))
    pairs: dict[str, dict[str, str]] = {}
    replaced: dict[str, str] = {}
    for name in tensors.shapes:
        if hit := LOW_RANK.fullmatch(name):
            table, key = pairs.setdefault(hit[1], {}), hit[2]
        elif hit := UPDATE_BIAS.fullmatch(name):
            table, key = pairs.setdefault(hit[1], {}), BIAS
        elif OTHER_METHOD.search(name):
            raise InputError(
                f"{file}: tensor {name} is not a lora_A or lora_B matrix; merge the adapter into its base "
                "model (merge_and_unload in peft), and give the result"
            )
        elif ORIGINAL in name:
            continue
        else:
            table, key = replaced, WRAPPER.sub("", name)
        if (other := table.setdefault(key, name)) != name:
            raise InputError(
                f"{file}: {other} and {name} are the same tensor, but a file must hold only "
                "one adapter; give the file of one adapter"
            )
    updates = tuple(_update(module, pair, tensors, config) for module, pair in pairs.items())
    if not updates:
        raise InputError(f"{file}: holds no lora_A and lora_B matrices; give a LoRA adapter")
    return Adapter(str(path), tensors, updates, bool(config.get("fan_in_fan_out")), replaced)


def _config(path: Path) -> Mapping[str, Any]:
    data = read_bounded(path, megabytes=4, remedy=f"give a directory with {CONFIG}")
    config = parse_json(data, path, "copy or download the adapter again")
    kind = config.get("peft_type", "LORA") if isinstance(config, Mapping) else type(config).__name__
    if not isinstance(config, Mapping) or str(kind) != "LORA":
        raise InputError(
            f"{path}: peft_type is {kind}, expected LORA; merge the adapter into its base model first"
        )
    for key in SWITCHES:
        value = config.get(key)
        require_value(str(path), key, value, isinstance(value, bool | None), "true or false")
    for key in ("use_dora", "use_qalora", "layer_replication", "init_lora_weights"):
        value = config.get(key)
        if value and not (key == "init_lora_weights" and (value is True or value in KEEP_BASE)):
            raise InputError(
                f"{path}: {key} is {value!r:.80}, but attnlaw cannot read adapters that change the base "
                "model itself; merge the adapter into its base model first (merge_and_unload in peft)"
            )
    patterns = config.get("alpha_pattern") or {}
    require_value(str(path), "alpha_pattern", patterns, isinstance(patterns, Mapping), "a table")
    for pattern in patterns:
        if not MODULE_NAME.fullmatch(pattern):
            raise InputError(
                f"{path}: alpha_pattern has the regular expression {pattern!r:.80}, expected module names "
                "(letters, digits, _ . -); list the modules by name, or merge the adapter into its base "
                "model"
            )
    for alpha in (config.get("lora_alpha"), *patterns.values()):
        plain = isinstance(alpha, int | float) and not isinstance(alpha, bool)
        require_value(str(path), "lora_alpha", alpha, plain and abs(alpha) < MOST_ALPHA, "a number")
    return config


def _update(module: str, pair: Mapping[str, str], tensors: Tensors, config: Mapping[str, Any]) -> Update:
    if missing := {"A", "B"} - set(pair):
        raise tensors.error(
            f"{module} has no lora_{min(missing)}, expected lora_A and lora_B; copy or download the adapter "
            "again"
        )
    down, up = tensors.shapes[pair["A"]], tensors.shapes[pair["B"]]
    if len(down) != 2 or len(up) != 2 or down[0] != up[1] or 0 in (*down, *up):
        raise tensors.error(
            f"{module} has lora_A {list(down)} and lora_B {list(up)}, expected the shapes r x inputs and "
            "outputs x r; copy or download the adapter again"
        )
    patterns = config.get("alpha_pattern") or {}
    alpha = next((patterns[key] for key in patterns if _ends_with_pattern(key, module)), config["lora_alpha"])
    rank = down[0]
    scale = alpha / (sqrt(rank) if config.get("use_rslora") else rank)
    return Update(module, pair["A"], pair["B"], scale, pair.get(BIAS))


def _ends_with_pattern(pattern: str, module: str) -> bool:
    before, end = module[: -len(pattern)], module[-len(pattern) :]
    return (
        len(end) == len(pattern)
        and (not before or before.endswith("."))
        and all(wanted in (".", character) for wanted, character in zip(pattern, end, strict=True))
    )
