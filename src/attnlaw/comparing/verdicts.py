"""What a comparison may say: of one stored tensor, and of a whole model. One table each."""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.base.declare import table


@dataclass(frozen=True)
class Verdict:
    """A word for what became of a tensor (or of a model), and what it says."""

    name: str
    says: str
    label: str = ""

    @property
    def column(self) -> str:
        """The quantity that counts it."""
        return f"tensors_{self.name.replace('-', '_')}"


# Of a tensor: the first that holds, from `identical` on; those before it are told before numbers are.
TENSORS = table(
    Verdict("non-finite", "a NaN or an infinity in either model"),
    Verdict("reshaped", "another shape; numbers are of the rows that both have"),
    Verdict("added", "in the model alone"),
    Verdict("removed", "in the base alone"),
    Verdict("identical", "every entry is equal"),
    Verdict("rounded", "the base rounded to another format"),
    Verdict("below-floor", "nothing above the rounding of the model's file"),
    Verdict("low-rank", "an update of low rank, and rounding"),
    Verdict("unrelated", "a cosine that other weights have, too"),
    Verdict("noise", "an update without direction, as if drawn"),
    Verdict("dense", "an update of many directions, as of training"),
    Verdict("changed", "not equal, of one dimension"),
)
# Of a model, told before those of its tensors.
MODELS = table(
    Verdict("permuted", "heads or neurons stand in another order; they were matched"),
    Verdict("regauged", "factors differ, the maps that they make do not"),
    Verdict("rotated", "every map has the same singular values in other directions"),
    Verdict("folded", "a norm's gain was multiplied into the maps that read it"),
)
