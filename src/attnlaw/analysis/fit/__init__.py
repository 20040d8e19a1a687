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
        """The name of the column with the number of matrices that follow this law."""
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
        description="the matrix differs from random numbers, and none of the laws fits it (which is not a "
        "problem)",
    ),
)

FITS = (
    *LOCATION,
    Count("rows", "number of rows of the matrix"),
    Count("cols", "number of columns of the matrix"),
    Count("values", "number of singular values that the distributions were fitted to"),
    Text(
        "law",
        "name of the distribution (law) that describes the singular values of the matrix",
        display_name="fitted distribution (law)",
        choices=LAWS,
    ),
    P_VALUE,
    Quantity(
        "wasserstein",
        "distance between the singular values and those of random matrices (Wasserstein), relative "
        "to their root mean square; 0 means equal",
        "W₁",
        display_name="distance to random",
    ),
    OUTLIERS,
    Text(
        "null_shape",
        "shape of the random matrices; rows of curves.parquet with this shape have their density",
    ),
    NULL_DRAWS,
    Quantity(
        "null_scale",
        "standard deviation of the entries of those random matrices whose singular values fit best",
    ),
    Quantity(
        "null_edge",
        "largest singular value that a random matrix of this shape has, except in 1% of draws",
    ),
    Quantity(
        "edge_scale",
        "how much the largest singular value varies between random matrices (Tracy-Widom scale)",
    ),
    Quantity(
        "alpha",
        "exponent α of the power law x^−α of the largest eigenvalues (squared singular values); "
        "smaller means a heavier tail",
        display_name="exponent α",
        error=True,
    ),
    Quantity(
        "alpha_p_value",
        "p-value of the power law from a bootstrap test; below 0.1, the tail is not a power law",
        display_name="p-value of the power law",
    ),
    Quantity("x_min", "smallest eigenvalue (squared singular value) that the power law covers"),
    Count("tail_size", "number of eigenvalues that the power law covers"),
    Quantity(
        "tail_share",
        "share of the eigenvalues that the power law covers; above 50%, attnlaw does not call it a tail",
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
        "shape parameter κ of the heavy-tailed law: small means heavy tails (product of two random "
        "matrices: about 3; one random matrix: hundreds)",
        "κ",
        range=True,
    ),
    Quantity(
        "noise_level",
        "noise level in the fitted law of trained heads, on the scale of the singular values; null "
        "if not determined",
    ),
    Quantity(
        "noise_low",
        "smallest noise level with which the law of trained heads fits nearly as well as with the best one",
    ),
    Quantity(
        "noise_high",
        "largest noise level with which the law of trained heads fits nearly as well as with the best one",
    ),
    Quantity(
        "threshold",
        "amount that weight decay subtracts from every eigenvalue, according to the fitted law of "
        "trained heads; null if not determined",
        "b",
        range=True,
    ),
    Quantity(
        "rank_fraction",
        "rank of the matrix divided by its shorter side: 1 for full rank",
        "ρ",
    ),
    Quantity(
        "target_rank",
        "rank of the matrix that the head had to learn, divided by the width, according to the "
        "fitted law; null if not determined",
        "κ₀",
        range=True,
    ),
    Quantity(
        "cut_ratio",
        "what limits the rank, according to the fitted law of trained heads: 1 means weight decay, "
        "below 1 the head size",
        range=True,
    ),
    Quantity(
        "learned_distance",
        "relative distance between the singular values and the fitted law of trained heads; 0 means equal",
    ),
    Quantity(
        "untied_distance",
        "relative distance between the singular values and the fitted law of heads with separate Q "
        "and K (untied); 0 means equal",
    ),
    Quantity(
        "untied_fits",
        "whether the law of trained heads with separate Q and K (untied) fits the singular values",
        kind="bool",
    ),
    Quantity(
        "untied_cut_ratio",
        "what limits the rank, according to the law of heads with separate Q and K: 1 means weight "
        "decay, below 1 the head size",
        range=True,
    ),
    Quantity(
        "ks_random",
        "largest difference between the cumulative distributions of this spectrum and of random "
        "matrices (Kolmogorov-Smirnov)",
    ),
    Quantity(
        "ks_tail",
        "largest difference between the cumulative distributions of the tail and of the power law "
        "(Kolmogorov-Smirnov)",
    ),
    Quantity(
        "ks_heavy_tailed",
        "largest difference between the cumulative distributions of the spectrum and of the "
        "heavy-tailed law (Kolmogorov-Smirnov)",
    ),
    Quantity(
        "ks_learned",
        "largest difference between the cumulative distributions of the spectrum and of the law of "
        "trained heads (Kolmogorov-Smirnov)",
    ),
    Quantity(
        "ks_untied",
        "largest difference between the cumulative distributions of the spectrum and of the law of "
        "untied heads (Kolmogorov-Smirnov)",
    ),
    Quantity(
        "log_likelihood_random",
        "mean log-likelihood of the eigenvalues if the matrix were random; compare with the other laws",
    ),
    Quantity(
        "log_likelihood_heavy_tailed",
        "mean log-likelihood of the eigenvalues under the heavy-tailed law; higher means a better fit",
    ),
    Quantity(
        "log_likelihood_learned",
        "mean log-likelihood of the eigenvalues under the law of trained heads; higher means a better fit",
    ),
    Quantity("seed", "seed of the random matrices and of the bootstrap test", kind="int"),
    Text("status", "whether the laws were fitted: done, or not fitted"),
    Text("remark", "numbers that are missing, with the reason"),
    VERSION,
)

CURVES = (
    Text(
        "curve",
        'what the curve shows: "null" for random matrices, "law" for the law that was fitted to a matrix',
    ),
    Text("null_shape", "shape of the random matrices"),
    *LOCATION,
    Text("law", "name of the fitted law whose density the curve shows"),
    Quantity(
        "x",
        "singular values at which the density is given (for random matrices: divided by null_scale)",
        kind="floats",
    ),
    Quantity(
        "density",
        "probability density of the nonzero singular values; the area is 1 (for a tail: the share of "
        "values in the tail)",
        kind="floats",
    ),
)
