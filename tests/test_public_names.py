"""Every public name can be imported, and is what its module calls it."""

import attnlaw
from attnlaw.base.declare import Verb


def test_every_public_name_is_there():
    for name in attnlaw.__all__:
        value = getattr(attnlaw, name)
        called = value.name if isinstance(value, Verb) else getattr(value, "__name__", "__version__")
        assert called == name
    assert set(attnlaw.__all__) == set(dir(attnlaw))
