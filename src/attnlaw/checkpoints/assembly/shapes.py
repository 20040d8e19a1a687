"""Check the shapes of named tensors, and find the sizes of layers that differ from the others.

Layers of Gemma 4 have different sizes, and some read the keys and values of another layer:

| in config.json | meaning |
|---|---|
| `per_layer_config` | the sizes of some layers, by their numbers |
| `global_head_dim` | the head size in layers of type `full_attention`; their number of heads may differ too |
| `num_kv_shared_layers` n | the last n layers read keys and values of the last of their type before them |
| `use_double_wide_mlp` | these layers have a feed-forward block of twice the width |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NoReturn

from attnlaw.checkpoints.blocks import Norm, View
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families import Family, LayerTable, Roles
from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.errors import InputError

# How torch names the parts of a weight that it computes: what they are, and what makes the weight plain.
REPARAMETRISED = (
    (
        "parametrizations.{weight}.original",
        "a parametrization of torch.nn.utils.parametrize",
        "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')",
    ),
    ("{weight}_g", "a weight norm", "torch.nn.utils.remove_weight_norm(module)"),
    ("{weight}_mask", "a pruned weight with its mask", "torch.nn.utils.prune.remove(module, 'weight')"),
    ("{weight}_u", "a spectral norm", "torch.nn.utils.remove_spectral_norm(module)"),
)


@dataclass(frozen=True)
class Shapes:
    """The shapes that describe attention and feed-forward blocks, without reading weights.

    `foreign_type` is the model type if the family does not list it. `map_file` is the user's family file.
    """

    tensors: Tensors
    config: Config
    family: Family
    stack: LayerTable
    foreign_type: str | None = None
    map_file: str | None = None

    def __contains__(self, name: str) -> bool:
        return name in self.tensors.shapes

    def matrix(self, name: str, stacked: bool = False) -> tuple[int, int]:
        """Return the numbers of inputs and outputs of a matrix, or of each matrix in a `stacked` tensor."""
        shape = self.tensors.shapes.get(name)
        if shape is None:
            self._refuse_reparametrised(name)
            raise self.tensors.error(f"tensor {name} is missing; {self.missing_remedy}")
        if len(shape) != 2 + stacked or 0 in shape:
            wanted = "a stack of matrices" if stacked else "a matrix"
            self._refuse(
                name,
                f"shape {list(shape)}",
                wanted,
                "save the weights as whole matrices (not sharded or flattened)",
            )
        return (shape[-1], shape[-2]) if self.stored_out_in(name) else (shape[-2], shape[-1])

    def _refuse_reparametrised(self, name: str) -> None:
        module, _, weight = name.rpartition(".")
        for ending, what, remedy in REPARAMETRISED:
            part = f"{module}.{ending.format(weight=weight)}"
            if any(stored.startswith(part) for stored in self.tensors.shapes):
                raise self.tensors.error(
                    f"tensor {name} is stored as {what} (tensor {part}); call {remedy} on its module and "
                    "save the model again"
                )

    def stored_out_in(self, name: str) -> bool:
        """Return whether a tensor is stored as (out, in): all of a family, or only those `turned`."""
        return self.family.stored_out_in != name.endswith(self.stack.turned)

    def views(
        self,
        prefix: str,
        roles: Roles,
        sizes: Mapping[str, int],
        runs: int = 1,
        member: int | None = None,
        biases: Roles | None = None,
    ) -> dict[str, View]:
        """Return a `View` for each role. The parts of a fused tensor follow each other along its output axis.

        Args:
            sizes: the numbers of outputs by role. A role without an entry has all outputs of its tensor.
            runs: the number of runs along the output axis of a fused tensor, each with all parts.
            member: the number of the expert in stacked tensors.
            biases: the names, by role, of biases whose names differ from those of their weights.
        """
        views = {}
        for keys, name in roles.items():
            inputs, outputs = self.matrix(prefix + name, stacked=member is not None)
            parts = keys.split(",")
            several = runs if len(parts) > 1 else 1
            if name in self.stack.alternating:
                several = outputs // len(parts)
            start = 0
            for role in parts:
                size = sizes.get(role, outputs)
                turned = self.stored_out_in(prefix + name)
                given = None if biases is None or role not in biases else prefix + biases[role]
                bias = self._bias(prefix + name, outputs, stacked=member is not None, given=given)
                block, stride = (size // several, outputs // several) if several > 1 else (None, None)
                columns = start, block, stride
                views[role] = View(prefix + name, (inputs, size), turned, *columns, member, bias)
                start += size // several
            self.check_layer(views[role], "outputs", outputs, start * several)
        return views

    def _bias(self, name: str, outputs: int, stacked: bool, given: str | None) -> str | None:
        bias = given or name.removesuffix("weight") + ("bias" if name.endswith("weight") else "_bias")
        shape = self.tensors.shapes.get(bias)
        if shape is None:
            return None
        if len(shape) != 1 + stacked or shape[-1] != outputs:
            self._refuse(bias, f"shape {list(shape)}", f"{outputs} entries, one for each output of {name}")
        return bias

    def norm(self, name: str, size: int | None = None) -> Norm | None:
        """Return the norm with this name, or None without its gain. The name "" is a norm without tensors.

        A norm of queries or keys whose gain has `size` entries normalises all heads together.
        """
        config, family = self.config, self.family
        epsilon = next((config.number(key) for key in family.epsilon if key in config), None)
        offset = float(self.is_among(family.offset_gains))
        kind, epsilon = family.norm, epsilon or family.default_epsilon
        if not name:
            return Norm(kind, epsilon=epsilon)
        gain, bias = (
            next((name + end for end in ends if name + end in self), None)
            for ends in ((".weight", ".gamma"), (".bias", ".beta"))
        )
        if gain is None:
            return None
        joint = size is not None and self.tensors.shapes[gain] == (size,)
        return Norm(kind, gain, bias, epsilon, offset, joint)

    def is_among(self, model_types: Sequence[str]) -> bool:
        """Return whether the list has the model's type, or the family's name if the config has no type."""
        return any(name in model_types for name in self.config.model_types or (self.family.name,))

    def require_norm_fits(self, norm: Norm | None, view: View) -> Norm | None:
        """Return the norm. Raise an `InputError` if the norm's size is not the matrix's number of inputs."""
        for name in (norm.gain, norm.bias) if norm else ():
            if name is not None and (shape := self.tensors.shapes[name]) != (view.shape[0],):
                wanted = f"[{view.shape[0]}], the inputs of {view.tensors[0]}"
                self._refuse(name, f"shape {list(shape)}", wanted)
        return norm

    def check_config(self, name: str, what: str, count: int, key: str) -> None:
        """Raise an `InputError` if the config declares another size under `key` than `count`."""
        declared = self.config.size(key)
        if declared not in (None, count):
            raise self.tensors.error(
                f"tensor {name} has {count} {what}, but {self.config.source} says {declared} ({key}); "
                f"{self.remedy}"
            )

    def check_layer(self, view: View, what: str, count: int, expected: int) -> None:
        """Raise an `InputError` if a size is not the one that the other tensors of the layer need."""
        if count != expected:
            self._refuse(view.tensor, f"{count} {what}", f"{expected} from the rest of its layer")

    def _refuse(self, name: str, actual: str, expected: str, remedy: str | None = None) -> NoReturn:
        what = f"{self.tensors.source}: tensor {name} has {actual}, expected {expected}"
        raise InputError(f"{what}; {remedy or self.remedy}")

    @property
    def remedy(self) -> str:
        if self.map_file is not None:
            return f"check the key stored_out_in and the order of the parts in {self.map_file}"
        again = "save or download the weights again, with the config.json that belongs to them"
        return self.foreign_remedy or again

    @property
    def missing_remedy(self) -> str:
        if self.map_file is not None:
            return f"correct its name in {self.map_file}, or save the whole checkpoint"
        return self.foreign_remedy or "the checkpoint is incomplete: save or download it again"

    @property
    def foreign_remedy(self) -> str | None:
        """The advice for a model type that the family does not list, or None if the family lists it."""
        if self.foreign_type is None:
            return None
        return (
            f"attnlaw does not know the model type {self.foreign_type}, and its tensors do not match "
            f"{self.family.name}; describe it in a file, and pass --map FILE.toml"
        )


def layer_type(config: Config, number: int) -> str | None:
    """Return the attention type that config.json states for a layer, or None if config.json states none."""
    types = config.values.get("layer_types")
    kind = types[number] if isinstance(types, list) and number < len(types) else None
    return kind if isinstance(kind, str) else None


def layer_config(config: Config, number: int, inner_size: str) -> Config:
    """Return the config with one layer's sizes. `inner_size` is the key of the feed-forward width."""
    values = dict(config.values)
    if "global_head_dim" in config and layer_type(config, number) == "full_attention":
        values |= {"head_dim": values["global_head_dim"], "num_key_value_heads": None}
    per_layer = values.get("per_layer_config")
    sizes = per_layer.get(str(number), per_layer.get(number)) if isinstance(per_layer, Mapping) else None
    if isinstance(sizes, Mapping):
        values |= sizes
    if values.get("use_double_wide_mlp") is True and key_source(config, number) != number:
        values[inner_size] = 2 * (config.size(inner_size) or 0) or None
    changed = copy(config)
    changed.values = values
    return changed


def key_source(config: Config, number: int) -> int:
    """Return the number of the layer whose keys and values a layer reads. Most layers read their own."""
    depth, shared = config.size("num_hidden_layers"), config.values.get("num_kv_shared_layers")
    unshared = depth - shared if depth and isinstance(shared, int) else None
    if unshared is None or not 0 < unshared <= number:
        return number
    kind = layer_type(config, number)
    return next((other for other in reversed(range(unshared)) if layer_type(config, other) == kind), number)
