"""The columns of an audit's tables, in their order.

| table | one row for each |
|---|---|
| `MATRICES` | matrix |
| `SPECTRA` | matrix, with all its singular values |
| `LAYERS` | layer |
| `APPLICATIONS` | application of a layer, if layers are shared |
| `TOWERS` | tower, if there are several |
| `ATLAS` | number in which the model is compared with the models of the atlas |
| `FINDINGS` | finding of a detector in `attnlaw.analysis.findings` |

`attnlaw.analysis.fit` has the columns of fitted laws.

A missing value is null. A feed-forward matrix has no `head` and no `inner`. A matrix that every token passes
has no `expert`. Errors are null if nothing is approximate, sampled or computed in float32. An exact
spectrum has errors too if its gamma or alpha contains the norm of an approximate one. The singular values of
an approximate spectrum are null. Logarithms are to base 10.

Columns that end in `_applied` describe the matrix as the model applies it. The gain of the norm layer before
it is folded in, and the mean is projected out if that norm subtracts it. They are null if attnlaw does not
know that norm layer. All other columns describe the stored matrix. If an applied spectral norm has an error,
the true norm exceeds the value by more than the error in only 1 of 1000 cases.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from attnlaw.checkpoints.network import KINDS, MatrixLocation
from attnlaw.core.quantity import Quantity
from attnlaw.theory.bounds import BOUNDS

Count, Text = partial(Quantity, kind="small"), partial(Quantity, kind="text")
LEVELS = ("note", "warning", "error")  # levels of findings, the gravest last
LOCATION = (
    Text("model", "name of the model"),
    Count("layer", "index of the layer, counting from 0"),
    Text(
        "stack",
        "part of the model that the matrix belongs to, such as encoder or decoder, if there are several",
    ),
    Count("head", "index of the attention head, counting from 0"),
    Count("expert", "index of the expert (in a mixture of experts), counting from 0"),
    Text(
        "kind",
        "kind of weight matrix, such as qk (query-key), vo (value-output) or ffn_in (feed-forward)",
        choices=KINDS,
    ),
)
VERSION = Text("attnlaw_version", "version of attnlaw that computed the row")
IMBALANCE = Quantity(
    "factor_imbalance",
    "how unequal in size the two factors of an attention head are: 0 if balanced, up to 1",
)
# The null test has the same columns in the tables of matrices and of fits.
P_VALUE = Quantity(
    "random_p_value",
    "p-value of the hypothesis that the matrix is random; small means that training changed it "
    "(missing for latent attention)",
    display_name="p-value against random matrices",
    log=True,
)
OUTLIERS = Count(
    "outliers",
    "number of singular values above the largest that a random matrix of this shape has",
    display_name="strong directions",
)
NULL_DRAWS = Count(
    "null_draws", "number of random matrices that this matrix was compared with, to compute the p-value"
)
ALPHA = Quantity(
    "log10_alpha",
    "log10 of the largest factor by which later layers can amplify a change in this layer's "
    "output (without norm gains)",
    display_name="log₁₀ α",
    axis="amplification (log₁₀ α)",
    error=True,
)

MATRICES = (
    *LOCATION,
    Text("family", "model family, such as gpt2"),
    Quantity("tensors", "names of the tensors in the file that form the matrix", kind="texts"),
    Count("rows", "number of rows of the matrix"),
    Count("cols", "number of columns of the matrix"),
    Count("inner", "head size: number of entries of a head's queries and keys (for VO: of its values)", "d"),
    Quantity(
        "latent",
        "whether the two factors of a head are themselves products of two tensors (latent attention)",
        kind="bool",
    ),
    Quantity(
        "spectral_norm",
        "largest singular value of the stored matrix: the most by which the matrix can stretch an input",
        error=True,
        log=True,
    ),
    Quantity(
        "frobenius_norm",
        "Frobenius norm of the stored matrix: square root of the sum of its squared entries",
        display_name="Frobenius norm",
        error=True,
        log=True,
    ),
    Quantity("nuclear_norm", "nuclear norm: sum of the singular values of the matrix", error=True, log=True),
    Quantity("norm_21", "(2,1) norm: sum of the Euclidean norms of the columns of the matrix", log=True),
    Quantity(
        "norm_11", "(1,1) norm: sum of the absolute values of all entries of the matrix", error=True, log=True
    ),
    Quantity(
        "stable_rank",
        "stable rank: number of directions that carry most of the matrix (squared Frobenius norm "
        "divided by squared spectral norm)",
        error=True,
        log=True,
    ),
    Quantity(
        "effective_rank",
        "effective rank: number of directions that the matrix uses, including weak ones (from the "
        "entropy of its singular values)",
        error=True,
        log=True,
    ),
    Count(
        "numerical_rank",
        "rank of the matrix: number of singular values that are larger than rounding errors",
        error=True,
    ),
    Quantity(
        "condition",
        "condition number of the matrix: largest singular value divided by the smallest",
        error=True,
        log=True,
    ),
    Quantity(
        "spectral_norm_applied",
        "largest singular value of the matrix, including the gain of the norm layer before it",
        display_name="norm, gain included",
        axis="largest singular value, norm gain included",
        error=True,
        log=True,
    ),
    Quantity(
        "frobenius_norm_applied",
        "Frobenius norm of the matrix, including the gain of the norm layer before it",
        display_name="Frobenius norm, gain included",
        log=True,
    ),
    Quantity(
        "stable_rank_applied",
        "stable rank of a head's matrix, including the gain of the norm layer before it: number of "
        "directions that carry most of it",
        display_name="stable rank, gain included",
        log=True,
    ),
    Quantity(
        "logit_bound",
        "largest attention logit that any input can produce in the head; missing if no norm layer "
        "limits its inputs",
        log=True,
    ),
    Quantity(
        "logit_typical",
        "standard deviation of the head's attention logits that attnlaw expects for tokens in random "
        "directions",
        log=True,
    ),
    Quantity(
        "logit_probable",
        "value that all attention logits of 512 random tokens stay below, with a probability of 95%",
        log=True,
    ),
    Quantity(
        "frobenius_norm_over_initial",
        "how many times larger the matrix is than at initialisation (Frobenius norms); missing if "
        "config.json has no initial scale",
        display_name="size relative to the initial size",
        error=True,
        log=True,
    ),
    Quantity(
        "score_spread_over_initial",
        "how many times larger the head's typical attention logits are than at initialisation",
        display_name="logit spread relative to the initial spread",
        log=True,
    ),
    Quantity(
        "factor_excess",
        "how much larger (squared norm) a head's two factors are than their product needs: 0 at "
        "best, 0.1 for 10%",
        display_name="excess size of a head's two factors",
    ),
    Quantity(
        "factor_excess_weights",
        "how much larger (squared norm) a head's two factors are than their product needs, not "
        "counting the query bias",
        display_name="excess size of the two factors, no biases",
    ),
    Quantity(
        "factor_excess_null",
        "how much larger (squared norm) two random factors of this shape are than their product needs",
        display_name="excess size of random factors",
    ),
    IMBALANCE,
    Text(
        "gauge",
        "freedom to change a head's two factors but not its output: any invertible change (full), "
        "rotations of rotary planes (rotary), or none",
    ),
    Text(
        "route",
        "numerical method that computed the singular values: gram, svd, qr, cholesky, or lanczos "
        "(estimates only)",
    ),
    Text(
        "precision", "floating-point precision in which the singular values were computed: float32 or float64"
    ),
    P_VALUE,
    OUTLIERS,
    NULL_DRAWS,
    Quantity(
        "log10_gamma",
        "log10 of the sensitivity: largest change of the layer's output per unit of change in this matrix",
        "log₁₀ γ",
        error=True,
    ),
    ALPHA,
    Quantity(
        "log10_scale",
        "log10 of the factor that multiplies the matrix in the generalization proxy (sensitivity "
        "times amplification times depth)",
        display_name="log₁₀ γαL",
        error=True,
    ),
    Quantity(
        "p",
        "exponent p, from a grid in 0 to 2, that makes the matrix's part of the generalization proxy "
        "smallest",
        display_name="p*",
    ),
    Quantity(
        "log10_contribution",
        "log10 of the matrix's part of the generalization proxy, at its best exponent p",
        display_name="log₁₀ C(p*)",
        error=True,
    ),
    Quantity(
        "continuous_p",
        "exponent p, any real number in 0 to 2, that makes the matrix's part of the generalization "
        "proxy smallest",
    ),
    Quantity(
        "continuous_log10_contribution",
        "log10 of the matrix's part of the generalization proxy, at its best exponent p among all "
        "real numbers",
        error=True,
    ),
    Quantity(
        "log10_curve",
        "log10 of the matrix's part of the generalization proxy, at equally spaced exponents p from 0 to 2",
        kind="floats",
    ),
    Quantity(
        "share",
        "share of the model's spectrum-adaptive generalization proxy that comes from this matrix",
        display_name="share of the proxy",
        log=True,
    ),
    VERSION,
)

SPECTRA = (
    *LOCATION,
    Quantity("singular_values", "all singular values of the stored matrix, largest first", kind="floats"),
    Quantity(
        "singular_values_applied",
        "singular values of a head's matrix (QK or VO), including the gain of the norm layer before it",
        kind="floats",
    ),
)

ALPHA_APPLIED = Quantity(
    "log10_alpha_applied",
    "log10 of the largest factor by which later layers can amplify a change in this layer's "
    "output, with norm gains included",
    display_name="log₁₀ α, gains included",
    axis="amplification, gains included (log₁₀ α)",
    error=True,
)
LAYERS = (
    *LOCATION[:3],
    Count(
        "applications",
        "number of times that the model applies the layer to an input (more than 1 if layers are shared)",
    ),
    ALPHA,
    ALPHA_APPLIED,
    *(
        Quantity(
            f"share_{group}",
            f"share of the layer's part of the generalization proxy that comes from {of}",
            display_name=label,
        )
        for group, label, of in (
            ("qk", "QK", "QK matrices"),
            ("vo", "VO", "VO matrices"),
            ("cross", "cross attention", "cross attention"),
            ("ffn", "FFN", "feed-forward matrices"),
        )
    ),
    Quantity(
        "adaptivity",
        "how many times larger the layer's part of the generalization proxy is if all its matrices "
        "share one exponent p",
        error=True,
    ),
)

APPLICATIONS = (LOCATION[1], ALPHA, ALPHA_APPLIED)

TOWERS = (
    Text("tower", "name of the tower (separate stack of layers), such as text or vision"),
    Quantity("layers", "number of layers in the tower (separate stack of layers)", kind="int"),
    Quantity("hidden_size", "width of the tower's layers", kind="int"),
    Quantity("heads", "number of attention heads in the tower's first layer", kind="int"),
    Text("activation", "activation function of the tower's feed-forward blocks"),
    *(
        Quantity(f"log10_{name}", f"log10 of the tower's generalization proxy: {bound.label}", error=True)
        for name, bound in BOUNDS.items()
    ),
)

ATLAS = (
    Text("column", "name of the number that is compared with other models, such as median_effective_rank_qk"),
    Quantity("value", "value of this number in your model"),
    Quantity("trained_low", "smallest value of this number among the trained reference models"),
    Quantity("trained_high", "largest value of this number among the trained reference models"),
    Quantity("trained_models", "number of trained reference models that have this number", kind="int"),
    Quantity(
        "trained_below", "number of trained reference models with a smaller value than your model", kind="int"
    ),
    Quantity("fresh_low", "smallest value of this number among the untrained reference models"),
    Quantity("fresh_high", "largest value of this number among the untrained reference models"),
    Quantity("fresh_models", "number of untrained reference models that have this number", kind="int"),
    Text("kind", "architecture of your model: decoder, encoder or another"),
    Text("among", "architecture that all reference models have; empty if their architectures differ"),
    Quantity("trained", "names of the trained models that your model is compared with", kind="texts"),
    Quantity("fresh", "names of the untrained models that your model is compared with", kind="texts"),
    Quantity(
        "left_out",
        "reference models that are left out because they are your model",
        kind="texts",
    ),
)

FINDINGS = (
    LOCATION[0],
    Text("rule", "name of the check that found the problem, such as zero-tensor"),
    Text("level", "how serious the finding is: note, warning or error", choices=dict.fromkeys(LEVELS)),
    *LOCATION[1:],
    Text("tensor", "name of the stored tensor, if the problem is in a single tensor"),
    Quantity("value", "measured value, which is beyond the threshold of the check"),
    Quantity("threshold", "threshold beyond which the check reports a finding"),
    Text("meaning", "what the finding means: its likely cause, and its effect on the model"),
)


def location_row(model: str, location: MatrixLocation) -> dict[str, Any]:
    """Return the cells of the columns `LOCATION` for one matrix."""
    return {"model": model} | {column.name: getattr(location, column.name) for column in LOCATION[1:]}
