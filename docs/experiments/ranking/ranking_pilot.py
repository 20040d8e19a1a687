"""What an earlier pilot found, beside this study: another implementation, one training set for all digits.

Values are tau with the gap, one for each seed, with a jackknife error where the pilot gave one.
"""

from __future__ import annotations

import polars as pl
from ranking_measures import MEASURES
from ranking_table import Agreement

PILOT = {
    "mean_log_distance": {"digits": ".71(2), .75(2)", "mod": ".67(8), .78(5)", "bytes": ".28(24)"},
    "median_distance": {"digits": ".71(2), .76(2)", "mod": ".68(8), .73(6)", "bytes": ".28(25)"},
    "unscaled_distance": {"digits": ".59(4), .62(3)", "mod": "-.23(7), -.34(6)", "bytes": ".35(17)"},
    "unsure": {"digits": ".51(4), .54(4)", "mod": ".27(15), .25(16)", "bytes": "-.07(22)"},
    "margin": {"digits": ".35, .40", "mod": "-.08, -.07", "bytes": ".02"},
    "kappa": {"digits": ".67(3), .71(3)", "mod": ".59(10), .71(7)", "bytes": ".15(26)"},
    "frobenius_squared": {"digits": "-.10, -.11", "mod": ".43, .53", "bytes": "-.03"},
    "mean_log_norm": {"digits": ".16, .17", "mod": ".53, .59", "bytes": ".10"},
    "stable_rank": {"digits": "-.25, -.25", "mod": ".47, .49", "bytes": ".00"},
    "tail_exponent": {"digits": "-.22(6), -.22(6)", "mod": ".39(11), .38(11)", "bytes": ".05(20)"},
    "log10_worst_case": {"digits": "-.05, -.03", "mod": ".39, .53", "bytes": ".22"},
    "log10_spectrum_adaptive": {"digits": "-.14, -.16", "mod": ".31, .42", "bytes": "-.17"},
    "log10_fixed_p_2": {"digits": "-.10, -.09", "mod": ".38, .48", "bytes": ".13"},
    "log10_edelman": {"digits": "-.08, -.07", "mod": ".37, .48", "bytes": ".20"},
}


def beside_the_pilot(agreements: pl.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Titles and lines of a table: for each whole family the pilot's values, then those found here."""
    agreements = agreements.filter(~pl.col("column").str.contains(","))
    here = agreements["column"].str.split(" ").list.first()
    families = [name for name in ("digits", "mod", "bytes") if name in set(here)]
    lines = []
    for measure in (entry for entry in MEASURES if entry.name in PILOT and families):
        cells = []
        for family in families:
            of_measure = agreements.filter(here == family, measure=measure.name)
            taus = of_measure.select("tau", "error", "pairs", "tied").iter_rows()
            cells += [PILOT[measure.name][family], ", ".join(str(Agreement(*row)) for row in taus)]
        lines.append([measure.label, *cells])
    titles = [f"{family}, {which}" for family in families for which in ("pilot", "here")]
    return ["tau with the gap", *titles], lines
