"""What earlier steps of a run tell a measurement: the first sizes of factors, and modes that stand out.

| quantity | in the row of a matrix | in the row of the step |
|---|---|---|
| `factor_imbalance` | of the factors of a head, and `factor_difference`; `_kept`: over the start | medians |
| `means` | `mean` = Tr M/sqrt(N) and `frobenius` = |M|_F/sqrt(N) of a head's M | medians of their sizes |
| `modes` | rows of their own: values beyond the bulk, when each left it | the test `stronger_first` |

Gradient flow of any loss of a product A B^T keeps D = A^T A - B^T B, with weight decay gamma up to
e^(-2 gamma tau), without biases and rotary positions; what `factor_difference_kept` does beside that is done
by Adam and by noise. `factor_imbalance` is D over the sizes of the factors: it also falls while they grow.

Modes of heads: singular values that stand out of the null's bulk, followed from step to step.

A mode is a singular value beyond the edge of the head's finite-size null, with its two directions. From one
measurement to the next it is the one that shares its directions most: the assignment of largest sum of
`(u.u')^2 (v.v')^2`, where `|u.u'| |v.v'|` is at least a quarter. A value that was no mode before has just
left the bulk; a mode that is not found again has gone back to it.

A run that resumes has no directions of earlier steps: there the largest value is taken for the mode that was
the largest before, and so on.

Stronger first: whether directions that end up larger left the bulk earlier, head by head.

Within a head, every two modes that left at different steps are a pair; it is concordant where the larger of
them left first. `tau = (concordant - discordant)/pairs`, over the pairs of all heads. The p-value is that of
exchangeable steps: how often steps that are shuffled within each head order as many pairs, one-sided.

In the theory of one head a target's mode x is learned at `ln(x/s)/(8 G x)` (docs/dynamics.md): stronger
first. Of a real run it is an analogy: its target is not known, and what left earlier had longer to grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import scipy

from attnlaw.analysis.columns import LOCATION, location_row
from attnlaw.analysis.fit.null import null_of_spectrum, without_round_off
from attnlaw.checkpoints.blocks import Attention
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import MatrixLocation, Network
from attnlaw.core.arrays import Reals
from attnlaw.core.tables import quantity_frame
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.training.monitor.columns import HEAD_KINDS, STEP_MODES

HeadKey = tuple[Any, ...]  # where a head stands
LEAST_OVERLAP = 0.25  # the least product of overlaps of a mode with itself, a measurement later


@dataclass(frozen=True, eq=False)
class Mode:
    """A singular value beyond the bulk; `number` counts the modes of its head in the order they left in.

    `left_step` is the first measured step at which it stood out; None where it did so when the run began.
    """

    number: int
    left_step: int | None
    value: float
    u: Reals | None = field(default=None, repr=False)
    v: Reals | None = field(default=None, repr=False)


@dataclass
class ModeTracker:
    """The modes of every head at the last measurement, by head; `counts`: how many each has had."""

    modes: dict[HeadKey, list[Mode]] = field(default_factory=dict)
    counts: dict[HeadKey, int] = field(default_factory=dict)
    has_begun: bool = False

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]], key: tuple[str, ...]) -> ModeTracker:
        """That of stored rows of one step, whose places are the columns of `key`."""
        tracker = cls(has_begun=True)
        for row in rows:
            location = tuple(row[name] for name in key)
            tracker.modes.setdefault(location, []).append(Mode(row["mode"], row["left_step"], row["value"]))
            tracker.counts[location] = max(tracker.counts.get(location, 0), row["mode"] + 1)
        return tracker

    def follow(
        self, step: int, seen: Mapping[HeadKey, tuple[Reals, Reals, Reals]]
    ) -> dict[HeadKey, list[Mode]]:
        """The modes of all heads at a step, from the values beyond the bulk and their directions.

        `seen`: by head values (k,), descending, u (rows, k) and v (cols, k).
        """
        modes = {}
        for location, (values, u, v) in seen.items():
            earlier = self.modes.get(location, [])
            same = _match_modes(earlier, values, u, v)
            head_modes = []
            for i, value in enumerate(values.tolist()):
                before = same.get(i)
                if before is None:
                    number = self.counts.get(location, 0)
                    self.counts[location] = number + 1
                    before = Mode(number, step if self.has_begun else None, value)
                head_modes.append(Mode(before.number, before.left_step, value, u[:, i], v[:, i]))
            modes[location] = head_modes
        self.modes, self.has_begun = modes, True
        return modes


def _match_modes(earlier: list[Mode], values: Reals, u: Reals, v: Reals) -> dict[int, Mode]:
    """Which value is which mode of before."""
    if not earlier or not values.size:
        return {}
    lefts = [mode.u for mode in earlier if mode.u is not None]
    rights = [mode.v for mode in earlier if mode.v is not None]
    if not lefts:
        ranked = sorted(earlier, key=lambda mode: -mode.value)
        return dict(zip(range(values.size), ranked, strict=False))
    shared = np.abs(np.stack(lefts) @ u) * np.abs(np.stack(rights) @ v)
    rows, columns = scipy.optimize.linear_sum_assignment(shared**2, maximize=True)
    return {
        int(j): earlier[i]
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
        if shared[i, j] >= LEAST_OVERLAP
    }


def top_singular_vectors(left: Reals, right: Reals, count: int) -> tuple[Reals, Reals, Reals]:
    """The largest singular values of `left @ right` with their directions: (count,), (rows, .), (cols, .)."""
    q_left, r_left = np.linalg.qr(left)
    q_right, r_right = np.linalg.qr(right.T)
    u, values, v = np.linalg.svd(r_left @ r_right.T)
    return values[:count], q_left @ u[:, :count], q_right @ v[:count].T


SHUFFLES = 999


@dataclass(frozen=True)
class OrderAgreement:
    """`tau` from -1 (weaker first) to 1 (stronger first) over so many `pairs`, and its one-sided p-value."""

    tau: float
    p_value: float
    pairs: int


def stronger_first(
    heads: Sequence[tuple[Sequence[float], Sequence[float]]], seed: int = 0
) -> OrderAgreement | None:
    """The order of modes, given the sizes of each head's modes and the steps at which they left.

    None where no two modes of a head left at different steps.

    >>> stronger_first([([5.0, 4.0, 3.0], [10, 20, 30]), ([2.0, 1.0], [40, 40])])
    OrderAgreement(tau=1.0, p_value=0.16..., pairs=3)
    """
    rng = np.random.default_rng(seed)
    score, pairs, shuffled = 0.0, 0, np.zeros(SHUFFLES)
    for given in heads:
        sizes, steps = (np.asarray(numbers, dtype=float) for numbers in given)
        first, second = np.triu_indices(sizes.size, 1)
        larger = np.sign(sizes[first] - sizes[second])
        score += float(larger @ np.sign(steps[second] - steps[first]))
        pairs += int(np.count_nonzero((steps[first] != steps[second]) & (larger != 0)))
        drawn = rng.permuted(np.tile(steps, (SHUFFLES, 1)), axis=1)
        shuffled += np.sign(drawn[:, second] - drawn[:, first]) @ larger
    if pairs == 0:
        return None
    return OrderAgreement(
        score / pairs, (1 + int(np.count_nonzero(shuffled >= score))) / (1 + SHUFFLES), pairs
    )


LOCATION_NAMES = tuple(column.name for column in LOCATION)
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
                tuple(row[name] for name in LOCATION_NAMES): {name: row[name] for name in FACTOR_SIZES}
                for row in earlier.filter(pl.col("step") == pl.col("step").min()).iter_rows(named=True)
            }
        last = _rows_before(modes, model, before)
        if last is not None:
            newest = last.filter(pl.col("step") == pl.col("step").max())
            history.tracker = ModeTracker.from_rows(newest.iter_rows(named=True), LOCATION_NAMES)
        elif earlier is not None:
            history.tracker.has_begun = True
        return history

    def relative_sizes(
        self, locations: Sequence[HeadKey], sizes: dict[str, Sequence[float | None]]
    ) -> dict[str, list[Any]]:
        """The columns of sizes over their start, which is now where there is none yet."""
        for number, location in enumerate(locations):
            self.starts.setdefault(location, {name: column[number] for name, column in sizes.items()})
        return {
            f"{name}_kept": [
                now / start if now is not None and (start := self.starts[location].get(name)) else None
                for location, now in zip(locations, column, strict=True)
            ]
            for name, column in sizes.items()
        }

    def read_heads(
        self, model: Model, tree: Network[Spectrum | None], step: int, quantities: Sequence[str]
    ) -> HeadReadings:
        """What the stored factors of all measured heads tell: their means, and the rows of their modes."""
        readings, seen, edges = HeadReadings(), {}, {}
        for location, (left, right), spectrum in (
            measured_heads(model, tree) if {*HEAD_QUANTITIES} & {*quantities} else ()
        ):
            if left.shape[0] == right.shape[1]:
                readings.means[location] = float(np.einsum("ij,ji->", left, right)) / left.shape[0] ** 0.5
            null = null_of_spectrum(spectrum) if "modes" in quantities else None
            compared = None if null is None else null.compare(without_round_off(spectrum))
            if compared is not None and compared.outliers is not None:
                key = tuple(location_row(model.name, location).values())
                seen[key] = top_singular_vectors(left, right, compared.outliers)
                edges[key] = compared.edge
        rows = [
            {
                "step": step,
                **dict(zip(LOCATION_NAMES, key, strict=True)),
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
    for (location, product), (_, spectrum) in zip(model.network.leaves(), tree.leaves(), strict=True):
        if spectrum is None or location.head is None or not isinstance(product.block, Attention):
            continue
        if cache[0] != (product.tensors, location.kind):
            factors = list(product.block.factors(model, location.kind))
            cache = (product.tensors, location.kind), factors
        left, right = (np.asarray(factor, dtype=float) for factor in cache[1][location.head])
        yield location, (left, right), spectrum


def stronger_first_columns(modes: pl.DataFrame) -> dict[str, float | None]:
    """The test "stronger first" of the modes of a step, for QK and VO; null without two to compare."""
    row: dict[str, float | None] = {}
    known = modes.drop_nulls("left_step")
    for group in HEAD_KINDS:
        heads = known.filter(pl.col("kind") == group).group_by(LOCATION_NAMES, maintain_order=True)
        agreement = stronger_first(
            [(head["value"].to_list(), head["left_step"].to_list()) for _, head in heads]
        )
        row[f"stronger_first_{group}"] = None if agreement is None else agreement.tau
        row[f"stronger_first_p_{group}"] = None if agreement is None else agreement.p_value
    return row
