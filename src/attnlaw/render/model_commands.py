"""Commands about a model that an answer suggests, with the options that opening the model needs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

OPTIONS = ("layers", "only", "heads", "map", "adapter")  # settings that decide what is read
PLACEHOLDER = "MODEL"


def model_command(verb: str, row: Mapping[str, Any], *words: str, first: str | None = None) -> str:
    """Return the command that runs a verb on the model of a row.

    Args:
        verb: the name of the verb.
        row: a row of a result, with the settings of a model.
        words: further words of the command.
        first: a word before the model, such as the base of a diff.

    >>> model_command("audit", {"model": "my models/a", "heads": 4}, "--out", "results")
    "attnlaw audit 'my models/a' --heads 4 --out results"
    """
    known = [(f"--{name}", _text(row[name])) for name in OPTIONS if row.get(name) is not None]
    options = [word for pair in known for word in pair]
    options += ["--unscaled"] if row.get("unscaled") else []
    models = [word for word in (first, model_word(row)) if word is not None]
    return shlex.join(["attnlaw", verb, *models, *options, *words])


def model_word(row: Mapping[str, Any]) -> str:
    """Return the path or the hub id of the model, or "MODEL" if a row does not have it.

    A row has the name instead if the user gave one, and the type of a model in memory.
    """
    given = str(row["model"])
    is_type = given.isidentifier() and not os.path.lexists(given)
    return PLACEHOLDER if row.get("name") is not None or is_type else given


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
