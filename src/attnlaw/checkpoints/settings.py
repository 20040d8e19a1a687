"""The settings that verbs about a checkpoint share: how to open the model, and which matrices to take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attnlaw.checkpoints.adapters import adapter_model, is_adapter, open_adapter
from attnlaw.checkpoints.hub import is_hub_id
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import GROUPS
from attnlaw.checkpoints.open import expand_run, local_model_path, missing_model, open_file, open_model
from attnlaw.core.errors import BadSetting
from attnlaw.core.files import require_valid_path
from attnlaw.core.settings import OptionPanel, Settings, coerce, setting, settings_dataclass

CHECKPOINT, MACHINE = OptionPanel.INPUT, OptionPanel.PRECISION
STORAGE, _ = PRECISIONS = ("storage", "double")
input_setting = partial(setting, panel=CHECKPOINT)


@dataclass(frozen=True)
class Arithmetic:
    """The precision with which attnlaw measures matrices.

    `storage` computes in float32 if weights are stored in 16 bits or less and float32 is precise enough.
    `double` always computes in float64.
    """

    approximate: bool = False  # estimate very large matrices
    precision: str = STORAGE
    exact: bool = False  # compute norms of entries from every entry, also in large products


DEFAULT_ARITHMETIC = Arithmetic()


def model_setting(default: Any) -> Any:
    """Return the positional setting MODEL. `default` is MISSING if the verb needs a model."""
    text = (
        "Checkpoint: a file, a directory, a shard index, or an id on a model hub (owner/name). "
        "In Python also a state dict or a module."
    )
    kinds: dict[str, Any] = {"sweepable": True, "is_path": True, "positional": True}
    return input_setting(default, text, expand=expand_run, metavar="MODEL", **kinds)


def layers_as_text(layers: Any) -> Any:
    """Return a slice or layer numbers in the notation of `layers`. Other values are returned unchanged.

    >>> layers_as_text(slice(1, None)), layers_as_text([0, 1]), layers_as_text("0:4")
    ('1:', '0,1', '0:4')
    """
    if isinstance(layers, slice):
        parts = [layers.start, layers.stop, *([] if layers.step is None else [layers.step])]
        whole = all(part is None or coerce(int, part) is not None for part in parts)
        return ":".join("" if part is None else str(int(part)) for part in parts) if whole else layers
    numbers = None if isinstance(layers, str) else coerce(tuple[int, ...], layers)
    return layers if numbers is None else ",".join(map(str, numbers))


def parse_layers(layers: str | int) -> slice | tuple[int, ...]:
    try:
        if ":" in str(layers):
            numbers = slice(*(int(part) if part else None for part in str(layers).split(":")))
            range(1)[numbers]  # a step of 0 is an error
            return numbers
        return tuple(int(part) for part in str(layers).split(","))
    except (ValueError, TypeError) as error:
        rule = "expected START:STOP, such as 0:4, or numbers such as 0,1"
        raise BadSetting("layers", rule, layers) from error


@settings_dataclass
class ModelSettings(Settings):
    """Settings for a command that reads a checkpoint: how to open it, and which matrices to take."""

    model: Any = model_setting(MISSING)
    layers: str | int | None = input_setting(
        None,
        "Only measure these layers: a slice such as 0:4, or numbers such as 0,1,-1 (-1 is the last).",
        panel=OptionPanel.COMPUTE,
        metavar="LAYERS",
        convert=layers_as_text,
        converts=("slice", "Iterable[int]"),
    )
    only: tuple[str, ...] | None = input_setting(
        None,
        f"Take only these groups of matrices, joined by commas: {', '.join(GROUPS)}.",
        panel=OptionPanel.COMPUTE,
        metavar="GROUPS",
    )
    heads: int | None = input_setting(
        None, "Number of attention heads per layer, if there is no config.json that states it.", minimum=1
    )
    map: str | None = input_setting(
        None,
        "File that says which tensors a model has, for an architecture that attnlaw does not know.",
        is_path=True,
        metavar="FILE.toml",
    )
    adapter: str | None = input_setting(
        None, "Directory of a LoRA adapter to add to the model.", is_path=True, metavar="DIR"
    )
    unscaled: bool = input_setting(
        False, "Read float8 weights that come without a scale as they are stored, instead of stopping."
    )
    name: str | None = input_setting(
        None, "Name of the model in the results (default: its path).", panel=OptionPanel.OUTPUT
    )
    jobs: int | None = setting(
        None,
        "Number of CPU threads to use (default: all cores).",
        minimum=1,
        machine_only=True,
        panel=MACHINE,
    )

    def check(self) -> None:
        for group in self.only or ():
            if group not in GROUPS:
                raise BadSetting("only", f"expected some of {', '.join(GROUPS)}, joined by commas", group)
        if self.layers is not None:
            parse_layers(self.layers)

    def to_row(self) -> dict[str, Any]:
        """Return the settings as a row, with the model's title in the column `model`."""
        return super().to_row() | {"model": self.title}

    @property
    def title(self) -> str:
        """The name of the model in rows: the given name, the path, or the type of the object."""
        if isinstance(self.model, str | os.PathLike):
            return os.fspath(self.model) if self.name is None else self.name
        return self.name or type(self.model).__name__

    def chosen_layers(self, depth: int) -> Sequence[int] | None:
        """Return the layers that the setting `layers` selects, or None. Negative numbers count from the end.

        >>> ModelSettings(model="m", layers="1:3").chosen_layers(4)
        range(1, 3)
        >>> ModelSettings(model="m", layers=[0, -1]).chosen_layers(4)
        (0, 3)
        """
        if self.layers is None:
            return None
        numbers = parse_layers(self.layers)
        if isinstance(numbers, tuple) and len(numbers) > 1:
            for number in numbers:
                if not -depth <= number < depth:
                    rule = f"but there is no layer {number} among {depth} layers (0 to {depth - 1})"
                    raise BadSetting("layers", rule, self.layers)
        chosen = layer_range(self.layers, depth)
        if not chosen:
            raise BadSetting("layers", f"selects none of the {depth} layers (0 to {depth - 1})", self.layers)
        return chosen

    def open(self) -> Model:
        """Open the model. A LoRA adapter without its base becomes a model without layers."""
        source, name = self.model, self.name
        if isinstance(source, str | os.PathLike):
            source, name = local_model_path(source), name or str(source)
            if self.adapter is None and is_adapter(source):
                return adapter_model(open_adapter(source, open_file), name)
        return open_model(source, self.heads, name, self.map, self.adapter, unscaled=self.unscaled)


def require_model_exists(settings: ModelSettings) -> None:
    """Raise an `InputError` if the model is neither an existing path nor an id on a hub. Nothing is read."""
    model = settings.model
    if isinstance(model, str) and not require_valid_path(Path(model)).exists() and not is_hub_id(model):
        raise missing_model(model)


def layer_range(layers: str | int, depth: int) -> Sequence[int]:
    """Return the layers that numbers or a slice such as "0:-1" select. The result may be empty."""
    numbers = parse_layers(layers)
    if isinstance(numbers, slice):
        return range(depth)[numbers]
    chosen = tuple(dict.fromkeys(number % depth for number in numbers if -depth <= number < depth))
    return range(chosen[0], chosen[0] + 1) if len(chosen) == 1 else chosen
