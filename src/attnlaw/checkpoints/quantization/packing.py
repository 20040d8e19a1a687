"""Unpack codes of few bits, and decode matrices in blocks of rows.

All functions work on the last axis. A *stream* of codes runs on over the ends of little-endian words: code k
takes the bits b k to b k + b - 1 of all words in order, from the least significant bit on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import gcd
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

BLOCK = 2**18  # weights that are decoded at a time, about 1 MB, so that all passes run in the cache
Weights = NDArray[np.float32]
Codes = NDArray[np.uint8]
# The number that each byte of a float8 type stands for.
FLOAT8 = {
    name: np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float32)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
}
# The 16 values of 4-bit floats (e2m1), by their code.
FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
# The two values in each of the 256 bytes, low nibble first, as eight bytes that are copied at once.
FLOAT4_PAIRS = np.stack([np.tile(FLOAT4, 16), np.repeat(FLOAT4, 16)], axis=1).view(np.uint64)[:, 0]
# The power of two that each e8m0 byte stands for. The last one is not a number.
POWERS = np.append(2.0 ** (np.arange(255) - 127.0), np.nan).astype(np.float32)


def unpack(stored: NDArray[Any], bits: int, count: int) -> Codes:
    """Return the first `count` codes of each row of a stream, as uint8. `bits` is at most 8.

    >>> unpack(np.array([0b110_101_100_011_010_001], np.uint32), bits=3, count=6)
    array([1, 2, 3, 4, 5, 6], dtype=uint8)
    """
    data = np.ascontiguousarray(stored).view(np.uint8) if stored.ndim else stored.reshape(1).view(np.uint8)
    if bits == 8:
        return data[..., :count]
    shared = 8 // gcd(bits, 8)  # codes in the smallest number of whole bytes
    group = bits * shared // 8
    groups = -(-count // shared)
    if short := groups * group - data.shape[-1]:
        if short > 0:
            data = np.concatenate([data, np.zeros((*data.shape[:-1], short), np.uint8)], axis=-1)
        data = data[..., : groups * group]
    columns = data.reshape(*data.shape[:-1], groups, group)
    codes = np.empty((*data.shape[:-1], groups, shared), np.uint8)
    mask = np.uint8(2**bits - 1)
    for number in range(shared):
        byte, shift = divmod(bits * number, 8)
        code = codes[..., number]
        np.right_shift(columns[..., byte], np.uint8(shift), out=code)
        if shift + bits > 8:
            np.bitwise_or(code, columns[..., byte + 1] << np.uint8(8 - shift), out=code)
        if shift + bits != 8:
            np.bitwise_and(code, mask, out=code)
    return codes.reshape(*data.shape[:-1], groups * shared)[..., :count]


def unpack_words(stored: NDArray[Any], bits: int, count: int) -> Codes:
    """Return the first `count` codes of each row of 32-bit words that hold 32 // bits whole codes each."""
    words = np.ascontiguousarray(stored).view(np.uint32)
    codes = np.empty((*words.shape, 32 // bits), np.uint8)
    for number in range(32 // bits):
        codes[..., number] = (words >> np.uint32(bits * number)) & np.uint32(2**bits - 1)
    return codes.reshape(*words.shape[:-1], -1)[..., :count]


def unpack_columns(stored: NDArray[Any], order: tuple[int, ...]) -> Codes:
    """Return 4-bit codes (outputs, inputs) of words (inputs, outputs / 8).

    `order` has the number of the nibble, counted from the lowest, of each of the eight outputs of a word.
    """
    columns = np.ascontiguousarray(stored.T).view(np.uint32)
    codes = np.empty((len(columns), len(order), stored.shape[0]), np.uint8)
    for output, nibble in enumerate(order):
        np.right_shift(columns, np.uint32(4 * nibble), out=codes[:, output], casting="unsafe")
    codes &= np.uint8(15)
    return codes.reshape(-1, stored.shape[0])


def words(count: int, bits: int) -> int:
    """Return the number of words of 32 bits that a stream of `count` codes takes."""
    return -(-count * bits // 32)


def signed(codes: Codes, bits: int) -> NDArray[np.int8]:
    """Return two's-complement codes as numbers.

    >>> signed(np.array([0, 7, 8, 15], np.uint8), bits=4)
    array([ 0,  7, -8, -1], dtype=int8)
    """
    half = np.uint8(1 << (bits - 1))
    numbers: NDArray[np.int8] = np.subtract(codes ^ half, half).view(np.int8)
    return numbers


def from_float8(stored: NDArray[Any]) -> Weights:
    """Return float8 numbers as float32."""
    return np.take(FLOAT8[stored.dtype.name], stored.view(np.uint8))


def from_e4m3(stored: NDArray[Any]) -> Weights:
    """Return e4m3 numbers, which may be stored as bytes, as float32."""
    return from_float8(stored.view(ml_dtypes.float8_e4m3fn))


def from_float4(stored: NDArray[np.uint8], rows: Weights) -> None:
    """Fill `rows`, which are contiguous, with the 4-bit floats of bytes, low nibble first."""
    np.take(FLOAT4_PAIRS, stored.view(np.uint8), out=rows.view(np.uint64), mode="clip")


def exponents(stored: NDArray[np.uint8]) -> Weights:
    """Return the powers of two 2^(s - 127) of e8m0 bytes s. The code 255 becomes NaN."""
    return np.take(POWERS, stored.view(np.uint8))


def by_rows(shape: tuple[int, int], decode: Callable[[slice, Weights], None], multiple: int = 1) -> Weights:
    """Decode a matrix in blocks of rows, each of which starts at a multiple of `multiple` rows.

    `decode` takes a slice of rows and the same rows of the result, and fills them.
    """
    matrix = np.empty(shape, np.float32)
    height = max(1, BLOCK // max(1, shape[1] * multiple)) * multiple
    for start in range(0, shape[0], height):
        rows = slice(start, min(start + height, shape[0]))
        decode(rows, matrix[rows])
    return matrix


def by_planes(
    stored: NDArray[Any],
    shape: tuple[int, int],
    bits: int,
    shifts: Sequence[int],
    decode: Callable[[slice, Codes, Weights], None],
) -> Weights:
    """Decode a matrix of which row r + j R is in row r of the stored matrix, which has R rows.

    `shifts` has the lowest bit of the codes j = 0, 1, ... of a word. `decode` takes a slice of rows, the
    codes of these rows, and these rows of the result. Rows beyond the shape of the matrix are padding.
    """
    matrix, mask = np.empty(shape, np.float32), stored.dtype.type(2**bits - 1)
    height = max(1, BLOCK // max(1, shape[1]))
    for plane, shift in enumerate(shifts):
        for start in range(0, len(stored), height):
            first = plane * len(stored) + start
            rows = slice(first, min(first + min(height, len(stored) - start), shape[0]))
            if rows.start < rows.stop:
                words = stored[start : start + rows.stop - rows.start]
                codes = (words >> stored.dtype.type(shift)) & mask
                decode(rows, codes.astype(np.uint8), matrix[rows])
    return matrix


def cut_groups(rows: Weights, size: int) -> Iterator[tuple[Weights, slice]]:
    """Yield views (rows, groups, size) and their slices of groups. A shorter last group comes alone."""
    height, width = rows.shape
    whole = width // size
    if whole:
        yield rows[:, : whole * size].reshape(height, whole, size), slice(0, whole)
    if width > whole * size:
        yield rows[:, whole * size :].reshape(height, 1, -1), slice(whole, whole + 1)


def scale_groups(rows: Weights, scales: Weights, size: int) -> None:
    """Multiply each group of `size` entries of each row by its scale, in place."""
    for view, groups in cut_groups(rows, size):
        view *= scales[:, groups, None]


def affine(
    codes: NDArray[Any],
    rows: Weights,
    zeros: NDArray[Any] | int | None,
    scales: Weights,
    size: int,
    order: NDArray[np.int64] | None = None,
) -> None:
    """Fill rows with scale (code - zero), for scales and zero points of shape (rows, groups).

    `order` has the group of each input if neighbours need not be in the same group of `size` inputs.
    """
    rows[:] = codes
    if isinstance(zeros, int):
        rows -= np.float32(zeros)
    elif zeros is not None and order is not None:
        rows -= zeros.astype(np.float32)[:, order]
    elif zeros is not None:
        numbers = zeros.astype(np.float32)
        for view, groups in cut_groups(rows, size):
            view -= numbers[:, groups, None]
    if order is not None:
        rows *= scales[:, order]
    else:
        scale_groups(rows, scales, size)
