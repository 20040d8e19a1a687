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
    """A verdict on a tensor or on a model: one word and its meaning."""

    name: str
    says: str
    label: str = ""

    @property
    def column(self) -> str:
        """Name of the quantity that counts the tensors with this verdict."""
        return f"tensors_{self.name.replace('-', '_')}"


# Verdicts on a tensor. From `identical` on, the first that holds is taken; the others need no numbers.
TENSOR_VERDICTS = by_name(
    TensorVerdict("non-finite", "a NaN or an infinity in either model"),
    TensorVerdict("reshaped", "another shape; numbers are of the rows that both have"),
    TensorVerdict("added", "in the model alone"),
    TensorVerdict("removed", "in the base alone"),
    TensorVerdict("identical", "every entry is equal"),
    TensorVerdict("rounded", "the base rounded to another format"),
    TensorVerdict("below-floor", "nothing above the rounding of the model's file"),
    TensorVerdict("low-rank", "an update of low rank, and rounding"),
    TensorVerdict("unrelated", "a cosine that other weights have, too"),
    TensorVerdict("noise", "an update without direction, as if drawn"),
    TensorVerdict("dense", "an update of many directions, as of training"),
    TensorVerdict("changed", "not equal, of one dimension"),
)
# Verdicts on a model, which come before those of its tensors.
MODEL_VERDICTS = by_name(
    TensorVerdict("permuted", "heads or neurons stand in another order; they were matched"),
    TensorVerdict("regauged", "factors differ, the maps that they make do not"),
    TensorVerdict("rotated", "every map has the same singular values in other directions"),
    TensorVerdict("folded", "a norm's gain was multiplied into the maps that read it"),
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
    Quantity("verdict", "what became of it", kind="text", choices=TENSOR_VERDICTS),
    Quantity("format", "that it was rounded to", kind="text"),
    Quantity("rank", "singular values of the difference above the floor", kind="small"),
    Quantity("size", "|W1 − W0| / |W0|", log=True),
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
