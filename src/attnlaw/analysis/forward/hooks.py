"""Hooks on the modules of a network that hold for the passes inside a `with`, and no longer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def temporary_hooks(hooks: Iterable[Any]) -> Iterator[None]:
    """Registered hooks, taken off again when the passes inside are done or fail."""
    held = list(hooks)
    try:
        yield
    finally:
        for hook in held:
            hook.remove()
