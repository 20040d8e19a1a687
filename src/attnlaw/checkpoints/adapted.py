"""A base model with a LoRA adapter: its tensors, with updates added and replaced tensors in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.adapters import Adapter, Update
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.tensors import GatheredTensors, require_finite, require_real
from attnlaw.core.arrays import as_float
from attnlaw.core.errors import InputError, printable

MOST_PARTS = 64  # the largest number of parts in a module's name
OF_LAYER = re.compile(r"(^|\.)[0-9]{1,9}\.")


class AdaptedTensors(GatheredTensors):
    """The tensors of a base model, to which the updates of an adapter are added when a tensor is read.

    `warnings` has sentences about tensors of the adapter that the base model does not have.
    """

    def __init__(self, model: Model, adapter: Adapter) -> None:
        base = model.tensors
        self._base, self._adapter = base, adapter
        self._stored_in_out = _stored_in_out(model)
        self._replaced = self._replacements(model)
        places = {name: (base, name) for name in base.shapes}
        places |= {name: (adapter.tensors, stored) for name, stored in self._replaced.items()}
        super().__init__(f"{base.source} + {adapter.source}", places, base.metadata)
        self._updates: dict[str, Update] = {}
        self._biases: dict[str, Update] = {}
        targets = _targets(self.shapes, (f"{update.module}.weight" for update in adapter.updates))
        for update in adapter.updates:
            target = self._only(targets[f"{update.module}.weight"], f"update of {update.module}")
            self._require_update_fits(update, target)
            other = self._updates.setdefault(target, update)
            if other is not update:
                raise InputError(
                    f"{adapter.source}: its updates of {other.module} and {update.module} both change "
                    f"{target} in {base.source}; remove one of the two"
                )
            if update.bias is not None:
                self._biases[self._bias_of(update, target)] = update
        self.warnings: tuple[str, ...] = ()
        if added := self._replaced.keys() - base.shapes.keys():
            tensors = f"{len(added)} tensor{'' if len(added) == 1 else 's'}"
            text = f"the adapter adds {tensors} that its base model does not have, such as {min(added)}"
            self.warnings = (printable(text),)

    def dtype(self, name: str) -> str:
        dtype = super().dtype(name)
        if name in self._replaced:
            return dtype
        is_code = " " in dtype or not dtype.startswith(("float", "bfloat"))
        return "float32" if name in self._updates and is_code else dtype  # a merged weight is in no code

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        stored = super().read(name, member)
        if name not in self._updates and name not in self._biases:
            return stored
        real = as_float(require_real(stored, self.source, name))
        with np.errstate(over="ignore", invalid="ignore"):  # readers check that weights are finite
            if name in self._biases:
                update = self._biases[name]
                source, stored_bias = self._adapter.source, str(update.bias)
                bias = as_float(require_real(self._adapter.tensors.read(stored_bias), source, stored_bias))
                require_finite(bias, source, stored_bias, "training diverged, use an earlier checkpoint")
                return real + update.scale * bias
            left, right = self._adapter.factors(self._updates[name])
            added = left @ right
            return real + (added if self._is_in_out(name) else added.T)

    def _is_in_out(self, name: str) -> bool:
        return self._stored_in_out.get(name, self._adapter.transposed)

    def _replacements(self, model: Model) -> dict[str, str]:
        """Return the names in the base model of the tensors that the adapter replaces or adds.

        Only tensors outside of layers can be new. The adapter may also have changed the number of tokens.
        """
        base, adapter = self._base, self._adapter
        outside = {view.tensor for view in (model.embedding_view, model.unembedding_view) if view}
        replaced: dict[str, str] = {}
        for name, targets in _targets(base.shapes, adapter.replaced).items():
            tensor = adapter.replaced[name]
            is_new = not targets and not OF_LAYER.search(name)
            target = name if is_new else self._only(targets, f"tensor {tensor}")
            if target in replaced:
                raise InputError(
                    f"{adapter.source}: its tensors {replaced[target]} and {tensor} both replace {target} "
                    f"in {base.source}; remove one of the two"
                )
            shape, before = adapter.tensors.shapes[tensor], base.shapes.get(target)
            fits = shape == before or (target in outside and before is not None and shape[1:] == before[1:])
            if not (is_new or fits):
                raise InputError(
                    f"{adapter.source}: its tensor {tensor} has shape {list(shape)}, but {target} in "
                    f"{base.source} has {list(before or ())}; give the base model that the adapter was "
                    "trained on"
                )
            replaced[target] = tensor
        return replaced

    def _bias_of(self, update: Update, target: str) -> str:
        name = target.removesuffix("weight") + "bias"
        shape, before = self._adapter.tensors.shapes[str(update.bias)], self.shapes.get(name)
        if before != shape:
            there = "is missing" if before is None else f"has {list(before)}"
            raise InputError(
                f"{self._adapter.source}: tensor {update.bias} has shape {list(shape)}, but {name} in "
                f"{self._base.source} {there}; merge the adapter into its base model first "
                "(merge_and_unload in peft)"
            )
        return name

    def _require_update_fits(self, update: Update, target: str) -> None:
        shapes = self._adapter.tensors.shapes
        out_in = [shapes[update.up][0], shapes[update.down][1]]
        expected = out_in[::-1] if self._is_in_out(target) else out_in
        if list(self.shapes[target]) != expected:
            raise InputError(
                f"{self._adapter.source}: its update of {update.module} has shape {expected}, but "
                f"{target} in {self._base.source} has {list(self.shapes[target])}; give the base model "
                "that the adapter was trained on"
            )

    def _only(self, targets: list[str], what: str) -> str:
        if len(targets) != 1:
            count = f"{len(targets)} tensors" if targets else "no tensor"
            raise InputError(
                f"{self._adapter.source}: its {what} fits {count} of {self._base.source}; "
                "give the base model that the adapter was trained on"
            )
        return targets[0]


def _stored_in_out(model: Model) -> dict[str, bool]:
    """Return for each tensor name whether the model stores the tensor as (in, out).

    peft sets `fan_in_fan_out` according to the last layer it visited, so it is wrong for some models.
    """
    orientations = {}
    for part in (*(view for layer in model.layers for view in layer.views), model.unembedding_view):
        while part:
            orientations[part.tensor] = not part.stored_out_in
            part = part.after
    return orientations


def _targets(names: Iterable[str], wanted: Iterable[str]) -> dict[str, list[str]]:
    """Return, for each wanted name, the names that are equal or, if none is, those with another prefix."""
    fitting: dict[str, list[str]] = {name: [] for name in wanted}
    there = set()
    for name in names:
        there.add(name)
        for ending in _endings(name):
            if ending in fitting:
                fitting[ending].append(name)
    return {
        name: [name] if name in there else longer + [end for end in _endings(name) if end in there]
        for name, longer in fitting.items()
    }


def _endings(name: str) -> Iterator[str]:
    """Yield the endings of a name that start after a dot, shortest first, and then the whole name."""
    dot = len(name)
    for _ in range(MOST_PARTS):
        dot = name.rfind(".", 0, dot)
        yield name[dot + 1 :]
        if dot < 0:
            return
