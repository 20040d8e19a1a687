"""What earlier steps of a run tell a measurement: the first sizes of factors, and modes that stand out.

| quantity | in the row of a matrix | in the row of the step |
|---|---|---|
| `factor_imbalance` | of the factors of a head, and `factor_difference`; `_kept`: over the start | medians |
| `means` | `mean` = Tr M/sqrt(N) and `frobenius` = |M|_F/sqrt(N) of a head's M | medians of their sizes |
| `modes` | rows of their own: values beyond the bulk, when each left it | the test `stronger_first` |

Gradient flow of any loss of a product A B^T keeps D = A^T A - B^T B, with weight decay gamma up to
e^(-2 gamma tau), without biases and rotary positions; what `factor_difference_kept` does beside that is done
by Adam and by noise. `factor_imbalance` is D over the sizes of the factors: it also falls while they grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnlaw.analysis.audit.rows import place_row
from attnlaw.analysis.columns import PLACE
from attnlaw.analysis.fit.null import null_of_spectrum
from attnlaw.analysis.fit.values import without_round_off
from attnlaw.checkpoints.blocks import Attention
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import MatrixLocation, Network
from attnlaw.core.tables import quantity_frame
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.training.modes import HeadKey, ModeTracker, top_singular_vectors
from attnlaw.training.monitor.columns import HEAD_KINDS, STEP_MODES
from attnlaw.training.order import stronger_first

Reals = NDArray[np.float64]
PLACE_NAMES = tuple(column.name for column in PLACE)
FACTOR_SIZES = ("factor_imbalance", "factor_difference")
HEAD_QUANTITIES = ("means", "modes")  # what reads the factors of heads once more


@dataclass(frozen=True)
class HeadReadings:
    """`means` are Tr M/sqrt(N) of heads whose M is square, `modes` the rows of those beyond the bulk."""

    means: dict[MatrixLocation, float] = field(default_factory=dict)
    modes: pl.DataFrame = field(default_factory=lambda: quantity_frame(STEP_MODES, []))


@dataclass
class History:
    """`starts` has the sizes of factors at the first step, by place; `tracker` follows modes."""

    starts: dict[HeadKey, dict[str, float | None]] = field(default_factory=dict)
    tracker: ModeTracker = field(default_factory=ModeTracker)

    @classmethod
    def of(
        cls, model: str, matrices: pl.DataFrame | None, modes: pl.DataFrame | None, before: int
    ) -> History:
        """That of the stored rows of a model before a step."""
        history = cls()
        earlier = _rows_before(matrices, model, before)
        if earlier is not None and set(FACTOR_SIZES) <= set(earlier.columns):
            history.starts = {
                tuple(row[name] for name in PLACE_NAMES): {name: row[name] for name in FACTOR_SIZES}
                for row in earlier.filter(pl.col("step") == pl.col("step").min()).iter_rows(named=True)
            }
        last = _rows_before(modes, model, before)
        if last is not None:
            newest = last.filter(pl.col("step") == pl.col("step").max())
            history.tracker = ModeTracker.from_rows(newest.iter_rows(named=True), PLACE_NAMES)
        elif earlier is not None:
            history.tracker.has_begun = True
        return history

    def relative_sizes(
        self, places: Sequence[HeadKey], sizes: dict[str, Sequence[float | None]]
    ) -> dict[str, list[Any]]:
        """The columns of sizes over their start, which is now where there is none yet."""
        for number, place in enumerate(places):
            self.starts.setdefault(place, {name: column[number] for name, column in sizes.items()})
        return {
            f"{name}_kept": [
                now / start if now is not None and (start := self.starts[place].get(name)) else None
                for place, now in zip(places, column, strict=True)
            ]
            for name, column in sizes.items()
        }

    def read_heads(
        self, model: Model, tree: Network[Spectrum | None], step: int, quantities: Sequence[str]
    ) -> HeadReadings:
        """What the stored factors of all measured heads tell: their means, and the rows of their modes."""
        readings, seen, edges = HeadReadings(), {}, {}
        for place, (left, right), spectrum in (
            measured_heads(model, tree) if {*HEAD_QUANTITIES} & {*quantities} else ()
        ):
            if left.shape[0] == right.shape[1]:
                readings.means[place] = float(np.einsum("ij,ji->", left, right)) / left.shape[0] ** 0.5
            null = null_of_spectrum(spectrum) if "modes" in quantities else None
            compared = None if null is None else null.compare(without_round_off(spectrum))
            if compared is not None and compared.outliers is not None:
                key = tuple(place_row(model.name, place).values())
                seen[key] = top_singular_vectors(left, right, compared.outliers)
                edges[key] = compared.edge
        rows = [
            {
                "step": step,
                **dict(zip(PLACE_NAMES, key, strict=True)),
                "mode": mode.number,
                "left_step": mode.left_step,
                "value": mode.value,
                "edge": edges[key],
            }
            for key, modes in self.tracker.follow(step, seen).items()
            for mode in modes
        ]
        return replace(readings, modes=quantity_frame(STEP_MODES, rows))


def _rows_before(rows: pl.DataFrame | None, model: str, step: int) -> pl.DataFrame | None:
    """The rows of a model before a step; None where there are none."""
    earlier = None if rows is None else rows.filter((pl.col("model") == model) & (pl.col("step") < step))
    return earlier if earlier is not None and earlier.height else None


def measured_heads(
    model: Model, tree: Network[Spectrum | None]
) -> Iterator[tuple[MatrixLocation, tuple[Reals, Reals], Spectrum]]:
    """The measured heads with their stored factors, N x d and d x N, read block by block."""
    cache: tuple[Any, list[tuple[Reals, Reals]]] = (None, [])
    for (place, product), (_, spectrum) in zip(model.network.leaves(), tree.leaves(), strict=True):
        if spectrum is None or place.head is None or not isinstance(product.block, Attention):
            continue
        if cache[0] != (product.tensors, place.kind):
            factors = list(product.block.factors(model, place.kind))
            cache = (product.tensors, place.kind), factors
        left, right = (np.asarray(factor, dtype=float) for factor in cache[1][place.head])
        yield place, (left, right), spectrum


def stronger_first_columns(modes: pl.DataFrame) -> dict[str, float | None]:
    """The test "stronger first" of the modes of a step, for QK and VO; null without two to compare."""
    row: dict[str, float | None] = {}
    known = modes.drop_nulls("left_step")
    for group in HEAD_KINDS:
        heads = known.filter(pl.col("kind") == group).group_by(PLACE_NAMES, maintain_order=True)
        agreement = stronger_first(
            [(head["value"].to_list(), head["left_step"].to_list()) for _, head in heads]
        )
        row[f"stronger_first_{group}"] = None if agreement is None else agreement.tau
        row[f"stronger_first_p_{group}"] = None if agreement is None else agreement.p_value
    return row
