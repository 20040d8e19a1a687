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
    TensorVerdict("non-finite", "an entry is NaN or infinite in either model"),
    TensorVerdict("reshaped", "the shape differs; attnlaw compares the rows that both models have"),
    TensorVerdict("added", "only the model has this tensor"),
    TensorVerdict("removed", "only the base has this tensor"),
    TensorVerdict("identical", "every entry is equal"),
    TensorVerdict(
        "zeroed", "every entry is 0 now, but not in the base", formerly=("unrelated", "low-rank", "changed")
    ),
    TensorVerdict(
        "coded",
        "the base in a quantised format; smaller changes than its rounding errors are invisible",
    ),
    TensorVerdict("rounded", "the base rounded to another format"),
    TensorVerdict(
        "rescaled",
        "the base multiplied by a factor, for the whole tensor or for each row or column",
        formerly=("dense", "low-rank", "changed"),
    ),
    TensorVerdict("below-floor", "any change is smaller than the rounding errors of the model's file"),
    TensorVerdict("sparse", "a few single entries changed", formerly=("dense", "noise")),
    TensorVerdict(
        "low-rank",
        "the change has only a few directions (its rank), as an adapter makes; the rest is rounding",
    ),
    TensorVerdict(
        "partly-hidden",
        "the change is partly hidden by the rounding of the file",
        formerly=("dense", "noise", "low-rank"),
    ),
    TensorVerdict(
        "reinitialised", "new random weights that do not resemble the base", formerly=("unrelated",)
    ),
    TensorVerdict("unrelated", "other trained weights that do not resemble the base"),
    TensorVerdict("noise", "the change looks random: no direction is stronger than the others"),
    TensorVerdict("dense", "the change has many directions, as full training makes"),
    TensorVerdict("changed", "a vector or small matrix whose values changed"),
    TensorVerdict(
        "moved",
        "it has the weights of another tensor of the base",
        formerly=("unrelated", "dense", "changed"),
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
    TensorVerdict("regauged", "Q, K, V or O differ, but every head computes the same as in the base"),
    TensorVerdict("rotated", "every matrix has the same singular values, but in other directions"),
    TensorVerdict("folded", "the gain of a norm was multiplied into the matrices that read it"),
)


LOCATION = (
    Text("model", "name of the model that is compared with the base"),
    Count("layer", "index of the layer, counting from 0"),
    Text(
        "stack",
        "part of the model that the layer belongs to, such as encoder or decoder, if there are several",
    ),
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
    Count("inner", "head size: number of entries of a head's queries and keys (for VO: of its values)", "d"),
    Quantity(
        "size",
        "size of the change relative to the base, |model − base| / |base|, in Frobenius norms",
        log=True,
        axis="size of the change, |model − base| / |base|",
    ),
    Quantity(
        "size_2",
        "largest singular value of the change, relative to that of the base",
        log=True,
        display_name="size of the largest direction of the change",
    ),
    Quantity("cosine", "cosine between the matrices of base and model: 1 means equal up to a factor"),
    Quantity(
        "scale",
        "factor by which the matrix grew along the base, ⟨base, model⟩ / |base|²; below 1 means that "
        "it shrank",
    ),
    Quantity(
        "stable_rank",
        "stable rank of the change: number of directions that carry most of it; near 1 if one dominates",
        log=True,
    ),
    Quantity(
        "effective_rank",
        "effective rank of the change: number of directions that it uses, including weak ones",
        log=True,
    ),
    Count(
        "rank",
        "rank of the change: number of its singular values above rounding errors of the file",
        axis="rank of the update",
    ),
    Quantity(
        "floor",
        "largest singular value that rounding errors of the file can cause, relative to the base's largest",
        log=True,
        display_name="rounding floor",
    ),
    Count(
        "k",
        "number of leading directions k: singular values of the base above those of a random matrix",
        display_name="leading directions (k)",
    ),
    Quantity(
        "share_left",
        "share of the change (sum of squares) that is along the k leading input directions of the base",
        display_name="share in leading input directions",
    ),
    Quantity(
        "z_left",
        "alignment of the change with the base's leading input directions, in standard deviations "
        "above that of random changes",
        display_name="alignment with leading inputs (z)",
        axis="alignment of inputs (z-score)",
    ),
    Quantity(
        "share_right",
        "share of the change (sum of squares) that is along the k leading output directions of the base",
        display_name="share in leading output directions",
    ),
    Quantity(
        "z_right",
        "alignment of the change with the base's leading output directions, in standard deviations "
        "above that of random changes",
        display_name="alignment with leading outputs (z)",
    ),
    *_by_side(
        Quantity,
        "overlap",
        "shared part of both models' k leading {0} directions: 1 if all are shared, k/n by chance (n {0}s)",
        "shared {} directions",
    ),
    Quantity(
        "z_top",
        "shift of the largest singular value, in standard deviations of the shift that random noise "
        "of this size causes",
        display_name="shift of the largest singular value",
    ),
    Count(
        "moved",
        "number of leading singular values that shifted by more than random noise would cause (4 "
        "standard deviations)",
        display_name="singular values that shifted",
    ),
    *_by_side(
        Count,
        "intruders",
        "number of the model's top 10 {} directions that resemble no single direction of the base "
        "(cosine below 1/2)",
        "intruding {} directions",
    ),
    *_by_side(
        Count,
        "new",
        "number of the model's top 10 {} directions that are not combinations of similarly strong "
        "base directions",
        "new {} directions",
    ),
)
DIFF_TENSORS = (
    Text("model", "name of the model that is compared with the base"),
    Text("tensor", "name of the tensor in the base (in the model if the base has no such tensor)"),
    Quantity(
        "shape", "shape of the tensor in the base (in the model if the base has no such tensor)", kind="ints"
    ),
    Text(
        "dtype_base", "data type of the tensor in the file of the base", display_name="data type in the base"
    ),
    Text(
        "dtype_model", "data type of the tensor in the file of the compared model", display_name="data type"
    ),
    Text(
        "verdict",
        "how the tensor changed, in one word, such as identical, rounded or low-rank",
        choices=TENSOR_VERDICTS,
    ),
    Text("format", "number format to which the tensor was rounded, such as bfloat16"),
    Count("rank", "estimated rank of the change: number of its directions above rounding noise"),
    Count("rank_low", "smallest rank that the change can have, given the rounding noise"),
    Count(
        "rank_high",
        "largest rank that the change can have; missing if rounding may hide more directions",
    ),
    Count(
        "directions",
        "number of directions that hold 90% of the change (sum of squares), if it is not low-rank",
    ),
    Quantity(
        "size",
        "size of the change relative to the base, |model − base| / |base|, including rounding errors",
        log=True,
    ),
    Quantity(
        "update_size",
        "estimated size of the change relative to the base, without rounding errors of the file",
        log=True,
    ),
    Quantity(
        "update_size_most",
        "largest size that a change hidden by rounding can have, relative to the base",
        log=True,
    ),
    Quantity(
        "rounding_size",
        "size of the error that rounding the tensor once causes, relative to the base",
        log=True,
    ),
    Quantity(
        "hidden",
        "share of the change (sum of squares) in directions that are not visible above the noise",
    ),
    Quantity(
        "roundings",
        "noise in the change relative to rounding the tensor once (sums of squares); above 1 means "
        "several roundings",
    ),
    Quantity(
        "factor",
        "factor by which the tensor was multiplied (median if rows or columns have different factors)",
    ),
    Quantity("factor_low", "smallest factor by which a row or column of the tensor was multiplied"),
    Quantity("factor_high", "largest factor by which a row or column of the tensor was multiplied"),
    Text("along", "what was rescaled or reordered: the whole tensor, its rows or its columns"),
    Text("source", "name of the base tensor whose weights a moved tensor now has"),
    Text("then", "what else changed in a moved or reordered tensor, after it is matched with the base"),
    Quantity(
        "sqnr_db",
        "signal-to-noise ratio of the tensor in dB, if its change is noise: −20 log₁₀ (|model − "
        "base| / |base|)",
        display_name="signal to noise, dB",
    ),
    Quantity("cosine", "cosine between the tensors of base and model: 1 means equal up to a factor"),
    Quantity("unchanged", "share of the tensor's entries that are exactly equal in both models"),
    Quantity("max_change", "largest absolute change of a single entry of the tensor", log=True),
)
DIFF_SPECTRA = (
    *LOCATION,
    Quantity(
        "update_values",
        "singular values of the change, largest first, relative to the base's largest",
        kind="floats",
    ),
    Quantity(
        "noise_values",
        "singular values of random noise as large as the change, largest first, relative to the "
        "base's largest",
        kind="floats",
    ),
)
