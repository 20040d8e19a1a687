"""Every public name can be imported, no room hides a verb, and what 0.1.0 called otherwise says so."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import attnlaw
from attnlaw.base.declare import Verb
from attnlaw.base.public import MOVED
from attnlaw.verbs import VERBS

TESTS = Path(__file__).parent
# What the documentation of 0.1.0 named: public names, its reference, what pages and examples imported.
OLD_NAMES = (TESTS / "frozen" / "public_names.txt").read_text(encoding="utf-8").split()
PAGE = (TESTS.parent / "docs" / "from-0.1.md").read_text(encoding="utf-8")


def found(name: str) -> Any:
    """What stands at a dotted name, a module or what it holds."""
    room, _, last = name.rpartition(".")
    try:
        return getattr(import_module(room), last)
    except AttributeError:
        return import_module(name)


def test_every_public_name_is_there() -> None:
    for name in attnlaw.__all__:
        value = getattr(attnlaw, name)
        assert name in ("__version__", *VERBS) or value.__name__ == name
    assert set(attnlaw.__all__) == set(dir(attnlaw))


def test_importing_every_room_leaves_every_verb_a_function() -> None:
    """Importing a package sets the attribute of its name: a room `audit` would hide `attnlaw.audit`."""
    for room in pkgutil.iter_modules(attnlaw.__path__, "attnlaw."):
        if room.name != "attnlaw.__main__":
            import_module(room.name)
    for name in VERBS:
        assert isinstance(getattr(attnlaw, name), Verb)
    assert attnlaw.learn(alpha=0.2).estimation_error.value > 0
    assert attnlaw.limit(width=8, draws=100).output_variance.value > 0
    assert attnlaw.audit("examples/tiny-decoder", only="qk").matrices.height == 16
    assert attnlaw.fit("examples/tiny-decoder", layers="0", only="qk").matrices.height == 4
    assert attnlaw.init("gpt2", tokens=2, draws=2).draws == 2
    assert attnlaw.lens("examples/tiny-decoder", ids=[84]).reconstruction_error < 1e-10


@pytest.mark.parametrize("name", OLD_NAMES)
def test_a_name_of_the_last_version_is_there_or_says_where(name: str) -> None:
    """What an error does not lead to in one step, a line of the page has."""
    if f"`{name}`" in PAGE:
        return
    try:
        found(name)
    except ImportError as error:
        old, _, new = str(error).partition(" is now ")
        found(name.replace(old, new, 1))


def test_every_moved_name_leads_to_one_that_is_there_and_stands_on_the_page() -> None:
    for old, new in MOVED.items():
        assert f"`{old}`" in PAGE, old
        assert f"`{new}`" in PAGE, new
        if " " not in new:
            found(new)
            with pytest.raises(ImportError, match=f"^{old} is now {new}$"):
                import_module(old) if old == "attnlaw.lens" else found(old)
    with pytest.raises(AttributeError, match="has no attribute 'Stock'"):
        _ = attnlaw.Stock
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'attnlaw\.aims'$"):
        import_module("attnlaw.aims")
