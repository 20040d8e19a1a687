"""The names of the laws that a matrix may follow, and the columns of the tables of fits.

`attnlaw.analysis.fit.describe` decides which law a matrix follows. "learned" is the law of trained attention
(arXiv 2509.24914), which is an extension on real heads. "heavy-tailed" is the high-temperature
Marchenko-Pastur law (arXiv 2506.03470).

| table | one row for each |
|---|---|
| `FITS` | matrix, with the parameters and the tests of every law |
| `CURVES` | density that a page draws over spectra: the null of a shape, or the law of a matrix |
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.analysis.columns import LOCATION, NULL_DRAWS, OUTLIERS, P_VALUE, VERSION, Count, Text
from attnlaw.core.quantity import Quantity
from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class LawLabel:
    """The name of a law that a matrix may follow, and how tables and charts show it.

    `letter` and `style` are its letter and colour in the terminal's map of heads. `colour` is its position in
    the palette of charts.
    """

    name: str
    letter: str
    colour: int
    style: str
    description: str

    @property
    def column(self) -> str:
        """The name of the column that counts the matrices of this law."""
        return f"{self.name.replace(' ', '_').replace('-', '_')}_count"


LAWS = by_name(
    LawLabel(
        *("random", "r", 7, "bright_black"),
        description="looks like random numbers of this shape, as at initialisation",
    ),
    LawLabel(
        *("learned", "L", 2, "green"),
        description="some directions were learned, and the others are zero, as theory predicts "
        "for trained attention",
    ),
    LawLabel(
        *("heavy-tailed", "H", 1, "red"),
        description="the singular values fall off smoothly and spread further than those of a random matrix",
    ),
    LawLabel(
        *("power-law tail", "P", 5, "yellow"),
        description="no law fits the whole spectrum, but the largest values (at most half) follow a "
        "power law",
    ),
    LawLabel(
        *("power-law spectrum", "S", 4, "magenta"),
        description="no law fits the whole spectrum, but a power law fits more than half of the values",
    ),
    LawLabel(
        *("neither", "\N{MIDDLE DOT}", 0, "default"),
        description="the matrix differs from random numbers, and none of the other laws fits it",
    ),
)

FITS = (
    *LOCATION,
    Count("rows", "number of rows of the matrix"),
    Count("cols", "number of columns of the matrix"),
    Count("values", "number of singular values that the fits use"),
    Text(
        "law",
        "kind of distribution (law) that describes the spectrum of the matrix",
        display_name="fitted distribution (law)",
        choices=LAWS,
    ),
    P_VALUE,
    Quantity(
        "wasserstein",
        "distance of the spectrum from that of random matrices of this shape, relative to the "
        "root mean square singular value; 0 means equal",
        "W₁",
        display_name="distance to random",
    ),
    OUTLIERS,
    Text("null_shape", "shape of the random matrices, under which curves.parquet has their spectrum"),
    NULL_DRAWS,
    Quantity("null_scale", "standard deviation of the entries of the random matrices that fit best"),
    Quantity(
        "null_edge",
        "edge of the random spectrum: only one random matrix in a hundred has a singular value above it",
    ),
    Quantity("edge_scale", "spread of the largest singular value among random matrices (Tracy-Widom scale)"),
    Quantity(
        "alpha",
        "exponent of the power law of the largest eigenvalues (squared singular values); a smaller "
        "exponent means a heavier tail",
        display_name="exponent α",
        error=True,
    ),
    Quantity(
        "alpha_p_value",
        "p-value of the power law (bootstrap); a power law with a p-value below 0.1 is rejected",
        display_name="p-value of the power law",
    ),
    Quantity("x_min", "eigenvalue (squared singular value) above which the power law holds"),
    Count("tail_size", "number of eigenvalues that the power law covers"),
    Quantity(
        "tail_share",
        "share of the eigenvalues that the power law covers; above one half, the fit is not called a tail",
        display_name="share under the power law",
    ),
    Quantity(
        "lognormal_better",
        "whether a lognormal distribution fits the tail significantly better than the power law",
        kind="bool",
    ),
    Quantity("hill", "Hill's estimate of the power-law exponent, from the upper half of the eigenvalues"),
    Quantity(
        "kappa",
        "parameter of the heavy-tailed distribution (law): small for heavy tails, 2.3 to 3.4 for "
        "a random square head, hundreds or infinite for a random matrix",
        "κ",
        range=True,
    ),
    Quantity(
        "noise_level",
        "noise level in the fitted theory of trained heads (learned law), in units of singular "
        "values; null if not determined",
    ),
    Quantity(
        "noise_low",
        "smallest noise level at which the theory of trained heads (learned law) still fits "
        "about equally well",
    ),
    Quantity(
        "noise_high",
        "largest noise level at which the theory of trained heads (learned law) still fits about "
        "equally well",
    ),
    Quantity(
        "threshold",
        "amount by which weight decay shrinks eigenvalues in the fitted theory of trained heads "
        "(learned law); null if not determined",
        "b",
        range=True,
    ),
    Quantity(
        "rank_fraction",
        "numerical rank of the matrix / length of its shorter side",
        "ρ",
    ),
    Quantity(
        "target_rank",
        "rank of the matrix to learn, divided by the width, in the fitted theory of trained "
        "heads (learned law); null if not determined",
        "κ₀",
        range=True,
    ),
    Quantity(
        "cut_ratio",
        "cause of the low rank in the fitted theory of trained heads: 1 for weight decay, below "
        "1 for the head size (shrinkage b / cut t)",
        range=True,
    ),
    Quantity(
        "learned_distance",
        "relative distance between the spectrum and the fitted theory of trained heads (learned law)",
    ),
    Quantity(
        "untied_distance",
        "relative distance between the spectrum and the fitted theory of trained heads with "
        "separate Q and K (untied learned law)",
    ),
    Quantity(
        "untied_fits",
        "whether the theory of trained heads with separate Q and K (untied learned law) fits",
        kind="bool",
    ),
    Quantity(
        "untied_cut_ratio",
        "cause of the low rank in the theory with separate Q and K: 1 for weight decay, below 1 "
        "for the head size",
        range=True,
    ),
    Quantity(
        "ks_random",
        "largest difference between the cumulative spectrum and that of random matrices (Kolmogorov-Smirnov)",
    ),
    Quantity(
        "ks_tail", "largest difference between the cumulative tail and the power law (Kolmogorov-Smirnov)"
    ),
    Quantity(
        "ks_heavy_tailed",
        "largest difference between the cumulative spectrum and the heavy-tailed distribution "
        "(Kolmogorov-Smirnov)",
    ),
    Quantity(
        "ks_learned",
        "largest difference between the cumulative spectrum and the fitted theory of trained "
        "heads (Kolmogorov-Smirnov)",
    ),
    Quantity(
        "ks_untied",
        "largest difference between the cumulative spectrum and the theory of trained heads with "
        "separate Q and K (Kolmogorov-Smirnov)",
    ),
    Quantity("log_likelihood_random", "mean log-likelihood of the eigenvalues if the matrix were random"),
    Quantity(
        "log_likelihood_heavy_tailed",
        "mean log-likelihood of the eigenvalues under the heavy-tailed distribution",
    ),
    Quantity(
        "log_likelihood_learned",
        "mean log-likelihood of the eigenvalues under the fitted theory of trained heads (learned law)",
    ),
    Quantity("seed", "seed of the random matrices and of the bootstrap", kind="int"),
    Text("status", "result of the fit: done, or not fitted"),
    Text("remark", "names of the missing numbers, with the reason"),
    VERSION,
)

CURVES = (
    Text(
        "curve",
        'spectrum that the curve shows: "null" for random matrices, "law" for the distribution '
        "fitted to a matrix",
    ),
    Text("null_shape", "shape of the random matrices"),
    *LOCATION,
    Text("law", "name of the fitted distribution (law) whose density the curve shows"),
    Quantity(
        "x", "singular values of the curve; multiply those of random matrices by null_scale", kind="floats"
    ),
    Quantity(
        "density",
        "probability density over the nonzero singular values, with area 1; the area under a "
        "tail is the share that it covers",
        kind="floats",
    ),
)
