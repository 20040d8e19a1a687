"""The version, read where it stands alone."""

from __future__ import annotations


def version() -> str:
    from attnlaw import __version__

    return __version__
