"""Charts of results in hand, for a notebook: Altair's own, drawn without a network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from attnlaw.core.errors import InputError
from attnlaw.core.verb import Verb
from attnlaw.render.charts.style import draw_svg, house_spec
from attnlaw.report.write import figures_of_results


def plot(verb: Verb[Any, Any], pairs: Sequence[tuple[Any, Any]], name: str | None = None) -> Any:
    """The figure of a name, or the first, of cases and their results."""
    drawn = {figure.name: figure for figure in figures_of_results([(verb, pairs)])}
    if not drawn:
        raise InputError(f"{verb.name}: nothing can be drawn of this; ask for several cases, or for a table")
    if name is not None and name not in drawn:
        raise InputError(f"{verb.name}: found no chart {name!r}; expected one of {', '.join(drawn)}")
    chart = drawn[name or next(iter(drawn))].draw()
    object.__setattr__(
        chart, "__class__", _offline_class(chart.__class__)
    )  # Altair takes attributes for its own
    return chart


@cache
def _offline_class(kind: type) -> type:
    """The same kind of chart, which a notebook shows as a drawing instead of as a script from a network."""

    def shown(self: Any, *_: Any, **__: Any) -> dict[str, str]:
        return {"image/svg+xml": draw_svg(house_spec(self))}

    return type(kind.__name__, (kind,), {"_repr_mimebundle_": shown, "__module__": kind.__module__})
