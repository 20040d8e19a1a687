"""The columns of the tables of a comparison, and the verdicts on tensors and models. Missing values are null.

| table | rows |
|---|---|
| `DIFF` | one for each map that both models have |
| `DIFF_TENSORS` | one for each stored tensor of either model |
| `DIFF_SPECTRA` | one for each map, with the singular values of its update, which pages draw |

A map is a matrix that acts on tokens: QK or VO of a head, or a feed-forward matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.checkpoints.network import KINDS
from attnlaw.core.quantity import Quantity
from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class TensorVerdict:
    """A verdict on a tensor or on a model: one word and its meaning.

    Args:
        formerly: verdicts that version 0.2.0 gave to such tensors. A rule that forbids one of them also
            forbids this verdict.
    """

    name: str
    says: str
    label: str = ""
    formerly: tuple[str, ...] = ()

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
    Quantity("model", "name of the model", kind="text"),
    Quantity("layer", "number of the layer", kind="small"),
    Quantity(
        "stack",
        "stack that the layer belongs to, such as encoder or decoder, if there are several",
        kind="text",
    ),
    Quantity("kind", "kind of matrix", kind="text", choices=KINDS),
    Quantity("head", "number of the head in the base", kind="small"),
    Quantity("expert", "number of the expert", kind="small"),
)
DIFF = (
    *LOCATION,
    Quantity(
        "matched_head",
        "number of the head in the model that it was compared with",
        kind="small",
        display_name="head in the model",
    ),
    Quantity("rows", "number of inputs of the matrix", kind="small"),
    Quantity("cols", "number of outputs of the matrix", kind="small"),
    Quantity(
        "inner", "head size: number of columns of the first of the two factors of QK or VO", "d", kind="small"
    ),
    Quantity(
        "size",
        "size of the update, |model − base| / |base|, in Frobenius norms",
        log=True,
        axis="size of the update, |model − base| / |base|",
    ),
    Quantity(
        "size_2",
        "size of the update, |model − base| / |base|, in spectral norms (the largest singular value)",
        log=True,
        display_name="size of the largest direction",
    ),
    Quantity("cosine", "cosine between the matrices of base and model, ⟨base, model⟩ / (|base| |model|)"),
    Quantity("scale", "factor ⟨base, model⟩ / |base|² by which the matrix grew; below 1 it shrank"),
    Quantity(
        "stable_rank",
        "stable rank of the update: Σs² / max s² of its singular values s; near 1, one direction carries it",
        log=True,
    ),
    Quantity(
        "effective_rank", "effective rank of the update, from the entropy of its singular values", log=True
    ),
    Quantity(
        "rank",
        "number of singular values of the update above the rounding of the file",
        kind="small",
        axis="rank of the update",
    ),
    Quantity(
        "floor",
        "largest singular value that rounding of the file can make, relative to the largest of the base",
        log=True,
        display_name="rounding floor",
    ),
    Quantity(
        "k",
        "number of singular values of the base above those of a random matrix",
        kind="small",
        display_name="leading directions (k)",
    ),
    Quantity(
        "share_left",
        "share of the update in the base's k leading input directions",
        display_name="share in leading inputs",
    ),
    Quantity(
        "z_left",
        "alignment of the update with the base's leading input directions, in standard deviations of chance",
        display_name="z, inputs",
        axis="alignment of inputs, z",
    ),
    Quantity(
        "share_right",
        "share of the update in the base's k leading output directions",
        display_name="share in leading outputs",
    ),
    Quantity(
        "z_right",
        "alignment of the update with the base's leading output directions, in standard deviations of chance",
        display_name="z, outputs",
    ),
    Quantity(
        "overlap_left",
        "overlap of the k leading input directions of both models: 1 if equal, k/n if unrelated",
        display_name="overlap of inputs",
    ),
    Quantity(
        "overlap_right",
        "overlap of the k leading output directions of both models: 1 if equal, k/n if unrelated",
        display_name="overlap of outputs",
    ),
    Quantity(
        "z_top",
        "move of the largest singular value, in standard deviations of noise of the update's size",
        display_name="z of s₁",
    ),
    Quantity(
        "moved",
        "number of the k leading singular values that moved by more than 4 standard deviations",
        kind="small",
        display_name="values moved",
    ),
    Quantity(
        "intruders_left",
        "number of the model's first 10 input directions that are near none of the base (cosine below 1/2)",
        kind="small",
        display_name="intruders, inputs",
    ),
    Quantity(
        "intruders_right",
        "number of the model's first 10 output directions that are near none of the base (cosine below 1/2)",
        kind="small",
        display_name="intruders, outputs",
    ),
    Quantity(
        "new_left",
        "number of the model's first 10 input directions outside the base's directions of similar size",
        kind="small",
        display_name="new inputs",
    ),
    Quantity(
        "new_right",
        "number of the model's first 10 output directions outside the base's directions of similar size",
        kind="small",
        display_name="new outputs",
    ),
)
DIFF_TENSORS = (
    Quantity("model", "name of the model", kind="text"),
    Quantity(
        "tensor", "name of the tensor in the base; the name in the model if the tensor was added", kind="text"
    ),
    Quantity("shape", "shape of the tensor in the base; the shape in the model if it was added", kind="ints"),
    Quantity(
        "dtype_base", "data type in the file of the base", kind="text", display_name="data type in the base"
    ),
    Quantity(
        "dtype_model",
        "data type in the file of the model",
        kind="text",
        display_name="data type",
    ),
    Quantity("verdict", "what happened to the tensor, in a word", kind="text", choices=TENSOR_VERDICTS),
    Quantity("format", "format or code that the tensor was rounded to", kind="text"),
    Quantity("rank", "number of directions of the update above the noise", kind="small"),
    Quantity("rank_low", "number of directions that are certainly in the update", kind="small"),
    Quantity(
        "rank_high",
        "largest number of directions that the noise allows; missing if rounding may hide more",
        kind="small",
    ),
    Quantity(
        "directions",
        "number of directions with 90% of the energy (sum of squares) of a change that is not low-rank",
        kind="small",
    ),
    Quantity("size", "size of the change, |model − base| / |base|, with rounding", log=True),
    Quantity("update_size", "estimated size of the update without the rounding of the file", log=True),
    Quantity(
        "update_size_most",
        "upper limit of the size of an update that is smaller than the rounding of the file",
        log=True,
    ),
    Quantity("rounding_size", "size of one rounding of the file, relative to the base", log=True),
    Quantity("hidden", "share of the update's energy that has no direction above the noise"),
    Quantity("roundings", "energy (sum of squares) of the noise, in units of one rounding of the file"),
    Quantity("factor", "factor of a rescaled tensor; the median if rows or columns have different factors"),
    Quantity("factor_low", "smallest factor of a rescaled tensor"),
    Quantity("factor_high", "largest factor of a rescaled tensor"),
    Quantity(
        "along", "whether the factor or the new order is for the tensor, its rows or its columns", kind="text"
    ),
    Quantity("source", "tensor of the base whose weights a moved tensor has", kind="text"),
    Quantity("then", "verdict on the tensor after it is compared in its new place or order", kind="text"),
    Quantity(
        "sqnr_db", "signal-to-noise ratio in dB: −20 log₁₀ of the size", display_name="signal to noise, dB"
    ),
    Quantity("cosine", "cosine between the tensors of base and model"),
    Quantity("unchanged", "share of the entries that are equal in both models"),
    Quantity("max_change", "largest change of an entry", log=True),
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
        "singular values of noise of the same size, largest first, relative to the largest of the base",
        kind="floats",
    ),
)
