"""The names of the laws that a matrix may follow, and the columns of the tables of fits.

`attnlaw.analysis.fit.describe` decides which law a matrix follows.

| table | one row for each |
|---|---|
| `FITS` | matrix, with the parameters and the tests of every law |
| `CURVES` | density that a page draws over spectra: the null of a shape, or the law of a matrix |
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.analysis.columns import LOCATION, NULL_DRAWS, OUTLIERS, P_VALUE, VERSION
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
        description="not to be told apart from Gaussian entries of this shape (a head: two such factors)",
    ),
    LawLabel(
        *("learned", "L", 2, "green"),
        description="the law of trained attention (arXiv 2509.24914), on real heads an extension",
    ),
    LawLabel(
        *("heavy-tailed", "H", 1, "red"),
        description="high-temperature Marchenko-Pastur (arXiv 2506.03470), with more tail than the null",
    ),
    LawLabel(
        *("power-law tail", "P", 5, "yellow"),
        description="the bulk follows none of these, the tail a power of exponent alpha",
    ),
    LawLabel(
        *("power-law spectrum", "S", 4, "magenta"),
        description="more than half of its values, hence no tail, follow a power of exponent alpha",
    ),
    LawLabel(*("neither", "\N{MIDDLE DOT}", 0, "default"), description="none of these fits"),
)

FITS = (
    *LOCATION,
    Quantity("rows", kind="small"),
    Quantity("cols", kind="small"),
    Quantity("values", "singular values that were fitted", kind="small"),
    Quantity("law", "the law that the matrix follows", kind="text", display_name="fitted law", choices=LAWS),
    P_VALUE,
    Quantity("wasserstein", "distance to the null's mean spectrum, normalised", "W₁"),
    OUTLIERS,
    Quantity("null_shape", "names the null's row among the curves", kind="text"),
    NULL_DRAWS,
    Quantity("null_scale", "in units of singular values"),
    Quantity("null_edge", "in units of singular values"),
    Quantity("edge_scale", "in units of singular values"),
    Quantity(
        "alpha", "exponent of the power law of the upper eigenvalues", display_name="exponent α", error=True
    ),
    Quantity("alpha_p_value", "of the power law, by bootstrap", display_name="p-value, power law"),
    Quantity("x_min", "the eigenvalue (a squared singular value) where the power law begins"),
    Quantity("tail_size", "eigenvalues that the power law covers", kind="small"),
    Quantity(
        "tail_share", "of all eigenvalues: what the power law covers", display_name="share of power law"
    ),
    Quantity("lognormal_better", "whether a lognormal tail is significantly better", kind="bool"),
    Quantity("hill", "Hill's estimate of the exponent over the upper half"),
    Quantity("kappa", "of the high-temperature Marchenko-Pastur law; small is heavy-tailed", "κ", range=True),
    Quantity("noise_level", "of the learned law, in units of singular values; null where not identified"),
    Quantity("noise_low", "least noise of laws that fit about as well"),
    Quantity("noise_high", "largest noise of laws that fit about as well"),
    Quantity("threshold", "of the learned law, in units of singular values", "b", range=True),
    Quantity("rank_fraction", "values above round-off over the shorter side", "ρ"),
    Quantity("target_rank", "of the learned law", "κ₀", range=True),
    Quantity(
        "cut_ratio",
        "b/t of the learned law: the rank was cut by weight decay (1) or by width (below 1)",
        range=True,
    ),
    Quantity("learned_distance", "relative distance of quantiles to the learned law"),
    Quantity("untied_distance", "to the learned law of untied factors"),
    Quantity("untied_fits", "whether spectra drawn from the untied law lie as far from it", kind="bool"),
    Quantity("untied_cut_ratio", "b/t of the untied law", range=True),
    Quantity("ks_random", "Kolmogorov-Smirnov distance to the null"),
    Quantity("ks_tail", "to the power law, over the tail"),
    Quantity("ks_heavy_tailed", "to the heavy-tailed law"),
    Quantity("ks_learned", "to the learned law"),
    Quantity("ks_untied", "to the learned law of untied factors"),
    Quantity("log_likelihood_random", "mean over the eigenvalues"),
    Quantity("log_likelihood_heavy_tailed", "mean over the eigenvalues"),
    Quantity("log_likelihood_learned", "mean over the eigenvalues"),
    Quantity("seed", "of the nulls and of the bootstrap", kind="int"),
    Quantity("status", "done, or not fitted", kind="text"),
    Quantity("remark", "what is missing of which law, and why", kind="text"),
    VERSION,
)

CURVES = (
    Quantity("curve", '"null": of a shape, no matrix, at scale 1; "law": of a matrix', kind="text"),
    Quantity("null_shape", "the shape of a null", kind="text"),
    *LOCATION,
    Quantity("law", "the law whose density it is", kind="text"),
    Quantity("x", "singular values; of a null to be read as x times null_scale", kind="floats"),
    Quantity("density", "of mass one over values that are not zero (a tail: of its share)", kind="floats"),
)
