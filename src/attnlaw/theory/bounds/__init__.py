"""Post hoc generalization proxies of a trained network, from its spectra: the table of them.

A bound is an entry here: rows, JSON, tables, pages and the monitor take their names from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class Bound:
    """A leading complexity factor of a network.

    `norm` is the norm of each matrix that a norm-based one sums, `index` the Schatten index that all matrices
    share; the others choose an index for each. `headline`: it heads a page. `monitored`: it is followed
    during training.
    """

    name: str
    label: str
    short: str
    norm: str | None = None
    index: int | None = None
    headline: bool = False
    monitored: bool = False


BOUNDS = by_name(
    Bound(
        "spectrum_adaptive",
        "spectrum-adaptive (post hoc p per matrix)",
        "spectrum-adaptive",
        headline=True,
        monitored=True,
    ),
    Bound(
        "spectrum_adaptive_continuous", "spectrum-adaptive, continuous p (ours)", "spectrum-adaptive, any p"
    ),
    Bound("fixed_p_0", "one index for all, p = 0", "p = 0 for all", index=0),
    Bound("fixed_p_1", "one index for all, p = 1", "p = 1 for all", index=1),
    Bound("fixed_p_2", "one index for all, p = 2", "p = 2 for all", index=2),
    Bound(
        "edelman",
        "norm-based, Edelman (2,1)",
        "norm-based (2,1)",
        norm="norm_21",
        headline=True,
        monitored=True,
    ),
    Bound(
        "trauger_tewari",
        "norm-based, Trauger-Tewari (1,1)",
        "norm-based (1,1)",
        norm="norm_11",
        monitored=True,
    ),
)
