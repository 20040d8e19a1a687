"""The tokens that enter a layer: random tokens as in the paper, independent normals, or given tokens.

| here       | means                                                                             |
|------------|-----------------------------------------------------------------------------------|
| s, n       | number of tokens, width                                                           |
| X          | s x n, one token in each row                                                      |
| Sigma      | Gram matrix X X^T / n, or its limit as n grows                                     |
| L          | a root of Sigma: a layer's law depends on X through L alone                       |
| m          | coordinates of the tokens that are kept (needed with a residual)                  |

With m > 0, the first m columns of a root are `X[:, :m] / sqrt(n)`, so `L = [X_m, rest] / sqrt(n)`. The module
also reads Gram matrices from files and computes cosines between tokens.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from math import isqrt, prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from attnlaw.core.arrays import require_shapes
from attnlaw.core.errors import BadSetting, InputError, as_input_error
from attnlaw.core.files import read_bounded, require_exists, require_regular_file, require_valid_path
from attnlaw.core.settings import check_value
from attnlaw.theory.limit.kernels import activation, apply, moments
from attnlaw.theory.limit.wishart import Array, Streams, bartlett, root_of_rows, symmetric_root

LARGEST_SIZE = 10**18  # for widths, heads and layers
# A law that would need more memory than this is an error.
MOST_MEMORY = 2**32
# Arrays of the Gram matrix's size that exist at the same time while its root is computed.
ROOT_ARRAYS = 7
MOST_TOKENS = isqrt(MOST_MEMORY // (8 * ROOT_ARRAYS))
# Random tokens are drawn in slabs that stay in a core's cache.
_SLAB = 2**17
# Fourth powers of larger numbers (entries of a Gram matrix, weight variances), or of inverses, leave float64.
LARGEST = 1e15


@dataclass(frozen=True)
class RandomInputs:
    """Random tokens x^i = psi(W^i h) of arXiv 2506.00846, with h ~ N(0, I_n) and N(0, 1/n) entries of W^i.

    Given r = |h|^2 / n ~ chi2_n / n, all entries of X are independent psi(N(0, r)). If psi is the identity, a
    root is `L = Bart(s, n) sqrt(r / n)`, and X itself is not needed. For other activations X is drawn, at a
    cost of O(s n).

    Args:
        tokens: the number s of tokens.
        activation: the name of psi, from `ACTIVATIONS`, such as `relu` or `clip:2`.
        shared: whether all tokens share h. If not, r = 1, and all entries are independent psi(N(0, 1)).

    >>> RandomInputs(2, "relu").limit_root().shape
    (2, 2)
    """

    tokens: int
    activation: str = "identity"
    shared: bool = True

    def __post_init__(self) -> None:
        check_value("tokens", self.tokens, int, minimum=1, maximum=LARGEST_SIZE)
        check_tokens(self.tokens)
        activation(self.activation)

    def least_width(self) -> int:
        return 1

    def limit_root(self) -> Array:
        """Return the symmetric root of the limit of Sigma: diagonal E psi^2, all other entries (E psi)^2."""
        second_moment, squared_mean = moments(self.activation)
        off = np.full((self.tokens, self.tokens), squared_mean)
        return symmetric_root(off + (second_moment - squared_mean) * np.eye(self.tokens))

    def limit_coordinates(self, draws: int, m: int, draw: Streams) -> Array:
        """Draw m coordinates of the tokens in the limit of infinite width, of shape (draws, s, m)."""
        return apply(self.activation, draw.inputs.standard_normal((draws, self.tokens, m)))

    def roots(self, width: int, draws: int, draw: Streams, m: int = 0) -> Array:
        """Draw roots of X X^T / n, whose first m columns are `X[:, :m] / sqrt(n)`."""
        r = draw.inputs.chisquare(width, draws) / width if self.shared else np.ones(draws)
        scale = np.sqrt(r)[:, None, None]
        if activation(self.activation).linear:
            known = draw.inputs.standard_normal((draws, self.tokens, m))
            rest = bartlett(self.tokens, width - m, (draws,), draw.inputs)
            return np.concatenate([known, rest], axis=-1) * (scale / math.sqrt(width))
        slab = max(1, _SLAB // (self.tokens * width))
        parts = [self._draw_root(width, scale[i : i + slab], draw, m) for i in range(0, draws, slab)]
        return np.concatenate(parts)

    def root_numbers(self, width: int, draws: int) -> int:
        """Return how many numbers the largest array in `roots` has."""
        drawn = 0 if activation(self.activation).linear else self.tokens * width
        return max(draws * self.tokens * min(self.tokens, width), drawn)

    def _draw_root(self, width: int, scale: Array, draw: Streams, m: int) -> Array:
        normals = draw.inputs.standard_normal((len(scale), self.tokens, width))
        normals *= scale
        x = apply(self.activation, normals)
        root = root_of_rows(x) if m == 0 else np.concatenate([x[..., :m], root_of_rows(x[..., m:])], axis=-1)
        return root / math.sqrt(width)


@dataclass(frozen=True, eq=False)
class GivenInputs:
    """Fixed tokens, given by their Gram matrix.

    A Gram matrix determines the tokens up to a rotation. This is enough for a layer without a residual
    connection. With one, single coordinates matter too, so attnlaw draws a uniformly random rotation.
    Directions with less than 1e-12 of the tokens' squared lengths are left out as rounding errors.

    Args:
        gram: the Gram matrix `Sigma_ij = x^i . x^j / n`, of shape (s, s), for every width. An `InputError` is
            raised unless it is square, finite, symmetric and positive semi-definite.

    >>> GivenInputs(np.eye(3)).tokens
    3
    """

    gram: Array

    def __post_init__(self) -> None:
        require_real("the Gram matrix", np.asarray(self.gram).dtype)
        gram = np.asarray(self.gram, dtype=np.float64)
        _check_gram(gram)
        object.__setattr__(self, "gram", (gram + gram.T) / 2)

    @classmethod
    def from_tokens(cls, tokens: Array) -> GivenInputs:
        """Return inputs that have the Gram matrix `X X^T / N` of these tokens.

        >>> GivenInputs.from_tokens(np.ones((2, 8))).gram.tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """
        require_real("the tokens", np.asarray(tokens).dtype)
        x = np.asarray(tokens, dtype=np.float64)
        require_shapes(x.ndim == 2 and x.size > 0, "inputs", "a matrix with one token in each row", tokens=x)
        if not np.isfinite(x).all():
            row = int(np.argwhere(~np.isfinite(x))[0][0])
            raise InputError(
                f"token {row + 1} of {len(x)} holds a NaN or infinite entry; expected finite embeddings, "
                "so repair the checkpoint or choose other tokens"
            )
        return cls(x @ x.T / x.shape[1])

    @property
    def tokens(self) -> int:
        return len(self.gram)

    @cached_property
    def _root(self) -> Array:
        # The rank counts tokens of length 1, because RMSNorm makes a short token as long as any other.
        values, vectors = np.linalg.eigh(_normalised_gram(self.gram))
        keep = values > 1e-12 * max(float(values[-1]), 0.0)
        lengths = np.sqrt(np.maximum(np.diagonal(self.gram), 0.0))
        return np.asarray(lengths[:, None] * vectors[:, keep] * np.sqrt(values[keep]))

    def least_width(self) -> int:
        """Return the smallest width at which such tokens exist. It is the rank of Sigma."""
        return max(1, int(self._root.shape[1]))

    def limit_root(self) -> Array:
        return self._root

    def limit_coordinates(self, draws: int, m: int, draw: Streams) -> Array:
        """Draw m coordinates of the tokens along random directions, which have the law N(0, Sigma)."""
        return self._root @ draw.inputs.standard_normal((draws, self._root.shape[1], m))

    def roots(self, width: int, draws: int, draw: Streams, m: int = 0) -> Array:
        """Return a root of Sigma, which is the same at every width.

        If m > 0, the first m columns of the root are coordinates along random directions. They are the rows
        of a random rotation `B^-1 Z`, where Z is a standard normal r x n matrix and `Z Z^T = B B^T`.
        """
        if m == 0:
            return self._root[None]
        r = self._root.shape[1]
        z = np.concatenate(
            [draw.inputs.standard_normal((draws, r, m)), bartlett(r, width - m, (draws,), draw.inputs)],
            axis=-1,
        )
        b = np.linalg.cholesky(z @ np.swapaxes(z, -1, -2))
        return np.asarray(self._root @ np.linalg.solve(b, z))

    def root_numbers(self, width: int, draws: int) -> int:
        """Return an upper bound on the number of entries of the array that `roots` returns."""
        return draws * self._root.size


# Tokens that a layer can read. A root of a matrix is any L with `L L^T` equal to it.
Inputs = RandomInputs | GivenInputs


def check_tokens(tokens: int) -> None:
    """Raise a `BadSetting` if the Gram matrix of so many tokens does not fit into memory."""
    if tokens > MOST_TOKENS:
        memory = f"their Gram matrix and its root take more than {MOST_MEMORY // 2**30} GiB of memory"
        raise BadSetting("tokens", f"expected at most {MOST_TOKENS}: {memory}", tokens)


def require_real(what: str, dtype: np.dtype[Any]) -> None:
    """Raise an `InputError` unless the entries are real numbers."""
    if dtype.kind not in "fiu":
        raise InputError(f"{what} holds {dtype}, expected real numbers; convert it")


def _check_gram(gram: Array) -> None:
    square = gram.ndim == 2 and gram.shape[0] == gram.shape[1] and gram.size > 0
    require_shapes(square, "Gram matrix", "a square matrix with one row for each token", gram=gram)
    if not np.isfinite(gram).all():
        raise InputError("the Gram matrix holds a NaN or infinite entry; expected finite numbers")
    size = float(np.abs(gram).max())
    if size and not 1 / LARGEST <= size <= LARGEST:
        raise InputError(
            f"the Gram matrix has entries of size {size:.3g}; expected at most {LARGEST:g} and at least "
            f"{1 / LARGEST:g}: rescale the tokens"
        )
    skew = np.abs(gram - gram.T)
    if skew.max() > 1e-8 * size:
        i, j = np.unravel_index(int(skew.argmax()), skew.shape)
        raise InputError(
            f"the Gram matrix is not symmetric: entry ({i + 1}, {j + 1}) is {gram[i, j]:.6g} and "
            f"({j + 1}, {i + 1}) is {gram[j, i]:.6g}; give X X^T / n"
        )
    lowest = float(np.linalg.eigvalsh(_normalised_gram(gram))[0])
    if lowest < -1e-8:
        raise InputError(
            f"the Gram matrix is not positive semi-definite: its lowest eigenvalue is {lowest:.6g} after "
            "tokens are scaled to length 1; give X X^T / n"
        )


def _normalised_gram(gram: Array) -> Array:
    """Return the Gram matrix of the tokens after each is divided by its length."""
    squares = np.diagonal(gram)
    lengths = np.sqrt(np.where(squares > 0, squares, float(np.abs(gram).max()) or 1.0))
    return np.asarray(gram / lengths[:, None] / lengths)


def gram_of(root: Array) -> Array:
    """Return the Gram matrices `L L^T` of roots L, which have the shape (..., s, r)."""
    return np.asarray(root @ np.swapaxes(root, -1, -2))


def cosine_matrix(gram: Array) -> Array:
    """Return the cosines between tokens, given Gram matrices (..., s, s). A zero token has cosine 0."""
    lengths = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    scale = lengths[..., :, None] * lengths[..., None, :]
    return np.asarray(np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0))


def mean_cosine(cosines: Array) -> Array:
    """Return the mean cosine over pairs of different tokens, or zero for a single token."""
    s = cosines.shape[-1]
    off = cosines.sum(axis=(-2, -1)) - np.trace(cosines, axis1=-2, axis2=-1)
    return np.asarray(off / max(s * (s - 1), 1))


def side_by_side(blocks: Array) -> Array:
    """Join the outputs of all heads for each token: (draws, H, s, q) becomes (draws, s, H q)."""
    draws, heads, s, q = blocks.shape
    return np.swapaxes(blocks, 1, 2).reshape(draws, s, heads * q)


MOST_BYTES = 2**30  # in a file: a matrix of 11000 tokens
REMEDY = "give an existing file"
# NumPy parses the header as a Python expression, so a damaged one may raise any of these.
DAMAGE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, TokenError)


def read_gram(path: Path) -> Array:
    """Read a matrix from an `.npy` file, or from a text file with a row in each line."""
    wanted = "expected a .npy file, or text with one row in each line"
    with (
        as_input_error(f"{path}: cannot be read", REMEDY),
        as_input_error(
            f"{path}: this file does not hold a matrix of numbers", wanted, *DAMAGE, with_reason=False
        ),
    ):
        return _read_binary_gram(path) if path.suffix == ".npy" else _read_text_gram(path)


def _read_text_gram(path: Path) -> Array:
    text = read_bounded(path, megabytes=64, remedy=REMEDY).decode("utf-8")
    rows = [line.replace(",", " ").split() for line in text.splitlines() if line.strip()]
    return np.array(rows, dtype=np.float64)


def _read_binary_gram(path: Path) -> Array:
    """Read the array of an `.npy` file. Raises a ValueError if its size contradicts its header."""
    require_exists(require_valid_path(path), REMEDY)
    with require_regular_file(path).open("rb") as file:
        with warnings.catch_warnings(action="ignore"):
            shape, order, dtype = _header(file)
        require_real(str(path), dtype)
        size = prod(shape) * dtype.itemsize
        if size < 1:
            raise ValueError(f"it has no numbers, because its shape is {shape}")
        if size > MOST_BYTES:
            raise InputError(
                f"{path}: found a matrix of shape {shape} in {dtype}, larger than {MOST_BYTES // 2**30} "
                "GB; choose fewer tokens"
            )
        data = file.read(size + 1)
    if len(data) != size:
        raise ValueError("the file does not hold as many numbers as its header says")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if order else "C").astype(np.float64)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an `.npy` file: shape, whether the array is stored by columns, and data type."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"its format has the unknown version {version}")
