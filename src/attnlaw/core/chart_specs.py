"""Charts as plain records: a verb says what it wants drawn of its rows and tables, the report draws it.

Columns are named as in rows; with `table` they are those of that table of the verb. Titles of axes and
legends come from `Verb.label` and from the variants (`label`, and `colour`, a place in the palette). A chart
whose columns are empty, or whose axes have one value, is left out. What else varied makes lines or, where the
lines are told apart by something already, a chart each.

`fallback_for` names the chart that this one replaces if that one cannot be drawn. `on_page=False`: for a
paper alone, because the page shows the same and lets a reader choose.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

# What the file of a figure may end in; `choices` of a setting.
ENDINGS = dict.fromkeys(("pdf", "svg", "png"))


@dataclass(frozen=True)
class _Chart:
    name: str
    title: str
    _: KW_ONLY
    caption: str = ""
    table: str | None = None
    fallback_for: str | None = None
    on_page: bool = True


@dataclass(frozen=True, kw_only=True)
class Curves(_Chart):
    """Lines of `y` over `x`, one for each value of `by`, one column or several (or for each setting of what
    else varied).

    Rows that repeat a setting are averaged, with one standard error. `points` names the setting of the verb
    beside it that tells its sizes: its rows are drawn over the lines. `thresholds` are quantities that are
    places on the x axis; `clean` names a setting, and those that hold only where it is 0. `needs`: rows
    without this column are left out. `log`: both axes are logarithmic, `log_x`: the x axis; `slope` is that
    of a guide through the last point.
    """

    x: str
    y: str
    by: str | tuple[str, ...] | None = None
    points: str | None = None
    thresholds: tuple[str, ...] = ()
    clean: tuple[str, tuple[str, ...]] | None = None
    needs: str | None = None
    log: bool = False
    log_x: bool = False
    slope: int | None = None

    @property
    def line_columns(self) -> list[str]:
        """The columns that tell its lines apart."""
        return [self.by] if isinstance(self.by, str) else list(self.by or ())


@dataclass(frozen=True, kw_only=True)
class Cells(_Chart):
    """A map: `colour` (a number, or the name of a variant) over `x` and `y`; several columns share one scale.

    An axis of several columns (`head` and `expert`) has whichever are there. One panel for each value of
    `panel`, which has a scale of its own. Where both axes are numbers they must be evenly spaced. `lines` are
    quantities that are places on the y axis. `scale` is that of the colours ("linear", "sqrt", "log"),
    `domain` its ends, `legend` its title where several columns share it. `tooltip_columns`: columns that a
    cell tells under the pointer.
    """

    x: str | tuple[str, ...]
    y: str | tuple[str, ...]
    colour: tuple[str, ...]
    panel: str | None = None
    lines: tuple[str, ...] = ()
    scale: str = "linear"
    domain: tuple[float, float] | None = None
    legend: str = ""
    tooltip_columns: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bars(_Chart):
    """Stacked bars over `x`, a colour for each of the columns `parts`, a panel for each value of `panel`."""

    x: str
    parts: tuple[str, ...]
    panel: str | None = None


@dataclass(frozen=True, kw_only=True)
class Dots(_Chart):
    """A line of dots for each of the columns `values`, on one axis titled `axis`; a colour by `by`."""

    values: tuple[str, ...]
    axis: str
    by: str


@dataclass(frozen=True, kw_only=True)
class Density(_Chart):
    """Lines of density over `x`, of a table, one for each value of `by`; a chart for each other setting.

    `panel`: a panel for each of its values. `detail`: a column that tells the pieces of a line apart.
    `ratio`: a column that is drawn beside them. `guide`: a column of other densities, and how the one at the
    largest value of `by` is called. `bars`: the table of the verb beside it, and its column,
    whose histogram stands behind the line; `sizes` its setting that tells their sizes. `atom` is the quantity
    that is the weight at zero, `outliers` one of places beyond the line.
    """

    x: str
    y: str = "density"
    by: str | None = None
    panel: str | None = None
    detail: str | None = None
    ratio: str | None = None
    guide: tuple[str, str] | None = None
    bars: tuple[str, str] | None = None
    sizes: str | None = None
    atom: str | None = None
    outliers: str | None = None


@dataclass(frozen=True, kw_only=True)
class CustomChart(_Chart):
    """A chart that is like no other: the function at `draw` ("module:function") makes figures of a source.

    It is called with this record and an `attnlaw.render.charts.data.ChartData` and yields `Figure`s.
    """

    draw: str


Chart = Curves | Cells | Bars | Dots | Density | CustomChart
