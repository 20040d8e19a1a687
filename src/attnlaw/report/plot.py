"""Charts of results in hand, for a notebook: Altair's own, drawn without a network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from attnlaw.base.declare import Verb
from attnlaw.base.errors import InputError
from attnlaw.report.style import drawn_svg, house_spec
from attnlaw.report.write import figures_in_hand


def plot(verb: Verb[Any, Any], pairs: Sequence[tuple[Any, Any]], name: str | None = None) -> Any:
    """The figure of a name, or the first, of cases and their results."""
    drawn = {figure.name: figure for figure in figures_in_hand([(verb, pairs)])}
    if not drawn:
        raise InputError(f"{verb.name}: nothing can be drawn of this; ask for several cases, or for a table")
    if name is not None and name not in drawn:
        raise InputError(f"{verb.name}: found no chart {name!r}; expected one of {', '.join(drawn)}")
    chart = drawn[name or next(iter(drawn))].draw()
    object.__setattr__(chart, "__class__", _offline(chart.__class__))  # Altair takes attributes for its own
    return chart


@cache
def _offline(kind: type) -> type:
    """The same kind of chart, which a notebook shows as a drawing instead of as a script from a network."""

    def shown(self: Any, *_: Any, **__: Any) -> dict[str, str]:
        return {"image/svg+xml": drawn_svg(house_spec(self))}

    return type(kind.__name__, (kind,), {"_repr_mimebundle_": shown, "__module__": kind.__module__})
