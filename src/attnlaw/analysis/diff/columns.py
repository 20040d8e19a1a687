"""The columns of the tables of a comparison, and the verdicts on tensors and models. Missing values are null.

| table | rows |
|---|---|
| `DIFF` | one for each map that both models have |
| `DIFF_TENSORS` | one for each stored tensor of either model |
| `DIFF_SPECTRA` | one for each map, with the singular values of its update, which pages draw |

A map is the matrix QK or VO of a head, or a feed-forward matrix.
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
    TensorVerdict("reshaped", "another shape; the numbers compare the rows that both have"),
    TensorVerdict("added", "only in the model"),
    TensorVerdict("removed", "only in the base"),
    TensorVerdict("identical", "every entry is equal"),
    TensorVerdict("zeroed", "every entry is 0 now", formerly=("unrelated", "low-rank", "changed")),
    TensorVerdict("coded", "the base stored in a quantised code; changes below its error cannot be seen"),
    TensorVerdict("rounded", "the base rounded to another format"),
    TensorVerdict(
        "rescaled",
        "the base times a factor, for the tensor, each row or each column",
        formerly=("dense", "low-rank", "changed"),
    ),
    TensorVerdict("below-floor", "no change that is visible above the rounding of the model's file"),
    TensorVerdict("sparse", "a few single entries changed", formerly=("dense", "noise")),
    TensorVerdict("low-rank", "an update of few directions, and rounding"),
    TensorVerdict(
        "partly-hidden",
        "some directions rise above the rounding of the file, the rest is hidden",
        formerly=("dense", "noise", "low-rank"),
    ),
    TensorVerdict("reinitialised", "random weights that do not resemble the base", formerly=("unrelated",)),
    TensorVerdict("unrelated", "other weights, which are not random and do not resemble the base"),
    TensorVerdict("noise", "a random change without a direction"),
    TensorVerdict("dense", "an update of many directions, as training makes"),
    TensorVerdict("changed", "a vector or a small matrix with other values"),
    TensorVerdict(
        "moved", "the weights of another tensor of the base", formerly=("unrelated", "dense", "changed")
    ),
    TensorVerdict(
        "transposed", "rows and columns of the base are exchanged", formerly=("unrelated", "dense")
    ),
    TensorVerdict(
        "permuted", "rows or columns of the base in another order", formerly=("unrelated", "dense", "changed")
    ),
)
# Verdicts on a model, which come before those of its tensors.
MODEL_VERDICTS = by_name(
    TensorVerdict("rearranged", "layers or blocks are in another place or order than in the base"),
    TensorVerdict("reordered", "heads or neurons are in another order; each is compared with its match"),
    TensorVerdict("regauged", "the factors differ, but the matrices that they make do not"),
    TensorVerdict("rotated", "every matrix has the same singular values in other directions"),
    TensorVerdict("folded", "the gain of a norm was multiplied into the matrices that read it"),
)


LOCATION = (
    Quantity("model", "what rows call the model", kind="text"),
    Quantity("layer", "number of the layer", kind="small"),
    Quantity("stack", "encoder or decoder, where there are several stacks", kind="text"),
    Quantity("kind", "kind of matrix", kind="text", choices=KINDS),
    Quantity("head", "number of the head in the base", kind="small"),
    Quantity("expert", "number of the expert", kind="small"),
)
DIFF = (
    *LOCATION,
    Quantity("matched_head", "number of the head in the model that it was compared with", kind="small"),
    Quantity("rows", kind="small"),
    Quantity("cols", kind="small"),
    Quantity("inner", "dimension that a product of factors passes", "d", kind="small"),
    Quantity(
        "size",
        "of the update: |M1 − M0| / |M0|, Frobenius norms",
        log=True,
        axis="size of the update, |M1 − M0| / |M0|",
    ),
    Quantity("size_2", "the same in spectral norms", log=True),
    Quantity("cosine", "of base and model: ⟨M0, M1⟩ / (|M0| |M1|)"),
    Quantity("scale", "⟨M0, M1⟩ / |M0|²; below 1 the map shrank"),
    Quantity("stable_rank", "of the update", log=True),
    Quantity("effective_rank", "of the update", log=True),
    Quantity(
        "rank", "singular values of the update above the floor", kind="small", axis="rank of the update"
    ),
    Quantity("floor", "what the rounding of the model's file leaves, over s₁(M0)", log=True),
    Quantity("k", "singular values of the base beyond the edge of its random null", kind="small"),
    Quantity("share_left", "of the update in the base's k leading input directions"),
    Quantity(
        "z_left",
        "that share against chance, in standard deviations",
        display_name="z, inputs",
        axis="alignment of inputs, z",
    ),
    Quantity("share_right", "of the update in the base's k leading output directions"),
    Quantity("z_right", "that share against chance", display_name="z, outputs"),
    Quantity("overlap_left", "of the k leading input directions of both models; unrelated: k/n"),
    Quantity("overlap_right", "of the k leading output directions of both models"),
    Quantity(
        "z_top",
        "move of the largest singular value, against noise of the update's size",
        display_name="z of s₁",
    ),
    Quantity(
        "moved", "of the k leading singular values, those that moved by more than 4 deviations", kind="small"
    ),
    Quantity(
        "intruders_left",
        "of the model's first 10 input directions, those that no base vector is near",
        kind="small",
    ),
    Quantity("intruders_right", "of its first 10 output directions", kind="small"),
    Quantity("new_left", "of them, those that lie outside the base's directions of like size", kind="small"),
    Quantity("new_right", "of its output directions", kind="small"),
)
DIFF_TENSORS = (
    Quantity("model", "what rows call the model", kind="text"),
    Quantity("tensor", "name in the base; of an added tensor, in the model", kind="text"),
    Quantity("shape", "in the base; of an added tensor, in the model", kind="ints"),
    Quantity("dtype_base", "as the base's file says", kind="text"),
    Quantity("dtype_model", "as the model's file says", kind="text"),
    Quantity("verdict", "what became of the tensor", kind="text", choices=TENSOR_VERDICTS),
    Quantity("format", "format or code that the tensor was rounded to", kind="text"),
    Quantity("rank", "number of directions of the update above the noise", kind="small"),
    Quantity("rank_low", "directions that are certain", kind="small"),
    Quantity(
        "rank_high",
        "most directions that the noise allows; missing if the rounding of the file may hide more",
        kind="small",
    ),
    Quantity(
        "directions", "directions that carry 90% of the energy of a change that is not low-rank", kind="small"
    ),
    Quantity("size", "size of the change, |W1 − W0| / |W0|, rounding included", log=True),
    Quantity("update_size", "estimated size of the update without the rounding of the file", log=True),
    Quantity("update_size_most", "upper limit of that size, if the update is below the floor", log=True),
    Quantity("rounding_size", "size of one rounding of the file, relative to the base", log=True),
    Quantity("hidden", "share of the update's energy that has no direction above the noise"),
    Quantity("roundings", "energy of the noise, in units of one rounding of the file"),
    Quantity("factor", "factor of a rescaled tensor; the median if rows or columns have their own"),
    Quantity("factor_low", "smallest of these factors"),
    Quantity("factor_high", "largest of these factors"),
    Quantity("along", "what has its own factor, or another order: tensor, rows or columns", kind="text"),
    Quantity("source", "tensor of the base whose weights a moved tensor has", kind="text"),
    Quantity("then", "verdict that is left in the new place or order", kind="text"),
    Quantity("sqnr_db", "−20 log₁₀ of the size", display_name="signal to noise, dB"),
    Quantity("cosine", "of base and model"),
    Quantity("unchanged", "share of the entries that are equal"),
    Quantity("max_change", "of an entry", log=True),
)
DIFF_SPECTRA = (
    *LOCATION,
    Quantity("update_values", "singular values of the update over s₁ of the base, descending", kind="floats"),
    Quantity("noise_values", "those of noise of the same size", kind="floats"),
)
