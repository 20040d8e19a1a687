"""The settings that verbs about a checkpoint share: how to open the model, and which matrices to take."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attnlaw.checkpoints.adapters import adapter_model, is_adapter, open_adapter
from attnlaw.checkpoints.hub import is_hub_id
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import GROUPS
from attnlaw.checkpoints.open import expand_run, local_model_path, open_file, open_model
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.files import require_valid_path
from attnlaw.core.settings import Settings, setting, settings_dataclass

CHECKPOINT, MACHINE = "Checkpoint", "Machine"
STORAGE, DOUBLE = PRECISIONS = ("storage", "double")
option = partial(setting, panel=CHECKPOINT)


@dataclass(frozen=True)
class Arithmetic:
    """How precisely attnlaw measures matrices.

    Args:
        precision: `storage` computes in float32 if weights are stored in 16 bits or less and float32 is
            precise enough; `double` always computes in float64.
    """

    approximate: bool = False  # estimate very large matrices
    precision: str = STORAGE
    exact: bool = False  # compute norms of entries from every entry, also in large products


DEFAULT_ARITHMETIC = Arithmetic()


def model_setting(default: Any) -> Any:
    """Return the positional setting MODEL. `default` is MISSING if the verb needs a model."""
    text = "Checkpoint files, directories, shard indexes or hub ids; in Python also a state dict or a module."
    kinds: dict[str, Any] = {"sweepable": True, "is_path": True, "positional": True}
    return option(default, text, expand=expand_run, metavar="MODEL", **kinds)


@settings_dataclass
class ModelSettings(Settings):
    """The settings of a verb that reads a checkpoint: how to open it, and which matrices to take."""

    model: Any = model_setting(MISSING)
    layers: str | int | None = option(None, "Only these layers (as a slice).", metavar="0:4")
    only: tuple[str, ...] | None = option(None, f"Only these: {', '.join(GROUPS)}.", metavar="qk,vo,...")
    heads: int | None = option(None, "Attention heads, where no config.json tells their number.", minimum=1)
    map: str | None = option(
        None, "The names of an architecture of your own.", is_path=True, metavar="FILE.toml"
    )
    adapter: str | None = option(None, "A LoRA adapter to add to the model.", is_path=True, metavar="DIR")
    unscaled: bool = option(False, "Read float8 weights that really have no scale as they are stored.")
    name: str | None = option(None, "What rows call the model; its path unless given.")
    jobs: int | None = setting(
        None, "Threads; all cores unless given.", minimum=1, machine_only=True, panel=MACHINE
    )

    def check(self) -> None:
        for group in self.only or ():
            if group not in GROUPS:
                raise BadSetting("only", f"expected some of {', '.join(GROUPS)}, joined by commas", group)
        if self.layers is not None:
            layer_range(self.layers, depth=1)

    def to_row(self) -> dict[str, Any]:
        """Return the settings as a row, with the model's title in the column `model`."""
        return super().to_row() | {"model": self.title}

    @property
    def title(self) -> str:
        """The name of the model in rows: the given name, the path, or the type of the object."""
        if isinstance(self.model, str | os.PathLike):
            return os.fspath(self.model) if self.name is None else self.name
        return self.name or type(self.model).__name__

    def chosen_layers(self, depth: int) -> range | None:
        """Return the layers that the setting `layers` selects, or None if it is not given.

        `layers` is a number or a slice such as "0:4". Negative numbers count from the end.

        >>> ModelSettings(model="m", layers="1:3").chosen_layers(4)
        range(1, 3)
        """
        if self.layers is None:
            return None
        chosen = layer_range(self.layers, depth)
        if not chosen:
            raise BadSetting("layers", f"selects none of the {depth} layers (0 to {depth - 1})", self.layers)
        return chosen

    def open(self) -> Model:
        """Open the model. A LoRA adapter without its base becomes a model without layers."""
        if not isinstance(self.model, str | os.PathLike):
            return open_model(self.model, self.heads, self.name, self.map, self.adapter, self.unscaled)
        path, name = local_model_path(self.model), self.name or str(self.model)
        if self.adapter is None and is_adapter(path):
            return adapter_model(open_adapter(path, open_file), name)
        return open_model(path, self.heads, name, self.map, self.adapter, self.unscaled)


def require_model_exists(settings: ModelSettings) -> None:
    """Raise an `InputError` if the model is neither an existing path nor an id on a hub. Nothing is read."""
    model = settings.model
    if isinstance(model, str) and not require_valid_path(Path(model)).exists() and not is_hub_id(model):
        hint = "" if "/" in model else "; an id on a model hub is written owner/name"
        raise InputError(f"{model}: no such file or directory; give a checkpoint file or its directory{hint}")


def layer_range(layers: str | int, depth: int) -> range:
    """Return the layers that a number or a slice such as "0:-1" selects. The range may be empty."""
    try:
        if ":" in str(layers):
            parts = [int(part) if part else None for part in str(layers).split(":")]
            return range(depth)[slice(*parts)]
        number = int(layers)
    except (ValueError, TypeError) as error:
        raise BadSetting("layers", "expected START:STOP, such as 0:4, or one number", layers) from error
    return range(number % depth, number % depth + 1) if -depth <= number < depth else range(0)
