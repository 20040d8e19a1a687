"""Recognise a tensor that is the base's, stored in a quantised code.

The difference of the two is the code's own error. It has no rank, and only its size means something, so a
tensor gets the verdict `coded` before any verdict that looks at the difference. W0 is the base's tensor, W1
the model's, decoded.

| condition | value |
|---|---|
| cosine of W0 and W1 | at least 0.9, or 0.6 for codes of 2 bits or less |
| factor <W0, W1> / <W0, W0> | within 10% of 1; any for BitNet, which clips large weights |
| size of the difference | at most that of a coarse code of as many bits: 8% for 8 bits, 35% for 4 bits |

AWQ multiplies columns by factors c that it takes from the norm before, and then rounds. So W0 diag(c) is
compared with W1, where c is fitted by least squares. The smallest and largest factor are reported.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.diff.map_changes import MapChange
from attnlaw.analysis.diff.rounding import FLOATS, row_blocks
from attnlaw.analysis.diff.tensors import TensorChange

LEAST_COSINE, LEAST_COSINE_2_BITS = 0.9, 0.6
MOST_FACTOR = 0.1  # distance of the factor from 1
ANY_FACTOR = ("BitNet",)
COLUMN_FACTORS = ("AWQ",)
# Programs that may have run AWQ before they rounded. Their columns count only if they have different factors.
MAYBE_COLUMN_FACTORS = ("compressed-tensors", "ModelOpt", "NVFP4", "GPTQ", "Quark")
# Largest size of the error by the number of bits. Codes at hand have at most 5% (8), 24% (4) and 35% (3).
MOST_SIZE = {8: 0.08, 6: 0.12, 5: 0.18, 4: 0.35, 3: 0.5}
LEAST_GAIN = 0.64  # share of the error's energy that column factors leave. Those of noise leave nearly all


def is_code(dtype: str) -> bool:
    """Return whether the data type of a tensor is a quantised code."""
    return dtype not in FLOATS


def code_bits(label: str) -> int:
    """Return the number of bits of a code, which is the first number in its label."""
    number = re.search(r"\d+", label)
    return int(number[0]) if number else 8


def coded_change(
    base: NDArray[Any], model: NDArray[Any], label: str, base_label: str, columns: bool = True
) -> TensorChange | None:
    """Return the change of a tensor whose weights are those of the base in a quantised code, else None."""
    if not is_code(label) or label == base_label or base.shape != model.shape or base.ndim < 2:
        return None
    sums = _ColumnSums(base.reshape(-1, base.shape[-1]), model.reshape(-1, base.shape[-1]))
    if not sums.comparable:
        return None
    least = LEAST_COSINE if code_bits(label) > 2 else LEAST_COSINE_2_BITS
    change = TensorChange("coded", code=label, **sums.numbers)
    any_factor = label.startswith(ANY_FACTOR)
    most = MOST_SIZE.get(code_bits(label), np.inf)
    small = any_factor or (abs(sums.factor - 1) <= MOST_FACTOR and float(change.size or 0.0) <= most)
    plain = sums.cosine >= least and small
    factors = sums.column_factors
    wanted = label.startswith(COLUMN_FACTORS) or (not plain and label.startswith(MAYBE_COLUMN_FACTORS))
    fits = sums.column_cosine >= least and sums.column_size <= most
    if columns and wanted and factors.min() > 0 and sums.column_gain < LEAST_GAIN and fits:
        return replace(
            change,
            size=sums.column_size,
            cosine=sums.column_cosine,
            along="columns",
            factor=float(np.median(factors)),
            factor_low=float(factors.min()),
            factor_high=float(factors.max()),
        )
    return replace(change, factor=sums.factor if any_factor else None) if plain else None


class _ColumnSums:
    """Sums over the entries of two matrices: of W0^2, W0 W1 and W1^2, by column and in total."""

    def __init__(self, base: NDArray[Any], model: NDArray[Any]) -> None:
        before, products = np.zeros((2, base.shape[1]))
        self.after = self.update = self.largest = 0.0
        equal = 0
        for rows in row_blocks(base.shape):
            first, second = (array[rows].astype(np.float64) for array in (base, model))
            before += np.einsum("ij,ij->j", first, first)
            products += np.einsum("ij,ij->j", first, second)
            self.after += float(np.vdot(second, second))
            change = np.abs(second - first)
            self.update += float(np.vdot(change, change))
            self.largest = max(self.largest, float(change.max(initial=0.0)))
            equal += change.size - int(np.count_nonzero(change))
        self.before, self.inner = float(before.sum()), float(products.sum())
        self.unchanged = equal / max(base.size, 1)
        used = before > 0
        self.column_factors = products[used] / before[used]
        self.explained = float(np.sum(products[used] * self.column_factors))  # energy of W0 diag(c)

    @property
    def comparable(self) -> bool:
        """Whether both tensors are finite, neither is zero, and they differ."""
        energies = self.before, self.after, self.update, self.explained
        return bool(np.isfinite(energies).all()) and min(energies) > 0

    @property
    def cosine(self) -> float:
        return self.inner / float(np.sqrt(self.before * self.after))

    @property
    def factor(self) -> float:
        return self.inner / self.before

    @property
    def column_cosine(self) -> float:
        return float(np.sqrt(self.explained / self.after))

    @property
    def column_gain(self) -> float:
        """Ratio of the energy left by factors of the columns to the energy left by a single factor."""
        single = self.after - self.inner**2 / self.before
        return (self.after - self.explained) / single if single > 0 else 1.0

    @property
    def column_size(self) -> float:
        return float(np.sqrt(max(self.after - self.explained, 0.0) / self.explained))

    @property
    def numbers(self) -> dict[str, Any]:
        return {
            "size": float(np.sqrt(self.update / self.before)),
            "cosine": self.cosine,
            "unchanged": self.unchanged,
            "max_change": self.largest,
        }


def without_rank(change: MapChange) -> MapChange:
    """Return the change of a matrix without a rank, because the error of a code has no meaningful rank."""
    return replace(change, numbers={**change.numbers, "rank": None})
