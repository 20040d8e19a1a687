"""Download a model from a hub by its id, `owner/name` or `owner/name@revision`.

Only the config and the weights are downloaded, pickled ones only if there are no safetensors. attnlaw never
runs code of a repository.
"""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from attnlaw.checkpoints.config import SIDE_FILES
from attnlaw.checkpoints.formats import FORMATS
from attnlaw.core.errors import InputError, as_input_error

HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w][\w./+-]*))?")
CONFIGS = ("config.json", "params.json", *SIDE_FILES)


def is_hub_id(source: str) -> bool:
    """Return whether a text has the form of an id on a hub.

    >>> is_hub_id("EleutherAI/pythia-70m@step3000"), is_hub_id("./model"), is_hub_id("a/b/c")
    (True, False, False)
    """
    return HUB_ID.fullmatch(source) is not None


def fetch(model: str, config_only: bool = False) -> Path:
    """Download a model's config and, unless `config_only`, its weights. Return their directory."""
    remedy = "to download a model from the Hugging Face hub, install its client: pip install 'attnlaw[hub]'"
    with as_input_error(f"{model}: no such file or directory", remedy, ImportError, with_reason=False):
        import huggingface_hub as hub
    hit = HUB_ID.fullmatch(model)
    assert hit is not None, f"{model} is not an id on a model hub"
    repository, revision = hit.groups()
    try:
        info = hub.HfApi().model_info(repository, revision=revision)
        names = [file.rfilename for file in info.siblings or ()]
        wanted = _files_to_fetch(repository, names, config_only)
        fetched = [Path(hub.hf_hub_download(repository, name, revision=revision)) for name in wanted]
        return fetched[0].parent
    except hub.errors.GatedRepoError as error:
        raise InputError(
            f"{repository}: this model is gated; accept its terms on the hub and log in with: hf auth login"
        ) from error
    except hub.errors.RepositoryNotFoundError as error:
        raise InputError(
            f"{repository}: this is not a file or directory here, and not a model on "
            f"{hub.constants.ENDPOINT}; check the path or the id"
        ) from error
    except hub.errors.HFValidationError as error:
        raise InputError(
            f"{model}: this is not a file or directory here, and not a valid id on a model hub; check the "
            "path or the id"
        ) from error
    except hub.errors.RevisionNotFoundError as error:
        raise InputError(
            f"{model}: {repository} has no revision {revision} on {hub.constants.ENDPOINT}; give a branch, "
            "a tag or a commit that it has"
        ) from error
    except (OSError, hub.errors.HTTPError) as error:  # offline, or the hub fails
        return _cached(hub, repository, revision, error)


def _cached(hub: Any, repository: str, revision: str | None, reason: Exception) -> Path:
    try:
        return Path(hub.snapshot_download(repository, revision=revision, local_files_only=True))
    except OSError as error:
        lines = str(reason).strip().splitlines() or [type(reason).__name__]
        model = repository if revision is None else f"{repository}@{revision}"
        raise InputError(
            f"{model}: this is not a file or directory here, and the model is not in the download cache; "
            f"{hub.constants.ENDPOINT} cannot be reached ({lines[0]}); check the path, or connect to the "
            "internet"
        ) from error


def _files_to_fetch(repository: str, names: list[str], config_only: bool) -> list[str]:
    """Return the names of the config and of the weights in the best format that the repository has."""
    if config_only:
        if "config.json" not in names:
            raise InputError(
                f"{repository}: this repository holds no config.json; give the id of a Transformer"
            )
        return ["config.json"]
    for patterns in (patterns for kind in FORMATS for patterns in kind.on_hub):
        weights = [name for name in names if "/" not in name and any(fnmatch(name, p) for p in patterns)]
        if weights:
            return [*weights, *(name for name in names if name in CONFIGS)]
    raise InputError(
        f"{repository}: this repository holds no safetensors file and no pytorch_model.bin; download one "
        "of its files, and give that file"
    )
