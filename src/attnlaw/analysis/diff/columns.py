"""The columns of the tables of a comparison, and the verdicts on tensors and models. Missing values are null.

| table | rows |
|---|---|
| `DIFF` | one for each map that both models have |
| `DIFF_TENSORS` | one for each stored tensor of either model |
| `DIFF_SPECTRA` | one for each map, with the singular values of its update, which pages draw |

A map is a matrix that acts on tokens: QK or VO of a head, or a feed-forward matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attnlaw.analysis.columns import Count, Text
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.quantity import Quantity
from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class TensorVerdict:
    """A verdict on a tensor or on a model: one word and its meaning."""

    name: str
    says: str
    label: str = ""
    formerly: tuple[str, ...] = ()  # verdicts of version 0.2.0 on such tensors, which rules may forbid

    @property
    def column(self) -> str:
        """Name of the quantity that counts the tensors with this verdict."""
        return f"tensors_{self.name.replace('-', '_')}"


# Verdicts on a tensor. From `identical` on, the first that holds is taken; the others need no numbers. The
# last three replace a verdict that left a change unexplained.
TENSOR_VERDICTS = by_name(
    TensorVerdict("non-finite", "NaN or infinite entries in either model"),
    TensorVerdict(
        "reshaped", "the shape differs; the size of the change compares the rows that both models have"
    ),
    TensorVerdict("added", "only in the model"),
    TensorVerdict("removed", "only in the base"),
    TensorVerdict("identical", "every entry is equal"),
    TensorVerdict("zeroed", "every entry is 0 now", formerly=("unrelated", "low-rank", "changed")),
    TensorVerdict(
        "coded",
        "the base in a quantised format, which hides changes that are smaller than its rounding error",
    ),
    TensorVerdict("rounded", "the base rounded to another format"),
    TensorVerdict(
        "rescaled",
        "the base multiplied by a factor, for the whole tensor or for each row or column",
        formerly=("dense", "low-rank", "changed"),
    ),
    TensorVerdict("below-floor", "no change that is larger than the rounding of the model's file"),
    TensorVerdict("sparse", "a few single entries changed", formerly=("dense", "noise")),
    TensorVerdict(
        "low-rank",
        "the change has only a few directions (its rank), like that of an adapter; the rest is rounding",
    ),
    TensorVerdict(
        "partly-hidden",
        "an update that is partly hidden by the rounding of the file",
        formerly=("dense", "noise", "low-rank"),
    ),
    TensorVerdict("reinitialised", "random weights that do not resemble the base", formerly=("unrelated",)),
    TensorVerdict("unrelated", "other trained weights, which do not resemble the base"),
    TensorVerdict("noise", "a random change: no direction is stronger than the others"),
    TensorVerdict("dense", "an update in many directions, as full training makes"),
    TensorVerdict("changed", "a vector or a small matrix with other values"),
    TensorVerdict(
        "moved", "the weights that another tensor has in the base", formerly=("unrelated", "dense", "changed")
    ),
    TensorVerdict(
        "transposed", "the base with rows and columns exchanged (transposed)", formerly=("unrelated", "dense")
    ),
    TensorVerdict(
        "permuted",
        "the base with its rows or columns in another order",
        formerly=("unrelated", "dense", "changed"),
    ),
)
# Verdicts on a model, which come before those of its tensors.
MODEL_VERDICTS = by_name(
    TensorVerdict("rearranged", "layers or blocks are in a different place or order than in the base"),
    TensorVerdict(
        "reordered",
        "heads or neurons are in a different order; attnlaw compares each with its match in the base",
    ),
    TensorVerdict("regauged", "the factors differ, but their product is the same"),
    TensorVerdict("rotated", "every matrix has the same singular values, but in other directions"),
    TensorVerdict("folded", "the gain of a norm was multiplied into the matrices that read it"),
)


LOCATION = (
    Text("model", "name of the model that is compared with the base"),
    Count("layer", "index of the layer, counting from 0"),
    Text("stack", "part of the model that has the layer, such as encoder or decoder, if it has several"),
    Text(
        "kind",
        "kind of weight matrix, such as qk (query-key), vo (value-output) or ffn_in (feed-forward)",
        choices=KINDS,
    ),
    Count("head", "index of the attention head in the base model"),
    Count("expert", "index of the expert in a mixture of experts"),
)


def _by_side(kind: Callable[..., Quantity], name: str, description: str, display_name: str) -> list[Quantity]:
    """Return the quantities of both sides of a matrix: left, which has its inputs, and right."""
    sides = {"left": "input", "right": "output"}
    return [
        kind(f"{name}_{side}", description.format(noun), display_name=display_name.format(noun))
        for side, noun in sides.items()
    ]


DIFF = (
    *LOCATION,
    Count(
        "matched_head",
        "index of the matching attention head in the compared model",
        display_name="head in the model",
    ),
    Count("rows", "number of inputs of the matrix"),
    Count("cols", "number of outputs of the matrix"),
    Count("inner", "head size: inner dimension of the product of a head's two factors (QK or VO)", "d"),
    Quantity(
        "size",
        "relative size of the update, |model − base| / |base|, in Frobenius norms",
        log=True,
        axis="size of the update, |model − base| / |base|",
    ),
    Quantity(
        "size_2",
        "relative size of the update, |model − base| / |base|, in spectral norms (largest singular values)",
        log=True,
        display_name="size of the update's largest direction",
    ),
    Quantity("cosine", "cosine between the matrices of base and model, ⟨base, model⟩ / (|base| |model|)"),
    Quantity(
        "scale", "factor by which the matrix grew, ⟨base, model⟩ / |base|²; below 1 means that it shrank"
    ),
    Quantity(
        "stable_rank",
        "stable rank of the update, Σs² / max s² of its singular values s; near 1 if one direction dominates",
        log=True,
    ),
    Quantity(
        "effective_rank", "effective rank of the update, from the entropy of its singular values", log=True
    ),
    Count(
        "rank",
        "rank of the update: number of singular values that are larger than rounding errors of the file",
        axis="rank of the update",
    ),
    Quantity(
        "floor",
        "largest singular value that rounding errors of the file can cause, relative to the largest of "
        "the base",
        log=True,
        display_name="rounding floor",
    ),
    Count(
        "k",
        "number of leading directions (k): singular values of the base that are larger than those of a "
        "random matrix",
        display_name="leading directions (k)",
    ),
    Quantity(
        "share_left",
        "share of the update that is along the k leading input directions of the base",
        display_name="share in leading inputs",
    ),
    Quantity(
        "z_left",
        "alignment of the update with the base's leading input directions, as a z-score (0 for a "
        "random update)",
        display_name="z, inputs",
        axis="alignment of inputs (z-score)",
    ),
    Quantity(
        "share_right",
        "share of the update that is along the k leading output directions of the base",
        display_name="share in leading outputs",
    ),
    Quantity(
        "z_right",
        "alignment of the update with the base's leading output directions, as a z-score (0 for a "
        "random update)",
        display_name="z, outputs",
    ),
    *_by_side(
        Quantity,
        "overlap",
        "overlap of the k leading {} directions (of n) of both models: 1 if equal, k/n if unrelated",
        "overlap of {} directions",
    ),
    Quantity(
        "z_top",
        "shift of the largest singular value / standard deviation of the shift that noise of the "
        "same size would cause",
        display_name="z of s₁",
    ),
    Count(
        "moved",
        "number of leading singular values that shifted more than noise explains (over 4 standard "
        "deviations)",
        display_name="singular values that shifted",
    ),
    *_by_side(
        Count,
        "intruders",
        "number of the model's top 10 {} directions that resemble no direction of the base (cosine "
        "below 1/2)",
        "intruding {} directions",
    ),
    *_by_side(
        Count,
        "new",
        "number of the model's top 10 {} directions outside the span of the base's directions of "
        "similar size",
        "new {} directions",
    ),
)
DIFF_TENSORS = (
    Text("model", "name of the model that is compared with the base"),
    Text("tensor", "name of the tensor in the base; the name in the model if the tensor was added"),
    Quantity("shape", "shape of the tensor in the base; the shape in the model if it was added", kind="ints"),
    Text(
        "dtype_base", "data type of the tensor in the file of the base", display_name="data type in the base"
    ),
    Text(
        "dtype_model", "data type of the tensor in the file of the compared model", display_name="data type"
    ),
    Text("verdict", "verdict on the tensor: how it changed, in a word or two", choices=TENSOR_VERDICTS),
    Text("format", "number format or quantisation code that the tensor was rounded to"),
    Count("rank", "estimated rank of the update: number of directions that are larger than rounding noise"),
    Count("rank_low", "smallest rank that the update can have, given the rounding noise"),
    Count(
        "rank_high",
        "largest rank that the update can have, given the noise; missing if rounding may hide more "
        "directions",
    ),
    Count(
        "directions",
        "number of directions that hold 90% of the energy (sum of squares) of a change, if it is not "
        "low-rank",
    ),
    Quantity(
        "size", "relative size of the change, |model − base| / |base|, including rounding errors", log=True
    ),
    Quantity(
        "update_size", "estimated relative size of the update, without rounding errors of the file", log=True
    ),
    Quantity(
        "update_size_most",
        "upper limit of the relative size of an update that is smaller than rounding errors of the file",
        log=True,
    ),
    Quantity(
        "rounding_size", "size of the error from rounding the tensor once, relative to the base", log=True
    ),
    Quantity(
        "hidden",
        "share of the energy (sum of squares) of the update in directions that are not above the noise",
    ),
    Quantity(
        "roundings",
        "energy (sum of squares) of the noise, relative to the error from rounding the tensor once",
    ),
    Quantity(
        "factor",
        "factor by which the tensor was rescaled; the median if rows or columns have different factors",
    ),
    Quantity("factor_low", "smallest factor by which a row or column of the tensor was rescaled"),
    Quantity("factor_high", "largest factor by which a row or column of the tensor was rescaled"),
    Text("along", "whether the whole tensor, its rows or its columns were rescaled or reordered"),
    Text("source", "name of the base tensor whose weights a moved tensor now has"),
    Text("then", "verdict on a moved or reordered tensor, after it is compared in its new place or order"),
    Quantity(
        "sqnr_db",
        "signal-to-noise ratio of the change in dB: −20 log₁₀ (|model − base| / |base|)",
        display_name="signal to noise, dB",
    ),
    Quantity("cosine", "cosine between the tensors of base and model"),
    Quantity("unchanged", "share of the tensor's entries that are equal in both models"),
    Quantity("max_change", "largest change of a single entry of the tensor", log=True),
)
DIFF_SPECTRA = (
    *LOCATION,
    Quantity(
        "update_values",
        "singular values of the update, largest first, relative to the largest of the base",
        kind="floats",
    ),
    Quantity(
        "noise_values",
        "singular values of random noise of the size of the update, largest first, relative to the "
        "largest of the base",
        kind="floats",
    ),
)
