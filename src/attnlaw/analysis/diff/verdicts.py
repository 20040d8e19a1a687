"""What a comparison may say: of one stored tensor, and of a whole model. One table each."""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.variants import by_name


@dataclass(frozen=True)
class TensorVerdict:
    """A word for what became of a tensor (or of a model), and what it says."""

    name: str
    says: str
    label: str = ""

    @property
    def column(self) -> str:
        """The quantity that counts it."""
        return f"tensors_{self.name.replace('-', '_')}"


# Of a tensor: the first that holds, from `identical` on; those before it are told before numbers are.
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
# Of a model, told before those of its tensors.
MODEL_VERDICTS = by_name(
    TensorVerdict("permuted", "heads or neurons stand in another order; they were matched"),
    TensorVerdict("regauged", "factors differ, the maps that they make do not"),
    TensorVerdict("rotated", "every map has the same singular values in other directions"),
    TensorVerdict("folded", "a norm's gain was multiplied into the maps that read it"),
)
