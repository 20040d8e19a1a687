"""Import names when they are first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def lazy_attribute(package: str, names: Mapping[str, str], name: str) -> Any:
    """Return what a package calls `name`, from the module that `names` has for it."""
    if name in names:
        return getattr(import_module(names[name]), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def resolve(path: Any) -> Any:
    """Import and return what `module:name` names; return anything that is no text as it is."""
    if not isinstance(path, str):
        return path
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
