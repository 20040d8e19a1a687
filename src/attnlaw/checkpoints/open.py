"""Open anything that contains a model: a file, a directory, an index, a hub id, a state dict or a module.

| directory of | contains | stands for |
|---|---|---|
| a model | weights, or an index of shards | that model |
| a hub's cache | `snapshots/REVISION`, `refs/main`, `blobs` | the snapshot called main, or the only one |
| a Trainer's output | `checkpoint-STEP` folders and no weights | these checkpoints, in order of steps |
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from attnlaw.checkpoints.adapted import AdaptedTensors
from attnlaw.checkpoints.adapters import open_adapter
from attnlaw.checkpoints.assembly.layers import build_model
from attnlaw.checkpoints.config import Config, read_config, read_params, with_side_files
from attnlaw.checkpoints.families.read_toml import known_families, read_family
from attnlaw.checkpoints.formats import FIRST_BYTES, FORMATS
from attnlaw.checkpoints.formats.gguf_parts import one_of_each_split
from attnlaw.checkpoints.formats.sharded import PARAMS, PART, ConsolidatedTensors, ShardedTensors
from attnlaw.checkpoints.hub import fetch, is_hub_id
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.modules import open_module
from attnlaw.checkpoints.quantization import decoded
from attnlaw.checkpoints.tensors import InMemoryTensors, Tensors, without_wrappers
from attnlaw.core.errors import InputError, as_input_error
from attnlaw.core.files import read_bounded, require_regular_file, require_valid_path

NOT_WEIGHTS = ("optimizer", "scheduler", "training_args", "rng_state", "scaler", "adapter_model")
STEP = re.compile(r"checkpoint-([0-9]{1,18})")
MOST_NAMED = 4  # the largest number of names in a message
SHARD = re.compile(r"-[0-9]{5}-of-([0-9]{5})\.(safetensors|bin)$")  # one file of several with an index
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")  # the name of a model on a hub, without its owner
# Models that were once on the hub without an owner, and are known by this name.
HUB_OWNERS = {
    "openai-community": "gpt2 gpt2-medium gpt2-large gpt2-xl",
    "google-bert": "bert-base-uncased bert-base-cased bert-large-uncased bert-large-cased",
    "google-t5": "t5-small t5-base t5-large",
    "FacebookAI": "roberta-base roberta-large xlm-roberta-base",
    "distilbert": "distilbert-base-uncased distilgpt2",
}
POINTER = b"version https://git-lfs"

ModelSource = str | os.PathLike[str] | Mapping[str, Any] | Any


def open_model(
    source: ModelSource,
    heads: int | None = None,
    name: str | None = None,
    map: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    *,
    sizes_from: ModelSource | None = None,
    unscaled: bool = False,
) -> Model:
    """Open a checkpoint as a Transformer.

    This function reads only names, shapes and sizes. attnlaw reads weights when it needs them.

    Args:
        source: a path, an id on a model hub, a mapping of names to tensors, an `nn.Module`, or an open model.
        heads: the number of attention heads, needed only if neither a config nor the shapes determine it.
        name: the name of the model in rows. The default is its path.
        map: a TOML file that describes another architecture.
        adapter: a LoRA adapter to add to the weights.
        sizes_from: another checkpoint of the same architecture. attnlaw uses the config of that checkpoint if
            `source` has no config.
        unscaled: whether to read float8 weights without a scale as they are stored.

    >>> import numpy as np
    >>> block = {"in_proj_weight": np.eye(12, 4), "out_proj.weight": np.eye(4)}
    >>> model = open_model(block, heads=2)
    >>> model.family, model.hidden_size, model.layers[0].attention.head_size
    ('torch.nn.MultiheadAttention', 4, 2)
    """
    if heads is not None and heads < 1:
        raise InputError(f"--heads {heads}: expected a number of attention heads; give 1 or more")
    if isinstance(source, Model):
        return source if name is None else replace(source, name=name)
    described = None if map is None else os.fspath(map)
    families = known_families() if described is None else (read_family(described),)
    label, tensors, config, known_heads = _open_source(source, name)
    has_sizes = config.values or known_heads is not None or heads is not None
    if not has_sizes and sizes_from is not None and not isinstance(sizes_from, Model):
        *_, known, known_heads = _open_source(sizes_from, None)
        # How the other checkpoint stores its weights says nothing about these.
        values = {key: value for key, value in known.values.items() if key != "quantization_config"}
        config = Config(values, known.source) if values else config
    build = partial(build_model, label, config=config, heads=heads or known_heads, families=families)
    model = build(decoded(without_wrappers(tensors), config, unscaled), map_file=described)
    if adapter is None:
        return model
    adapted = AdaptedTensors(model, open_adapter(local_model_path(adapter), open_file))
    model = build(adapted, map_file=described)
    return replace(model, warnings=(*model.warnings, *adapted.warnings))


def _open_source(source: ModelSource, name: str | None) -> tuple[str, Tensors, Config, int | None]:
    """Return the model's name, tensors, config, and the number of heads if a module states it."""
    if isinstance(source, str | os.PathLike):
        tensors, config = _open_path(local_model_path(source))
        # A file that states its architecture (GGUF) comes first; other metadata count without a config.json.
        if tensors.metadata.get("model_type") or (tensors.metadata and not config.values):
            config = Config(tensors.metadata, tensors.source)
        return name or str(source), tensors, config, None
    if isinstance(source, Mapping):
        label = name or "state dict"
        return label, InMemoryTensors(source, label), Config(source="config.json for this state dict"), None
    if hasattr(source, "state_dict"):
        label = name or type(source).__name__
        return label, *open_module(source, label)
    raise InputError(
        f"cannot read a model from {type(source).__name__}; pass a path, a state dict or an nn.Module"
    )


def local_model_path(source: str | os.PathLike[str]) -> Path:
    """Return the path of one model on disk. If `source` is an id on a hub, download the model."""
    path = require_valid_path(Path(source))
    is_file = path.suffix in {".json", *_endings()}  # do not ask a hub for a missing file
    if path.exists() or is_file or not is_hub_id(str(source)):
        return single_model_path(path)
    return fetch(str(source))


def config_path(source: str | os.PathLike[str]) -> Path:
    """Return the path of a model's config.json. If `source` is an id on a hub, download only the file."""
    path = require_valid_path(Path(source))
    if path.exists() or path.suffix == ".json" or not is_hub_id(str(source)):
        path = single_model_path(path)
        return path / "config.json" if path.is_dir() else path
    return fetch(str(source), config_only=True) / "config.json"


def _open_path(path: Path) -> tuple[Tensors, Config]:
    with (
        as_input_error(f"{path}: cannot be read", "check its permissions"),
        as_input_error(
            f"{path}: the model does not fit into memory",
            "use a machine with more memory",
            MemoryError,
            with_reason=False,
        ),
    ):
        if path.exists():
            file = find_checkpoint(path) if path.is_dir() else path
            _refuse_shard(file)
            tensors = open_file(file)
            if file.name.startswith("consolidated."):  # saved by Meta or Mistral
                return tensors, read_params(file.with_name(PARAMS))
            return tensors, with_side_files(read_config(file.with_name("config.json")), file.parent)
    raise missing_model(path)


def missing_model(source: str | os.PathLike[str]) -> InputError:
    """Return the error for a model that does not exist, with an example if its name may be an id on a hub.

    >>> str(missing_model("gpt2")).endswith("write its id with the owner, such as openai-community/gpt2")
    True
    """
    name = os.fspath(source)
    if HUB_NAME.fullmatch(name) and Path(name).suffix not in {".json", *_endings()}:
        owners = (owner for owner, names in HUB_OWNERS.items() if name.lower() in names.split())
        owner = next(owners, None)
        example = f"{owner}/{name.lower()}" if owner else f"OWNER/{name}"
        return InputError(
            f"{name}: no such file or directory; give a checkpoint file or its directory. For a model of the "
            f"Hugging Face hub, write its id with the owner, such as {example}"
        )
    return InputError(f"{name}: no such file or directory; give a checkpoint file or its directory")


def _refuse_shard(path: Path) -> None:
    """Raise an `InputError` if a file is one of several shards, because it contains only part of a model."""
    hit = SHARD.search(path.name)
    if hit is not None and int(hit[1]) > 1:
        index = min(path.parent.glob("*.index.json"), default=None)
        others = "download the others and their index (*.index.json) into the same directory, and give the"
        remedy = f"give {index}, or its directory" if index else f"{others} directory"
        what = f"this is one of {int(hit[1])} shards of a model and not the whole model"
        raise InputError(f"{path}: {what}; {remedy}")


def open_file(path: Path) -> Tensors:
    """Open a file, all shards of an index, or all `consolidated.NN.pth` of a directory."""
    if path.name.endswith(".index.json"):
        return ShardedTensors(path, open_file)
    if PART.fullmatch(path.name):
        return ConsolidatedTensors(path.parent, _by_ending)
    return _by_ending(path)


def _by_ending(path: Path) -> Tensors:
    require_regular_file(path)
    with path.open("rb") as file:
        first = file.read(FIRST_BYTES)
    kind = next((kind for kind in FORMATS if path.suffix in kind.endings), None)
    if kind is None:
        kind = next((kind for kind in FORMATS if kind.begins is not None and kind.begins(first)), None)
    elif first.startswith(POINTER):
        raise InputError(f"{path}: this is a Git LFS pointer and not the weights; run git lfs pull")
    if kind is not None:
        return kind.open(path)
    raise InputError(
        f"{path}: attnlaw does not know the format {path.suffix or '(no ending)'}; attnlaw reads "
        f"{', '.join(_endings())}, a directory with such files, and an index of shards"
    )


def _endings() -> list[str]:
    return [ending for kind in FORMATS for ending in kind.endings]


def _patterns() -> list[str]:
    return [pattern for kind in FORMATS for pattern in kind.in_directory]


def expand_run(source: Any) -> list[Any]:
    """Return a training run's checkpoints in the order of their steps, or `[source]` for other sources."""
    if not isinstance(source, str | os.PathLike) or not (steps := _steps(Path(source))):
        return [source]
    return [str(step) for step in steps] if isinstance(source, str) else list(steps)


def single_model_path(path: Path) -> Path:
    """Return the path of the only model in a directory, the snapshot in a hub's cache, or `path` itself."""
    steps = _steps(path)
    if len(steps) > 1:
        raise InputError(
            f"{path}: found {len(steps)} checkpoints of a training run, expected one model; give one of "
            f"them, such as the last: {steps[-1]}"
        )
    with as_input_error(f"{path}: cannot be read", "check its permissions"):
        return steps[0] if steps else _snapshot(path) if _is_cache(path) else path


def _steps(folder: Path) -> list[Path]:
    if not _is_folder(folder):
        return []
    steps = [step for step in folder.glob("checkpoint-*") if STEP.fullmatch(step.name) and step.is_dir()]
    has_weights = steps and (_candidates(folder) or any(folder.glob("adapter_*")))
    order = sorted(steps, key=lambda step: (int(step.name.partition("-")[2]), step.name))
    return [] if has_weights else order


def _is_cache(folder: Path) -> bool:
    return _is_folder(folder / "snapshots") and any(_is_folder(folder / part) for part in ("blobs", "refs"))


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 (this never raises)


def _snapshot(cache: Path) -> Path:
    """Return the folder of the revision called main, or of the only revision that was downloaded.

    The text in `refs/main` is only compared with the names in `snapshots`, so it cannot lead elsewhere.
    """
    folders = {folder.name: folder for folder in sorted((cache / "snapshots").iterdir()) if folder.is_dir()}
    main = cache / "refs" / "main"
    named = read_bounded(main, megabytes=1).decode(errors="replace").strip() if main.is_file() else ""
    if named in folders:
        return folders[named]
    if len(folders) == 1:
        return next(iter(folders.values()))
    if not folders:
        raise InputError(f"{cache}: this cache of a hub holds no snapshot; download the model again")
    raise InputError(
        f"{cache}: this cache has {len(folders)} snapshots ({_format_names(folders)}), and refs/main "
        f"names none of them; give one, such as {next(iter(folders.values()))}"
    )


def find_checkpoint(folder: Path) -> Path:
    """Return the path of the weights in a directory, or of the index of their shards."""
    hits = _candidates(folder)
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise InputError(
            f"{folder}: found several checkpoints but no index "
            f"({_format_names(file.name for file in hits)}); give one of these files"
        )
    if any(folder.glob("adapter_*")):
        raise InputError(
            f"{folder}: this directory has a LoRA adapter but no whole model; give the adapter file alone, "
            "or its base model with --adapter DIR"
        )
    raise InputError(
        f"{folder}: this directory holds no checkpoint (attnlaw looked for {', '.join(_patterns())}); "
        "give the path of the file"
    )


def _candidates(folder: Path) -> list[Path]:
    """Return the files that may contain the weights, by the first pattern that matches any file."""
    for pattern in _patterns():
        hits = [file for file in sorted(folder.glob(pattern)) if not file.name.startswith(NOT_WEIGHTS)]
        if hits:
            return one_of_each_split(hits)
    return []


def _format_names(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:MOST_NAMED]) + (", ..." if len(shown) > MOST_NAMED else "")
