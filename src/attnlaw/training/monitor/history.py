"""Quantities that compare a step of a training run with earlier ones: factor sizes and modes of heads.

**Factors.** Gradient flow of any loss of a product A B^T conserves D = A^T A - B^T B; with weight decay gamma
it decays as e^(-2 gamma tau). This holds without biases and rotary positions. Other changes of
`factor_difference_kept` come from Adam and from noise. `factor_imbalance` is D over the sizes of the factors,
so it also falls while they grow.

**Modes.** A mode is a singular value beyond the edge of the head's finite-size random null, with its two
singular vectors. Modes are followed from one measurement to the next by the assignment with the largest sum
of `(u.u')^2 (v.v')^2`, if `|u.u'| |v.v'|` is at least a quarter. A value that was not a mode before has just
left the bulk; a mode without a successor has returned to it. A run that resumes does not have the earlier
singular vectors. There the largest value continues the largest mode, and so on.

**Stronger first.** Do modes that end up larger leave the bulk earlier? Within a head, every two modes that
left at different steps form a pair. It is concordant if the larger one left first. `tau = (concordant -
discordant)/pairs`, over the pairs of all heads. The one-sided p-value is the share of random shuffles of the
steps within each head that order as many pairs. In the theory of one head, a target's mode x is learned at
time `ln(x/s)/(8 G x)` (docs/commands/dynamics.md), so stronger modes come first. For a real run
this is an analogy: its target is unknown, and modes that left earlier had longer to grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

HeadKey = tuple[Any, ...]  # the location of a head, as in its row
LEAST_OVERLAP = 0.25  # the least overlap of a mode's vectors in two measurements
SHUFFLES = 999
LOCATION_NAMES = tuple(column.name for column in LOCATION)
FACTOR_SIZES = ("factor_imbalance", "factor_difference")
HEAD_QUANTITIES = ("means", "modes")  # the quantities that need the factors of heads


@dataclass(frozen=True, eq=False)
class Mode:
    """A mode: a singular value beyond the random bulk, with its singular vectors if they are known."""

    number: int  # counts the modes of a head in the order in which they left the bulk
    left_step: int | None  # the first measured step beyond the bulk; None if it was there when the run began
    value: float
    u: Reals | None = field(default=None, repr=False)
    v: Reals | None = field(default=None, repr=False)


@dataclass
class ModeTracker:
    """The modes of all heads at the last measurement.

    `counts` has the number of modes that each head has had so far.
    """

    modes: dict[HeadKey, list[Mode]] = field(default_factory=dict)
    counts: dict[HeadKey, int] = field(default_factory=dict)
    has_begun: bool = False

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]], key: tuple[str, ...]) -> ModeTracker:
        """Restore the tracker from the rows of one step. `key` names the columns that identify a head."""
        tracker = cls(has_begun=True)
        for row in rows:
            location = tuple(row[name] for name in key)
            tracker.modes.setdefault(location, []).append(Mode(row["mode"], row["left_step"], row["value"]))
            tracker.counts[location] = max(tracker.counts.get(location, 0), row["mode"] + 1)
        return tracker

    def follow(
        self, step: int, seen: Mapping[HeadKey, tuple[Reals, Reals, Reals]]
    ) -> dict[HeadKey, list[Mode]]:
        """Return the modes of all heads at this step, with the numbers that they had at earlier steps.

        For each head, `seen` has the k values beyond the bulk in descending order, with u (rows, k) and v
        (cols, k).
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
    if not earlier or not values.size:
        return {}
    lefts = [mode.u for mode in earlier if mode.u is not None]
    rights = [mode.v for mode in earlier if mode.v is not None]
    if not lefts:
        ranked = sorted(earlier, key=lambda mode: -mode.value)
        return dict(zip(range(values.size), ranked, strict=False))
    shared = np.abs(np.stack(lefts) @ u) * np.abs(np.stack(rights) @ v)
    rows, columns = scipy.optimize.linear_sum_assignment(shared**2, maximize=True)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return {j: earlier[i] for i, j in pairs if shared[i, j] >= LEAST_OVERLAP}


def top_singular_vectors(left: Reals, right: Reals, count: int) -> tuple[Reals, Reals, Reals]:
    """Return the `count` largest singular values of `left @ right`, with vectors as columns."""
    q_left, r_left = np.linalg.qr(left)
    q_right, r_right = np.linalg.qr(right.T)
    u, values, v = np.linalg.svd(r_left @ r_right.T)
    return values[:count], q_left @ u[:, :count], q_right @ v[:count].T


@dataclass(frozen=True)
class OrderAgreement:
    """The result of the test "stronger modes first": `tau` from -1 (last) to 1, and its p-value."""

    tau: float
    p_value: float
    pairs: int


def stronger_first(
    heads: Sequence[tuple[Sequence[float], Sequence[float]]], seed: int = 0
) -> OrderAgreement | None:
    """Test whether larger modes left the bulk earlier.

    Return None if no head has two modes of different size that left at different steps.

    Args:
        heads: the sizes of each head's modes, and the steps at which they left.

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
    p_value = (1 + int(np.count_nonzero(shuffled >= score))) / (1 + SHUFFLES)
    return OrderAgreement(score / pairs, p_value, pairs)


@dataclass
class History:
    """The results of earlier steps that the next measurement needs.

    `starts` has the sizes of each head's factors at the first step. `tracker` has the modes of all earlier
    steps.
    """

    starts: dict[HeadKey, dict[str, float | None]] = field(default_factory=dict)
    tracker: ModeTracker = field(default_factory=ModeTracker)

    @classmethod
    def of(cls, name: str, matrices: pl.DataFrame | None, modes: pl.DataFrame | None, before: int) -> History:
        """Restore the history of a model from its saved rows of steps before `before`."""
        history = cls()
        earlier = _rows_before(matrices, name, before)
        if earlier is not None and set(FACTOR_SIZES) <= set(earlier.columns):
            history.starts = {
                tuple(row[column] for column in LOCATION_NAMES): {size: row[size] for size in FACTOR_SIZES}
                for row in earlier.filter(pl.col("step") == pl.col("step").min()).iter_rows(named=True)
            }
        last = _rows_before(modes, name, before)
        if last is not None:
            newest = last.filter(pl.col("step") == pl.col("step").max())
            history.tracker = ModeTracker.from_rows(newest.iter_rows(named=True), LOCATION_NAMES)
        elif earlier is not None:
            history.tracker.has_begun = True
        return history

    def relative_sizes(
        self, locations: Sequence[HeadKey], sizes: dict[str, Sequence[float | None]]
    ) -> dict[str, list[Any]]:
        """Return each head's sizes divided by those at its first measurement, as columns named `..._kept`."""
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
    ) -> tuple[dict[MatrixLocation, float], pl.DataFrame]:
        """Read the factors of all heads that are measured, if a quantity needs them.

        Returns:
            The means Tr M/sqrt(N) of square products M, keyed by location, and the rows of all modes.
        """
        means, seen, edges = {}, {}, {}
        heads = measured_heads(model, tree) if {*HEAD_QUANTITIES} & {*quantities} else ()
        for location, (left, right), spectrum in heads:
            if left.shape[0] == right.shape[1]:
                means[location] = float(np.einsum("ij,ji->", left, right)) / left.shape[0] ** 0.5
            null = null_of_spectrum(spectrum) if "modes" in quantities else None
            compared = None if null is None else null.compare(without_round_off(spectrum))
            if compared is not None and compared.outliers is not None:
                key = tuple(location_row(model.name, location).values())
                seen[key] = top_singular_vectors(left, right, compared.outliers)
                edges[key] = compared.edge
        rows = [
            {"step": step, **dict(zip(LOCATION_NAMES, key, strict=True)), "edge": edges[key]}
            | {"mode": mode.number, "left_step": mode.left_step, "value": mode.value}
            for key, modes in self.tracker.follow(step, seen).items()
            for mode in modes
        ]
        return means, quantity_frame(STEP_MODES, rows)


def _rows_before(rows: pl.DataFrame | None, model: str, step: int) -> pl.DataFrame | None:
    earlier = None if rows is None else rows.filter((pl.col("model") == model) & (pl.col("step") < step))
    return earlier if earlier is not None and earlier.height else None


def measured_heads(
    model: Model, tree: Network[Spectrum | None]
) -> Iterator[tuple[MatrixLocation, tuple[Reals, Reals], Spectrum]]:
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
    """Return the results of the test "stronger first" for QK and for VO. They are None without two modes."""
    row: dict[str, float | None] = {}
    known = modes.drop_nulls("left_step")
    for group in HEAD_KINDS:
        heads = known.filter(pl.col("kind") == group).group_by(LOCATION_NAMES, maintain_order=True)
        modes_by_head = [(head["value"].to_list(), head["left_step"].to_list()) for _, head in heads]
        agreement = stronger_first(modes_by_head)
        row[f"stronger_first_{group}"] = None if agreement is None else agreement.tau
        row[f"stronger_first_p_{group}"] = None if agreement is None else agreement.p_value
    return row
