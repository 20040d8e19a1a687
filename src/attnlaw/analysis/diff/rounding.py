"""Rounding: the formats that weights are stored in, and the errors that rounding to them leaves.

A rounding error is uniform in +-step/2, so over a matrix

    E |d|^2 = sum step^2 / 12,    sd |d|^2 = sqrt(sum step^4 / 180)

| format | step |
|---|---|
| floating point | `ulp(w) = 2^(max(floor log2 |w|, e_min) - p)` |
| b bits, absmax | `max |w| / (2^(b-1) - 1)` of a block; one extreme is exact |
| b bits, min-max | `(max w - min w) / (2^b - 1)` of a block; two extremes are exact |

Exact extremes have no error, so the variance is multiplied by 1 - 1/block or 1 - 2/block. Blocks run along
the rows or the columns of a stored matrix. For float8_e5m2 this overestimates errors by 0.7 percent: with two
bits they are no longer uniform.

The floor is what rounding alone leaves in the singular values of the difference of two heads or feed-forward
matrices. With v = step^2/12, the variance of the error of an entry, the largest singular value of the error
is about

    edge = sqrt(max row sum of v) + sqrt(max column sum of v)            (a matrix)
    edge(A1) |B1|_2 + |A0|_2 edge(B1)                                    (a head A B)

The rank above the floor counts singular values above 1.1 times that. The rank of a stored tensor is not
found in this way: see `low_rank`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.tensors import Tensors
from attnlaw.core.arrays import Reals
from attnlaw.core.estimate import Estimate
from attnlaw.core.variants import by_name
from attnlaw.spectra.spectrum import BLOCK

EXPONENT = np.uint64(0x7FF0000000000000)


@dataclass(frozen=True)
class FloatFormat:
    """A floating-point format."""

    name: str
    bits: int  # of the fraction; 12 fewer for float64, because computations are in float64, too
    least: int  # smallest exponent of a normal number
    dtype: Any  # the NumPy type

    def steps(self, weights: Reals) -> Reals:
        """Return the distance between neighbouring numbers of this format at each weight."""
        # The bits of the exponent alone are the power of two at or below a number.
        powers = (weights.astype(np.float64).view(np.uint64) & EXPONENT).view(np.float64)
        return np.asarray(np.maximum(powers, 2.0**self.least) * 2.0**-self.bits)

    def round_weights(self, weights: NDArray[Any], toward_zero: bool = False) -> Reals:
        """Return the weights in this format, rounded to the nearest number or toward zero."""
        with np.errstate(over="ignore", invalid="ignore"):
            stored = weights.astype(self.dtype)
            rounded = np.asarray(stored.astype(np.float64))
            if not toward_zero:
                return rounded
            # One step toward zero is the next smaller number if the sign bit is left out.
            bits = stored.view(f"u{stored.dtype.itemsize}")
            bits -= (np.abs(rounded) > np.abs(weights.astype(np.float64))).astype(bits.dtype)
            return np.asarray(bits.view(stored.dtype).astype(np.float64))

    def holds(self, weights: NDArray[Any]) -> bool:
        """Return whether this format can represent every weight exactly."""
        if weights.dtype == self.dtype:
            return True
        blocks = (weights[at : at + 64] for at in range(0, len(weights), 64))
        return all(np.array_equal(self.round_weights(block), block) for block in blocks)

    def contains(self, other: FloatFormat) -> bool:
        """Return whether this format can represent every number of another format."""
        return bool(self.bits >= other.bits and self.least - self.bits <= other.least - other.bits)


FLOATS = by_name(
    FloatFormat("float64", 40, -1022, np.float64),
    FloatFormat("float32", 23, -126, np.float32),
    FloatFormat("float16", 10, -14, np.float16),
    FloatFormat("bfloat16", 7, -126, ml_dtypes.bfloat16),
    FloatFormat("float8_e4m3fn", 3, -6, ml_dtypes.float8_e4m3fn),
    FloatFormat("float8_e5m2", 2, -14, ml_dtypes.float8_e5m2),
)


@dataclass(frozen=True)
class IntegerFormat:
    """An integer format with b bits for each weight and one step size for each block of weights."""

    bits: int
    block: int | None  # number of weights in a block; None for a whole row or column
    min_max: bool = False  # whether the grid reaches from the smallest to the largest weight
    columns: bool = False  # whether blocks run along columns instead of rows
    half: bool = False  # whether start and step of a block are stored in float16, as in GGUF

    @property
    def name(self) -> str:
        words = [f"int{self.bits}/{self.block or 'row'}", "min-max" if self.min_max else "absmax"]
        return " ".join([*words, "columns"] if self.columns else words)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether the rows (or columns) of a matrix of this shape can be divided into whole blocks."""
        return self.block is None or shape[0 if self.columns else 1] % self.block == 0

    def steps(self, weights: Reals) -> Reals:
        """Return for each weight the step of its block."""
        steps = self._grid(self._blocks(weights))[1]
        return self._whole(np.broadcast_to(steps, (*steps.shape[:2], self._length(weights))), weights.shape)

    def round_weights(self, weights: NDArray[Any]) -> Reals:
        """Return each weight rounded to the grid of its block. Ties go to even multiples of the step."""
        blocks = self._blocks(weights.astype(np.float64))
        start, steps = self._grid(blocks)
        safe = np.where(steps > 0, steps, 1.0)
        return self._whole(start + steps * np.rint((blocks - start) / safe), weights.shape)

    def _grid(self, blocks: Reals) -> tuple[Reals, Reals]:
        if self.min_max:
            low, high = self._stored(blocks.min(axis=2, keepdims=True)), blocks.max(axis=2, keepdims=True)
            return low, self._stored((high - low) / (2**self.bits - 1))
        top = np.abs(blocks).max(axis=2, keepdims=True)
        return np.zeros_like(top), self._stored(top / (2 ** (self.bits - 1) - 1))

    def _stored(self, numbers: Reals) -> Reals:
        return FLOATS["float16"].round_weights(numbers) if self.half else numbers

    def _length(self, weights: NDArray[Any]) -> int:
        return self.block or weights.shape[0 if self.columns else 1]

    def _blocks(self, weights: Reals) -> Reals:
        along = weights.T if self.columns else weights
        return along.reshape(along.shape[0], -1, self._length(weights))

    def _whole(self, blocks: Reals, shape: tuple[int, ...]) -> Reals:
        return blocks.reshape(shape[::-1]).T if self.columns else blocks.reshape(shape)


BITS, BLOCKS = (8, 6, 5, 4, 3, 2), (None, 32, 64, 128)
INTEGERS = by_name(*(IntegerFormat(*args) for args in product(BITS, BLOCKS, (False, True), (False, True))))
Format = FloatFormat | IntegerFormat
# Share of the entries that an integer format must explain, and the relative error that it may leave: steps
# may be stored in float16, or the result in bfloat16. Wrong formats explain at most 65 percent.
EXPLAINED, CLOSE = 0.99, 2.0**-8
# The error must also be small compared with that of the format, and most of the change must be its error:
# otherwise a base that is already on the grid would be "rounded" to it by any small update.
CLOSE_STEP, MOST_LEFT, LEAST_ROUNDED = 1 / 8, 0.1, 0.5
# Number of entries, in whole rows or columns, for a first trial, and the share that must be explained.
TRIED, TRIED_SHARE = 512, 0.85
# Rounding to 8 bits in blocks of 32 changes a matrix by three times this relative size.
LEAST_SIZE = 1e-3


def rounding_null(weights: Reals, form: Format) -> Estimate:
    """Return the mean and standard deviation of |d|^2, where d is the error of rounding these weights.

    >>> weights = np.random.default_rng(0).standard_normal((256, 256))
    >>> half = FLOATS["float16"]
    >>> expected, found = rounding_null(weights, half), half.round_weights(weights) - weights
    >>> bool(abs((found**2).sum() - expected.value) < 4 * expected.error)
    True
    """
    share = 1 - _exact_share(weights, form)
    steps = form.steps(weights)
    return Estimate(share * float(np.sum(steps**2)) / 12, float(np.sqrt(share * np.sum(steps**4) / 180)))


def _exact_share(weights: Reals, form: Format) -> float:
    if isinstance(form, FloatFormat):
        return 0.0
    length: int = form.block or weights.shape[0 if form.columns else 1]
    return (2 if form.min_max else 1) / length


def detect_cast(base: NDArray[Any], model: NDArray[Any]) -> FloatFormat | None:
    """Return the float format to which the base was cast, or None if the base was not cast.

    Numbers in bfloat16 may later have been stored in float16, which rounds the smallest numbers again.

    >>> base = np.array([[1.0, 1 / 3]], dtype=np.float32)
    >>> detect_cast(base, base.astype(np.float16)).name, detect_cast(base, 2 * base)
    ('float16', None)
    """
    stored = FLOATS.get(base.dtype.name)
    blocks = range(0, len(base), 64)
    for form in FLOATS.values():
        if stored is not None and form.contains(stored):
            continue
        thens = (None, FLOATS["float16"]) if form.name == "bfloat16" else (None,)
        for toward_zero, then in product((False, True), thens):
            parts = ((base[at : at + 64], model[at : at + 64]) for at in blocks)
            if all(np.array_equal(_cast(form, before, toward_zero, then), after) for before, after in parts):
                return form
    return None


def _cast(form: FloatFormat, weights: NDArray[Any], toward_zero: bool, then: FloatFormat | None) -> Reals:
    rounded = form.round_weights(weights, toward_zero)
    return rounded if then is None else then.round_weights(rounded)


def detect_code(
    base: NDArray[Any], model: NDArray[Any], grid: Grid, size: float | None = None
) -> IntegerFormat | None:
    """Return the integer format that rounds the base to the model, or None if there is none.

    `grid` has the numbers that the model's file can hold. `size` is the size of the change relative to the
    base. Below 1e-3 no format is tried, because integer formats cause larger changes.
    """
    if min(base.shape) < 2 or (size is not None and size < LEAST_SIZE):
        return None
    candidates = list(_candidates(base, model, grid))
    candidates += [replace(form, half=True) for form in candidates if form.min_max]
    shares = {form: _explained_share(base, model, grid, form) for form in candidates}
    best = max(shares, key=lambda form: shares[form], default=None)
    if best is None or shares[best] < EXPLAINED:
        return None
    expected = best.round_weights(base)
    change = float(np.sum((model.astype(np.float64) - base) ** 2))
    left = float(np.sum((model - grid.round_weights(expected)) ** 2))
    rounded = float(np.sum((expected - base) ** 2))
    return best if left <= MOST_LEFT * change and rounded >= LEAST_ROUNDED * change else None


def _candidates(base: NDArray[Any], model: NDArray[Any], grid: Grid) -> Iterator[IntegerFormat]:
    """Yield the integer formats that explain most entries in a sample of rows or columns."""
    for form in INTEGERS.values():
        if form.fits(base.shape):
            length, side = base.shape if form.columns else base.shape[::-1]
            some = slice(None, None, max(1, side // -(-TRIED // length)))
            few = (slice(None), some) if form.columns else (some, slice(None))
            if _explained_share(base[few], model[few], grid, form) >= TRIED_SHARE:
                yield form


def _explained_share(base: NDArray[Any], model: NDArray[Any], grid: Grid, form: IntegerFormat) -> float:
    expected = form.round_weights(base)
    allowed = np.minimum(CLOSE * np.abs(expected), CLOSE_STEP * np.abs(expected - base).max())
    return float(np.mean((np.abs(model - expected) <= allowed) | (model == grid.round_weights(expected))))


@dataclass(frozen=True)
class CodedFormat:
    """A quantised code that attnlaw decodes. The steps of the code are estimated from the decoded weights."""

    name: str

    def steps(self, weights: Reals) -> Reals:
        return stored_steps(weights.astype(np.float32), self.name)

    def round_weights(self, weights: NDArray[Any]) -> Reals:
        """Return the weights unchanged, because the steps and offsets of the code's blocks are not known."""
        return np.asarray(weights.astype(np.float64))

    def holds(self, weights: NDArray[Any]) -> bool:
        return True


Grid = FloatFormat | CodedFormat
NARROW = ("float8_e5m2", "float8_e4m3fn", "bfloat16", "float16")


def effective_format(array: NDArray[Any], dtype: str) -> Grid:
    """Return the coarsest format that can hold all weights of a tensor exactly, whatever type its file names.

    For example, a model that was saved in bfloat16 and converted to float32 has the format bfloat16. If
    several formats fit, the function returns the one with the largest rounding errors, because small float16
    numbers also fit bfloat16. The function finds no format for tensors whose entries have one magnitude, such
    as gains of 1.

    >>> effective_format(np.array([[1.0, 0.25, 1 / 3]], dtype=np.float16), "float32").name
    'float16'
    """
    stored = FLOATS[array.dtype.name] if dtype in FLOATS else CodedFormat(dtype)
    if _has_one_magnitude(array):
        return stored
    grids: list[Grid] = [stored, *(FLOATS[name] for name in NARROW if FLOATS[name] != stored)]
    held = [grid for grid in grids if grid.holds(array)]
    return held[0] if len(held) == 1 else max(held, key=lambda grid: _total_variance(grid, array))


def _has_one_magnitude(array: NDArray[Any]) -> bool:
    """Return whether all entries that are not 0 have the same magnitude."""
    if array.size < 2:
        return False
    for some in (array.reshape(-1)[:64], array):  # most tensors differ in their first entries
        magnitudes = np.abs(some[some != 0])
        if magnitudes.size and magnitudes.min() != magnitudes.max():
            return False
    return True


def _total_variance(grid: Grid, array: NDArray[Any]) -> float:
    blocks = (array[rows] for rows in row_blocks((len(array), max(1, array[0].size))))
    return sum(float(np.sum(grid.steps(block.astype(np.float64)) ** 2)) for block in blocks)


FLOOR_MARGIN = 1.1
# Number of weights that share a step in every quantised code that attnlaw decodes.
CODED_BLOCK = 32
SCALES_SUFFIX = " with scales"


def edge(steps: Reals) -> float:
    """Estimate the largest singular value of a matrix of rounding errors from the steps of its entries."""
    variances = steps**2 / 12
    return float(np.sqrt(variances.sum(axis=0).max()) + np.sqrt(variances.sum(axis=1).max()))


def row_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield slices of rows that fit into the cache of a core."""
    size = max(1, BLOCK // max(shape[1], 1))
    return (slice(start, start + size) for start in range(0, shape[0], size))


def rank_above(values: Reals, floor: float) -> int:
    return int(np.count_nonzero(values > FLOOR_MARGIN * floor))


def stored_steps(array: NDArray[Any], dtype: str) -> Reals:
    """Return the rounding step of each entry. All weights of a block of a quantised code have one step."""
    weights = array.astype(np.float64)
    if dtype.endswith(SCALES_SUFFIX):
        # The scale need not be a power of two, so the step is right up to a factor of two.
        return FLOATS[dtype.removesuffix(SCALES_SUFFIX)].steps(weights)
    if dtype in FLOATS:  # the array may be finer than its file: an adapter is added in float64
        return FLOATS[array.dtype.name].steps(weights)
    return _coded_steps(weights)


def _coded_steps(weights: Reals) -> Reals:
    """Return for each decoded weight the smallest distance between two different values of its block."""
    flat = weights.reshape(-1)
    if flat.size % CODED_BLOCK:
        return FLOATS["float32"].steps(weights)
    blocks = flat.reshape(-1, CODED_BLOCK)
    gaps = np.diff(np.sort(blocks, axis=1), axis=1)
    wide = gaps > 1e-4 * np.abs(blocks).max(axis=1, keepdims=True)  # smaller gaps are round-off of one value
    least = np.where(wide, gaps, np.inf).min(axis=1, keepdims=True)
    steps = np.where(np.isfinite(least), least, np.abs(blocks).max(axis=1, keepdims=True))
    return np.asarray(np.broadcast_to(steps, blocks.shape)).reshape(weights.shape)


class Steps(Tensors):
    """Tensors that return rounding steps in place of weights: of a format or of the file, times a factor."""

    def __init__(
        self,
        tensors: Tensors,
        formats: Mapping[str, Format | Grid] | None = None,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        self.source, self.shapes, self.metadata = tensors.source, tensors.shapes, tensors.metadata
        self._tensors, self._formats, self._factors = tensors, formats or {}, factors or {}

    def dtype(self, name: str) -> str:
        return "float64"

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        stored = self._tensors.read(name, member)
        form = self._formats.get(name)
        if form is not None:
            steps = form.steps(stored.astype(np.float64))
        else:
            steps = stored_steps(stored, self._tensors.dtype(name))
        return steps * self._factors.get(name, 1.0)
