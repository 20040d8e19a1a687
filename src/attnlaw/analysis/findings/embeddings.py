"""Detect tables of tokens that were never trained, or that lost rows, and norms and biases that were reset.

The entries of an untrained table are noise. The largest singular value of n x m independent entries of
variance v is close to sqrt(v) (sqrt(n) + sqrt(m)) (Bai and Yin 1993). Training moves it far above, because
the rows of trained tokens share directions. If all tokens are alike, as in synthetic tasks, training may
spread them evenly instead. So the lengths of the rows are compared, too. For noise, their relative spread is
sqrt((k - 1) / (4 m)), where the kurtosis k is the mean fourth power of the entries over their squared mean
square. Rows of trained tables differ several times as much, and evenly spread ones less.

A table that stays as it was drawn may belong to a model that works: 300 steps hardly move T5's table of 64
tokens with entries of size 1. So small tables are left out. Gains of 1 and biases of 0 are the values before
training. But gains may be folded into the next matrix on purpose, and a format may store zeros for a model
without biases.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.analysis.findings.evidence import (
    BIAS,
    NORM_GAIN,
    OFFSET_GAIN,
    TOKENS,
    Hit,
    StoredTensor,
    Subject,
    TensorLocation,
)
from attnlaw.analysis.findings.sizes import is_trained
from attnlaw.core.arrays import as_float, sample_indices
from attnlaw.spectra.krylov import lanczos, tridiagonals

SIDE, LEAST_ROWS = 4096, 256  # largest side of the part that is looked at, and the least number of rows
MOST_SPREAD = 1.5  # the spread of row lengths of noise is within this factor of that of independent entries
STEPS = 24  # Lanczos steps. The value for noise is then low by 1% or less, that of trained tables is exact
LEAST_ALIKE, SAMPLED_ALIKE = 3, 64  # fewest rows that are compared, and how many are looked at first
ROUNDING = 1e-12  # of the multiple of a row in float64
GRAVE = 0.1  # a table with more zero rows than this share is broken


def noise_ratio(table: NDArray[Any]) -> float | None:
    """Return the largest singular value of a table over that of noise; None if the lengths of rows differ.

    >>> noise = np.random.default_rng(0).standard_normal((500, 64))
    >>> round(noise_ratio(noise), 1), round(noise_ratio(noise + 1), 1)
    (1.0, 4.2)
    """
    part = as_float(table[np.ix_(*(sample_indices(side, SIDE) for side in table.shape))], np.float32)
    peaks = np.abs(part).max(axis=1, initial=0.0)
    part = part[peaks > 0]
    if len(part) < LEAST_ROWS or not np.isfinite(peaks).all():  # beyond float32
        return None
    part /= peaks.max()  # squares of tiny entries would vanish
    squares = part * part
    lengths = np.sqrt(squares.sum(axis=1, dtype=np.float64))
    mean_square = float(squares.mean(dtype=np.float64))
    squares *= squares
    kurtosis = float(squares.mean(dtype=np.float64)) / mean_square**2
    expected = sqrt(max(kurtosis - 1, 0.0) / (4 * part.shape[1]))
    if not expected / MOST_SPREAD < lengths.std() / lengths.mean() < expected * MOST_SPREAD:
        return None

    def gram(block: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(part.T @ (part @ block.astype(np.float32)), dtype=np.float64)

    rows, columns = part.shape
    start = np.random.default_rng(0).standard_normal((columns, 1))
    run = lanczos(gram, start, min(STEPS, columns))
    largest = sqrt(np.linalg.eigvalsh(tridiagonals(run)[0])[-1])
    return largest / (sqrt(mean_square) * (sqrt(rows) + sqrt(columns)))


def rows_alike(table: NDArray[Any]) -> str | None:
    """Return "equal" or "parallel" if all rows of a table are one row or its multiples, otherwise None."""
    if table.ndim != 2 or len(table) < LEAST_ALIKE or table.shape[1] < 2:
        return None
    part = as_float(table[sample_indices(len(table), SAMPLED_ALIKE)])
    if not np.isfinite(part).all() or not part.any() or not _is_rank_one(part):
        return None
    whole = as_float(table)
    if not np.isfinite(whole).all() or not _is_rank_one(whole):
        return None
    return "equal" if (whole == whole[0]).all() else "parallel"


def _is_rank_one(rows: NDArray[np.float64]) -> bool:
    """Return whether every row is a multiple of the row with the largest entry, up to rounding."""
    lengths = np.abs(rows).max(axis=1)
    longest = rows[lengths.argmax()]
    column = np.abs(longest).argmax()
    rest = rows - np.outer(rows[:, column] / longest[column], longest)
    return bool((np.abs(rest).max(axis=1) <= ROUNDING * lengths).all())


def alike_rows(subject: Subject, threshold: float) -> Iterator[Hit]:
    """Yield the tables of tokens, positions or types whose rows do not distinguish them."""
    for tensor in subject.evidence.tensors:
        if tensor.alike is not None and not tensor.constant:
            equal = tensor.alike == "equal"
            detail = f"all {tensor.shape[0]} rows are {'equal' if equal else 'multiples of one row'}"
            yield Hit(tensor.location, None, detail, None if equal else "warning")


def random_embedding(subject: Subject, threshold: float) -> Iterator[Hit]:
    if not is_trained(subject):  # other detectors report this, and all tables are noise then
        return
    for tensor in subject.evidence.tensors:
        if tensor.noise_ratio is not None and tensor.noise_ratio < threshold:
            yield Hit(tensor.location, tensor.noise_ratio)


def zero_embedding_rows(subject: Subject, threshold: float) -> Iterator[Hit]:
    """Yield the tables with several zero rows. One may be padding, and so are those at the end."""
    for tensor in subject.evidence.tensors:
        if tensor.part == TOKENS and tensor.inner_zero_rows > 1 and not tensor.not_finite:
            share = tensor.inner_zero_rows / tensor.shape[0]
            if share > threshold:
                level = "error" if share > GRAVE else None
                detail = f"{tensor.inner_zero_rows} of {tensor.shape[0]} rows are 0"
                yield Hit(tensor.location, share, detail, level)


LEAST_BIASES = 4


def gains_one(subject: Subject, threshold: float) -> Iterator[Hit]:
    gains = _of_parts(subject, NORM_GAIN, OFFSET_GAIN)
    if gains and all(map(_is_neutral, gains)) and is_trained(subject):
        yield Hit(TensorLocation(), None, f"all {len(gains)} gains of the norm layers are exactly 1")


def _is_neutral(gain: StoredTensor) -> bool:
    return gain.zero if gain.part == OFFSET_GAIN else gain.constant and gain.peak == 1


def biases_zero(subject: Subject, threshold: float) -> Iterator[Hit]:
    biases = _of_parts(subject, BIAS)
    are_zero = len(biases) >= LEAST_BIASES and all(bias.zero for bias in biases)
    if are_zero and is_trained(subject):
        yield Hit(TensorLocation(), None, f"all {len(biases)} biases in the layers are exactly 0")


def _of_parts(subject: Subject, *parts: str) -> list[StoredTensor]:
    return [tensor for tensor in subject.evidence.tensors if tensor.part in parts]
