"""The packages that draw figures: Altair describes a chart, and vl-convert draws it. They are an extra.

Files that make charts take `alt` from here, which imports Altair at its first use. Without the packages, such
a file can still be imported, and a `Figure` still has its title and its caption. Only drawing it fails.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from attnlaw.core.errors import require_extra

__all__ = ["INSTALL", "PACKAGES", "alt", "has_packages", "require_packages", "warn_without_packages"]

EXTRA = "charts"
PACKAGES = ("altair", "vl_convert")
INSTALL = f"pip install 'attnlaw[{EXTRA}]'"


class _Altair:
    """Altair's module, imported when a chart first uses it."""

    def __getattr__(self, name: str) -> Any:
        with require_extra("a figure", EXTRA):
            import altair
        return getattr(altair, name)


if TYPE_CHECKING:
    import altair as alt
else:
    alt = _Altair()


def missing_packages() -> list[str]:
    return [name for name in PACKAGES if find_spec(name) is None]


def has_packages() -> bool:
    """Return whether the packages that draw figures are installed. They are not imported."""
    return not missing_packages()


def require_packages(what: str = "a figure") -> None:
    """Raise an `InputError` that names the extra to install if a package that draws is missing."""
    with require_extra(what, EXTRA):
        for name in missing_packages():
            raise ModuleNotFoundError(name=name)


@cache
def warn_without_packages() -> None:
    """Log a warning that the pages have no figures. A process logs this warning only once."""
    logging.getLogger("attnlaw").warning(
        "attnlaw: warning: the page has no figures, because %s is not installed; to draw them, type %s and "
        "then attnlaw report DIR",
        missing_packages()[0],
        INSTALL,
    )
