"""Load a Hugging Face model in float64 from a local directory, without downloads or code from it.

attnlaw reads the config itself and passes it to a class of `transformers` that the table of families names.
The weights come through attnlaw's readers (safetensors, or pickles with `weights_only=True`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from attnlaw.analysis.forward.families import FAMILIES, FamilyReader
from attnlaw.checkpoints.config import read_config
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model, single_model_path
from attnlaw.checkpoints.tensors import require_finite, require_real
from attnlaw.core.errors import InputError, as_input_error, require_extra
from attnlaw.core.files import require_valid_path
from attnlaw.core.library_messages import quiet_import, relayed_warnings

# Keys that the code of these models reads, although not every config class has them as parameters.
EXTRA_CONFIG_KEYS = (
    *("head_dim", "is_causal", "original_max_position_embeddings", "partial_rotary_factor"),
    *("rope_scaling", "rope_theta"),
)
# This key would compute attention in float32.
IGNORED_CONFIG_KEY = "reorder_and_upcast_attn"


def load_base_model(path: str | os.PathLike[str]) -> tuple[str, Any]:
    """Return the model type and the model without a head (`BertModel`, `GPT2Model`, ...), in float64."""
    return _load(path, lambda reader, named, checkpoint: (reader, {}))


def load_classifier(path: str | os.PathLike[str]) -> tuple[str, Any]:
    """Return the model type and the model with its head: a classifier or a causal language model."""
    return _load(path, _choose_head)


# Takes a reader, the classes that config.json names and the checkpoint. Returns the reader of the model to
# build, and further keys of its config.
ChooseModel = Callable[[FamilyReader, list[str], Model], tuple[FamilyReader, dict[str, Any]]]


def _load(path: str | os.PathLike[str], choose: ChooseModel) -> tuple[str, Any]:
    with require_extra("the lens", "lens"), quiet_import():
        import torch  # noqa: F401
        import transformers
    folder = single_model_path(require_valid_path(Path(path)))
    if not (folder / "config.json").is_file():
        there = "a file, not a directory" if folder.exists() else "no such directory"
        problem = "holds no config.json" if folder.is_dir() else there
        raise InputError(
            f"{folder}: {problem}; give the local directory of a Hugging Face model, "
            "with config.json and weights"
        )
    values = dict(read_config(folder / "config.json").values)
    checkpoint = open_model(folder)
    kind = str(values.pop("model_type", None) or checkpoint.family)
    if kind not in FAMILIES:
        raise InputError(
            f"{folder}: attnlaw cannot run models of type {kind!r}; it runs {', '.join(FAMILIES)}"
        )
    if values.get("per_layer_config"):
        raise InputError(
            f"{folder / 'config.json'}: its layers have different configs (per_layer_config), which "
            "attnlaw cannot run; give a model whose layers are alike"
        )
    reader, added = choose(FAMILIES[kind], list(values.get("architectures") or []), checkpoint)
    build = _builder(transformers, reader, values, added, len(checkpoint.layers), folder)
    with relayed_warnings("transformers", str(folder / "config.json")):
        _require_matching_shapes(build("meta"), checkpoint)  # on "meta" a wrong size cannot fill the memory
        model = build("cpu")
    _copy_weights(model, checkpoint)
    return kind, model.eval()


def _import_classes(transformers: Any, reader: FamilyReader) -> tuple[Any, Any]:
    try:
        with quiet_import():  # transformers imports the files of a model only here
            return getattr(transformers, reader.config), getattr(transformers, reader.model)
    except (ImportError, AttributeError) as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise InputError(
            f"transformers {transformers.__version__} cannot import {reader.model} ({reason}); repair or "
            "uninstall the package that is named here"
        ) from error


def _builder(
    transformers: Any,
    reader: FamilyReader,
    values: dict[str, Any],
    added: dict[str, Any],
    layers: int,
    folder: Path,
) -> Callable[[str], Any]:
    """Return a function that builds the untrained model in float64 on a given device."""
    import torch

    make_config, make_model = _import_classes(transformers, reader)
    known = _config_keys(transformers, make_config)
    sizes = {key: value for key, value in values.items() if key in known} | added

    def build(device: str) -> Any:
        source = f"{folder / 'config.json'}: transformers cannot build a {reader.model} from this file"
        # The checks of transformers raise errors of many classes.
        with (
            as_input_error(source, "restore the model's config.json", Exception, last_line=True),
            torch.device(device),
        ):
            config = make_config(**sizes, attn_implementation="eager")
            if config._attn_implementation != "eager":  # others run foreign code, or hide probabilities
                raise ValueError(
                    f"the attention implementation is {config._attn_implementation}, expected eager"
                )
            # The config may give the number of layers under a name that attnlaw does not read.
            if config.num_hidden_layers != layers:
                raise ValueError(
                    f"it describes {config.num_hidden_layers} layers, but the weights have {layers}"
                )
            model = make_model(config, **reader.options).double()
        normalise_in_float64(model)
        return model

    return build


def _config_keys(transformers: Any, make_config: Any) -> set[str]:
    """Return the keys of config.json that describe the network. Others could choose code."""
    parameters = set(signature(make_config.__init__).parameters)
    common = set(signature(transformers.PreTrainedConfig.__init__).parameters)
    return (
        (parameters - common - {IGNORED_CONFIG_KEY}) | set(make_config.attribute_map) | set(EXTRA_CONFIG_KEYS)
    )


def normalise_in_float64(model: Any) -> None:
    """Replace the RMSNorms of transformers, which always compute in float32, by those of torch."""
    import torch

    for parent in list(model.modules()):
        for name, module in list(parent.named_children()):
            if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
                exact = torch.nn.RMSNorm(module.weight.numel(), eps=module.variance_epsilon, device="meta")
                exact.weight = torch.nn.Parameter(module.weight.detach().double())
                setattr(parent, name, exact)


def _choose_head(
    reader: FamilyReader, named: list[str], checkpoint: Model
) -> tuple[FamilyReader, dict[str, Any]]:
    """Return the reader and config values of the model whose head config.json or its tensors name."""
    shapes, source = checkpoint.tensors.shapes, checkpoint.tensors.source
    if reader.classifier in named or (not named and reader.classifier and reader.labels in shapes):
        _require_tensor(reader.labels, shapes, source)
        head_reader = replace(reader, model=str(reader.classifier), options={})
        return head_reader, {"num_labels": shapes[reader.labels][0]}
    if reader.causal in named or (not named and reader.causal and "lm_head.weight" in shapes):
        tied = "lm_head.weight" not in shapes
        return replace(reader, model=str(reader.causal), options={}), {"tie_word_embeddings": tied}
    known = " or ".join(filter(None, (reader.classifier, reader.causal)))
    raise InputError(
        f"{source}: is a {named[0] if named else 'model without a head'}, but margins need {known}; give "
        "the checkpoint that was saved with its head"
    )


def _require_tensor(name: str | None, names: Container[str], source: str) -> None:
    if name not in names:
        raise InputError(f"{source}: tensor {name} is missing; use a complete checkpoint")


def _stored_names(model: Any, checkpoint: Model) -> dict[str, str]:
    """Return for each tensor of the model its name in the checkpoint. Either name may have a prefix."""
    prefix, wanted = model.base_model_prefix + ".", _required_tensors(model)
    return {
        next((key for key in (name, prefix + name) if key in wanted), name.removeprefix(prefix)): name
        for name in checkpoint.tensors.shapes
    }


def _required_tensors(model: Any) -> dict[str, Any]:
    """Return by name the tensors that the checkpoint must have. A tied head is not one of them."""
    tied = getattr(model, "lm_head", None) is not None and model.config.tie_word_embeddings
    return {
        name: tensor for name, tensor in model.state_dict().items() if not (tied and name == "lm_head.weight")
    }


def _require_matching_shapes(model: Any, checkpoint: Model) -> None:
    """Raise an `InputError` unless the weights of model and checkpoint match in name and shape."""
    source, wanted = checkpoint.tensors.source, _required_tensors(model)
    stored = _stored_names(model, checkpoint)
    for name in stored:
        part = name.split(".")[0]
        if name.endswith(".weight") and name not in wanted and any(key.startswith(part) for key in wanted):
            raise InputError(
                f"{source}: tensor {stored[name]} does not exist in the model that config.json describes; "
                "give the config.json that belongs to these weights"
            )
    for name, target in wanted.items():
        _require_tensor(name, stored, source)
        shape = checkpoint.tensors.shapes[stored[name]]
        if shape != tuple(target.shape):
            raise InputError(
                f"{source}: tensor {stored[name]} has shape {shape}, expected {tuple(target.shape)} from "
                "config.json; give the config.json that belongs to these weights"
            )


def _copy_weights(model: Any, checkpoint: Model) -> None:
    """Copy the tensors of the checkpoint into the model, or raise an `InputError` if one is not finite."""
    import torch

    source, stored = checkpoint.tensors.source, _stored_names(model, checkpoint)
    for name, target in _required_tensors(model).items():
        array = require_real(checkpoint.tensors.read(stored[name]), source, stored[name]).astype(np.float64)
        require_finite(array, source, stored[name], "use an earlier checkpoint")
        target.copy_(torch.from_numpy(array))
    if getattr(model, "lm_head", None) is not None and model.config.tie_word_embeddings:
        model.lm_head.weight = model.get_input_embeddings().weight
