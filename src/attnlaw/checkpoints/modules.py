"""Read an `nn.Module` as the checkpoint that it would be saved as, so that both give the same rows.

transformers keeps some tensors under other names or in other pieces in memory than in its files. Like its
`save_pretrained`, this module undoes that with `revert_weight_conversion`, without copies where a view is
enough.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.tensors import InMemoryTensors, Tensors
from attnlaw.core.errors import InputError, as_input_error

# The modules of transformers, which are loaded if a model of its is.
MODELS, CONVERSIONS = "transformers.modeling_utils", "transformers.core_model_loading"


def open_module(module: Any, label: str) -> tuple[Tensors, Config, int | None]:
    """Return the tensors of a module as they would be saved, its config, and its number of heads.

    The number is None if the config states it or if no layer states it.
    """
    state = dict(module.state_dict())
    for prefix, model in _pretrained_models(module):
        names = [name for name in state if name.startswith(prefix)]
        part = {name.removeprefix(prefix): state.pop(name) for name in names}
        state |= {prefix + name: tensor for name, tensor in sorted(_saved_state(model, part).items())}
    return InMemoryTensors(state, label), *_module_sizes(module)


def _pretrained_models(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the models of transformers in a module that are not inside another one, with their prefixes."""
    library = sys.modules.get(MODELS)
    if library is None or not hasattr(module, "named_modules"):  # a state dict with a config
        return
    outer = None
    for name, part in module.named_modules():  # a module comes before those inside it
        if isinstance(part, library.PreTrainedModel) and (outer is None or not name.startswith(outer)):
            outer = f"{name}." if name else ""
            yield outer, part


def _saved_state(model: Any, state: dict[str, Any]) -> dict[str, Any]:
    what = (
        f"{type(model).__name__}: transformers does not know under which names this module's tensors "
        "are saved"
    )
    with as_input_error(what, "save it with save_pretrained, and give the directory", Exception), _views():
        tied = getattr(model, "all_tied_weights_keys", None) or {}
        dropped = {
            *(getattr(model, "_keys_to_ignore_on_save", None) or ()),
            *(name for name, source in tied.items() if _is_same(state.get(name), state.get(source))),
        }
        kept = {name: tensor for name, tensor in state.items() if name not in dropped}
        revert = getattr(sys.modules.get(CONVERSIONS), "revert_weight_conversion", None)
        return kept if revert is None else dict(revert(model, kept))


def _is_same(first: Any, second: Any) -> bool:
    if first is None or second is None or first.device.type == "meta":
        return False
    return bool(first.data_ptr() == second.data_ptr() and first.shape == second.shape)


def _views() -> Any:
    """Return a context in which a part of a tensor is not copied to be contiguous."""
    import torch

    class Views(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, call: Any, types: Any, args: Any = (), keywords: Any = None) -> Any:
            if call is torch.Tensor.contiguous:
                return args[0]
            return call(*args, **(keywords or {}))

    return Views()


def _module_sizes(module: Any) -> tuple[Config, int | None]:
    config = getattr(module, "config", None)
    if config is not None and hasattr(config, "to_dict"):
        return Config(config.to_dict(), f"{type(module).__name__}.config"), None
    parts = list(module.modules())
    counts = {part.num_heads for part in parts if isinstance(getattr(part, "num_heads", None), int)}
    if len(counts) > 1:
        raise InputError(
            f"{type(module).__name__}: its attention blocks have different numbers of heads "
            f"({', '.join(map(str, sorted(counts)))}); pass each part as a separate model"
        )
    layers = (part for part in parts if hasattr(part, "norm_first") and hasattr(part, "activation"))
    values = {}
    if (layer := next(layers, None)) is not None:
        activation = getattr(layer.activation, "__name__", type(layer.activation).__name__.lower())
        values = {"activation": activation, "norm_first": layer.norm_first}
    return Config(values, type(module).__name__), next(iter(counts), None)
