"""The table of all generalization proxies that attnlaw computes from the spectra of a trained network.

A proxy is the leading factor of a generalization bound, without constants. `BOUNDS` lists all proxies. Rows,
JSON, tables, pages and the training monitor take their names from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class Bound:
    """A generalization proxy: its names, and the norm or Schatten index p that it uses."""

    name: str  # in results, as `log10_NAME`
    label: str
    short: str  # for charts and narrow tables
    norm: str | None = None  # attribute of `Spectrum` that a norm-based proxy sums over matrices
    index: int | None = None  # Schatten index that all matrices share; None: chosen for each, or norm-based
    headline: bool = False  # whether pages show the proxy at the top
    monitored: bool = False  # whether the training monitor tracks it


BOUNDS = by_name(
    Bound(
        "spectrum_adaptive",
        "spectrum-adaptive, best exponent p for each matrix",
        "spectrum-adaptive",
        headline=True,
        monitored=True,
    ),
    Bound(
        "spectrum_adaptive_continuous",
        "spectrum-adaptive, any real exponent p (our extension)",
        "spectrum-adaptive, any p",
    ),
    Bound("fixed_p_0", "same exponent for all matrices, p = 0", "p = 0 for all", index=0),
    Bound("fixed_p_1", "same exponent for all matrices, p = 1", "p = 1 for all", index=1),
    Bound("fixed_p_2", "same exponent for all matrices, p = 2", "p = 2 for all", index=2),
    Bound(
        "edelman",
        "norm-based, (2,1) norms of Edelman",
        "norm-based (2,1)",
        norm="norm_21",
        headline=True,
        monitored=True,
    ),
    Bound(
        "trauger_tewari",
        "norm-based, (1,1) norms of Trauger and Tewari",
        "norm-based (1,1)",
        norm="norm_11",
        monitored=True,
    ),
)
