"""Every public name can be imported, and no room hides a verb."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import attnlaw
from attnlaw.core.verb import Verb
from attnlaw.verbs import VERBS


def test_every_public_name_is_there() -> None:
    for name in attnlaw.__all__:
        value = getattr(attnlaw, name)
        assert name in ("__version__", *VERBS) or value.__name__ == name
    assert set(attnlaw.__all__) == set(dir(attnlaw))


@pytest.mark.slow
def test_importing_every_room_leaves_every_verb_a_function() -> None:
    """Importing a package sets the attribute of its name: a room `audit` would hide `attnlaw.audit`."""
    for room in pkgutil.iter_modules(attnlaw.__path__, "attnlaw."):
        if room.name != "attnlaw.__main__":
            import_module(room.name)
    for name in VERBS:
        assert isinstance(getattr(attnlaw, name).verb, Verb)
    assert attnlaw.learn(alpha=0.2).estimation_error.value > 0
    assert attnlaw.limit(width=8, draws=100).output_variance.value > 0
    assert attnlaw.audit("examples/tiny-decoder", only="qk").matrices.height == 16
    assert attnlaw.fit("examples/tiny-decoder", layers="0", only="qk").fits.height == 4
    assert attnlaw.init("gpt2", tokens=2, draws=2).record.draws == 2
    assert attnlaw.lens("examples/tiny-decoder", ids=[84]).reconstruction_error < 1e-10


def test_a_name_that_there_never_was_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Stock'"):
        _ = attnlaw.Stock
