"""Every public name can be imported, and is what its module calls it."""

import attnlaw


def test_every_public_name_is_there():
    for name in attnlaw.__all__:
        value = getattr(attnlaw, name)
        assert name == "__version__" or value.__name__ == name
    assert set(attnlaw.__all__) == set(dir(attnlaw))
