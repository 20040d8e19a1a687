"""The verdict on one tensor of two checkpoints, the slow way: full float64 SVDs and plain loops.

This is a second implementation of theory 18 ("Comparing two checkpoints: the right verdicts"), sections 2
and 3. It was written from the text alone and shares nothing with the package. W0 is the base's tensor, W1
the model's tensor, and D = W1 - W0. Energy means the sum of squares.
"""

from __future__ import annotations

import math
from itertools import product

import ml_dtypes
import numpy as np

COARSE_FORMATS = ("float8_e5m2", "float8_e4m3fn", "bfloat16", "float16")
CAST_FORMATS = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
KEYS = (
    *("verdict", "format", "rank", "rank_low", "rank_high", "size", "update_size", "hidden", "roundings"),
    *("factor", "along", "or_more", "directions"),
)
SMALL_SIDE = 16


def judge(base: np.ndarray, model: np.ndarray, dtype: str) -> dict:
    """Compare a tensor of the model with the base's tensor of the same name.

    Args:
        base: the base's vector or matrix, in the type of its file.
        model: the model's vector or matrix, of any shape.
        dtype: the numpy name of the type of the model's file.

    Returns:
        A value for each of KEYS, which is None if the verdict has none. `directions` counts the singular
        values that hold 90% of the energy of a dense change.
    """
    answer = dict.fromkeys(KEYS) | {"or_more": False}
    W0, W1 = base.astype(np.float64), model.astype(np.float64)
    if not (np.isfinite(W0).all() and np.isfinite(W1).all()):
        return answer | {"verdict": "non-finite"}
    if base.shape != model.shape:
        return answer | {"verdict": "reshaped"}
    if np.array_equal(W0, W1):
        return answer | {"verdict": "identical", "size": 0.0}
    pair = Pair(base, W0, W1, dtype)
    answer["size"] = _share(math.sqrt(energy(pair.D)), W0)
    if not W1.any():
        return answer | {"verdict": "zeroed"}
    small = W1.ndim == 1 or min(W1.shape) < SMALL_SIDE
    for step in (_float_cast, _integer_code, _rescaled, _small if small else _large):
        result = step(pair)
        if result is not None:
            return answer | result
    raise AssertionError("the last step always answers")


class Pair:
    """Two tensors of one shape, with the rounding of the model's file."""

    def __init__(self, base, W0, W1, dtype):
        self.base, self.W0, self.W1, self.D = base, W0, W1, W1 - W0
        self.format = _effective_format(W1, dtype)
        self.v = _variance(W1, self.format)
        self.V = self.v.sum()
        cast = _cast(base, self.format)
        # An entry too large for the format stays as it is.
        self.cast = np.where(np.isfinite(cast), cast, W0)
        self.L = W1 - self.cast
        self.Vc = self.v[self.L != 0].sum()
        self.hides_moves = energy(self.L) <= 24 * self.Vc
        leaves_base = np.mean(self.cast == W0) >= 0.9
        # W1 is the rounded base, except for a minority of entries that moved.
        mostly_cast = not leaves_base and np.mean(self.L != 0) < 0.5 and energy(self.L) < energy(self.D)
        self.tiny = mostly_cast and self.hides_moves
        self.recast = mostly_cast and not self.hides_moves
        self.on_grid = leaves_base or self.recast
        # X is the change whose rank section 3 looks for.
        self.X = self.L if self.tiny or self.recast else self.D


# --- numbers and formats ---------------------------------------------------------------------------------


def energy(array):
    return float(np.sum(array**2))


def _share(length, W0):
    """A length over |W0|, or None for a zero base."""
    norm = math.sqrt(energy(W0))
    return length / norm if norm > 0 else None


def _cosine(a, b):
    norms = math.sqrt(energy(a) * energy(b))
    return float(np.sum(a * b)) / norms if norms > 0 else 0.0


def _largest_value(matrix):
    return float(np.linalg.svd(matrix, compute_uv=False)[0])


def _random_signs(shape):
    return np.random.default_rng(0).choice([-1.0, 1.0], size=shape)


def _exponents(values, name):
    """Binary exponents, where those of subnormal numbers and zeros are the format's least one."""
    least = ml_dtypes.finfo(np.dtype(name)).minexp
    exponents = np.frexp(values)[1] - 1
    return np.where(values == 0, least, np.maximum(exponents, least))


def _ulp(values, name):
    """Steps of a float format at these values."""
    bits = 40 if name == "float64" else ml_dtypes.finfo(np.dtype(name)).nmant
    return np.ldexp(1.0, _exponents(values, name) - bits)


def _variance(values, name):
    """v, the variance of the rounding of each entry. A zero of a float64 file would underflow."""
    return np.maximum(_ulp(values, name) ** 2 / 12, 1e-300)


def _cast(array, name):
    with np.errstate(all="ignore"):
        return array.astype(np.dtype(name)).astype(np.float64)


def _toward_zero(array, name):
    """The cast that drops the digits which do not fit, NaN above the largest number of the format."""
    values = array.astype(np.float64)
    info = ml_dtypes.finfo(np.dtype(name))
    step = np.ldexp(1.0, _exponents(values, name) - info.nmant)
    cut = np.trunc(values / step) * step
    return np.where(np.abs(cut) <= float(info.max), cut, np.nan)


def _effective_format(W1, dtype):
    """The format with the largest V among those that hold every value of W1.

    Not in the text: entries of one magnitude show no format.
    """
    if W1.size > 1 and len(np.unique(np.abs(W1[W1 != 0]))) < 2:
        return dtype
    names = [name for name in (*COARSE_FORMATS, dtype) if np.array_equal(_cast(W1, name), W1)]
    return max(names, key=lambda name: _variance(W1, name).sum())


# --- section 2: rounded and rescaled ---------------------------------------------------------------------


def _float_cast(pair):
    """`rounded` to a float format. The base is not identical, so a format that matches is a coarser one."""
    for name in CAST_FORMATS:
        for cast in (_cast, _toward_zero):
            stored = cast(pair.base, name)
            # Not in the text: bfloat16 numbers that were stored in float16.
            twice = name == "bfloat16" and np.array_equal(_cast(stored, "float16"), pair.W1)
            if twice or np.array_equal(stored, pair.W1):
                return {"verdict": "rounded", "format": name}
    return None


def _integer_code(pair):
    """`rounded` to an integer code: blocks of rows or columns, each with a step."""
    if pair.W1.ndim == 1:
        return None
    change = energy(pair.D)
    kinds = product((8, 6, 5, 4, 3, 2), ("row", 32, 64, 128), ("absmax", "min-max"), ("rows", "columns"))
    # Not in the text: a start and a step in float16.
    for (bits, block, kind, along), half in product(kinds, (False, True)):
        q = _on_code_grid(pair.W0, bits, block, kind, along, half)
        if q is None:
            continue
        stored = _cast(q, pair.format)
        error = np.abs(q - pair.W0)
        near = np.abs(pair.W1 - q) <= np.minimum(2.0**-8 * np.abs(q), error.max() / 8)
        agrees = np.mean((stored == pair.W1) | near) >= 0.99
        # The last condition fails for a base that is on the grid already.
        if agrees and energy(pair.W1 - stored) <= 0.1 * change and energy(error) >= 0.5 * change:
            suffix = " columns" if along == "columns" else ""
            return {"verdict": "rounded", "format": f"int{bits}/{block} {kind}{suffix}"}
    return None


def _on_code_grid(W0, bits, block, kind, along, half=False):
    """The base on the grid of a code, or None if the blocks do not divide the side."""
    matrix = W0 if along == "rows" else W0.T
    length = matrix.shape[1] if block == "row" else block
    if matrix.shape[1] % length:
        return None
    grid = np.empty_like(matrix)
    for start in range(0, matrix.shape[1], length):
        part = matrix[:, start : start + length]
        if kind == "absmax":
            low = np.zeros((len(part), 1))
            step = np.abs(part).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
        else:
            low = part.min(axis=1, keepdims=True)
            low = _cast(low, "float16") if half else low
            step = (part.max(axis=1, keepdims=True) - low) / (2**bits - 1)
        if half:
            low, step = _cast(low, "float16"), _cast(step, "float16")
        codes = np.rint((part - low) / np.where(step > 0, step, 1.0))
        grid[:, start : start + length] = low + step * codes
    return grid if along == "rows" else grid.T


def _rescaled(pair):
    """`rescaled`: a factor for the tensor, else for each row, else for each column."""
    W0, W1, change = pair.W0, pair.W1, energy(pair.D)
    if change <= 8 * pair.V:
        return None
    if W1.ndim == 1:
        choices = [("tensor", None)] if np.count_nonzero(W0) >= 8 else []
        tolerance = 1e-4
    else:
        rows, columns = W1.shape
        choices = [("tensor", None)]
        choices += [("rows", 1)] if columns >= 16 else []
        choices += [("columns", 0)] if rows >= 16 else []
        tolerance = 0.01
    for along, axis in choices:
        products = np.sum(W0 * W1, axis=axis, keepdims=True)
        squares = np.sum(W0**2, axis=axis, keepdims=True)
        factors = np.where(squares > 0, products / np.where(squares > 0, squares, 1.0), 1.0)
        if energy(W1 - factors * W0) - 2 * pair.V <= tolerance * change:
            factors = factors[squares > 0]
            limits = (float(factors.min()), float(factors.max()))
            return {"verdict": "rescaled", "factor": limits, "along": along}
    return None


def _small(pair):
    """Vectors, and matrices with a side below 16."""
    below = energy(pair.D) <= 2 * pair.V and pair.hides_moves
    return {"verdict": "below-floor" if below else "changed"}


# --- section 2: sparse, and everything after section 3 ---------------------------------------------------


def _large(pair):
    """Matrices with both sides of at least 16."""
    if _is_sparse(pair):
        return {"verdict": "sparse"}
    return _hidden_or_low_rank(pair) or _dense(pair)


def _is_sparse(pair):
    change = pair.L if pair.recast else pair.D
    changed = change != 0
    rows, columns = (int(changed.any(axis=axis).sum()) for axis in (1, 0))
    few = changed.sum() < 0.05 * changed.size and changed.sum() < 2 * (rows + columns)
    return few and rows >= 16 and columns >= 16 and energy(change) > 24 * pair.Vc


def _dense(pair):
    """`reinitialised` and `unrelated` from the whole tensor, `noise` and `dense` from the block."""
    W0, W1 = pair.W0, pair.W1
    n, m = W1.shape
    if abs(_cosine(W0, W1)) < max(0.2, 4 / math.sqrt(n * m)):
        random = _largest_value(W1) < 1.1 * W1.std() * (math.sqrt(n) + math.sqrt(m))
        return {"verdict": "reinitialised" if random else "unrelated"}
    rows, columns = _block(pair.X)
    X, W0 = pair.X[rows][:, columns], W0[rows][:, columns]
    s = np.linalg.svd(X, compute_uv=False)
    if abs(_cosine(X, W0)) < 0.05 and s[0] < 1.1 * _largest_value(X * _random_signs(X.shape)):
        return {"verdict": "noise"}
    directions = int(np.searchsorted(np.cumsum(s**2), 0.9 * np.sum(s**2))) + 1
    return {"verdict": "dense", "directions": directions}


# --- section 3: rank, rounding and what is hidden --------------------------------------------------------


def _block(X):
    """The rows and the columns in which X is not 0."""
    return (X != 0).any(axis=1), (X != 0).any(axis=0)


def _hidden_or_low_rank(pair):
    """`below-floor`, `low-rank` or `partly-hidden`, or None if the change has many directions."""
    # 2 (n + m) of the whole tensor separates few changed entries from many.
    limit = 2 * sum(pair.W1.shape)
    whole = energy(pair.X)
    if np.count_nonzero(pair.L) < limit and (pair.tiny or (pair.on_grid and whole <= 24 * pair.Vc)):
        return {"verdict": "below-floor", "update_size": _size_of_moves(pair) if pair.tiny else None}

    rows, columns = _block(pair.X)
    X, v, W0, W1 = (array[rows][:, columns] for array in (pair.X, pair.v, pair.W0, pair.W1))
    n, m = X.shape
    V = v.sum()
    few = np.count_nonzero(X) < limit or min(n, m) < SMALL_SIDE
    if few:
        turn = _exact_directions(X, min(pair.W1.shape) / 4)
    else:
        values = np.linalg.svd(X, compute_uv=False)
        tail = energy(values[min(n, m) // 4 :])
        merges = tail <= 1e4 * V and tail <= 0.01 * whole  # not in the text: up to 100 merges
        if tail > 400 * V and tail > 9e-6 * whole and not merges:
            return None
        turn = _directions(X, v, pair.tiny)

    stuck = pair.on_grid and np.mean(X == 0) > 0.5
    if stuck and whole <= 2 * V and (turn is None or turn["r"] == 0 or turn["gap"] < 1.5):
        return {"verdict": "below-floor"}
    if turn is None:
        return None

    r, gap, seen = turn["r"], turn["gap"], turn["seen"]
    rest = X - seen
    g = r / n + r / m
    rest2, seen2 = energy(rest), energy(seen)
    e_seen = max(seen2 - g * rest2, 0.0)
    free = (1 - r / n) * (1 - r / m)
    roundings = rest2 / (free * V) if free > 0 else 0.0
    ranks = {"roundings": roundings}
    if r > 0:
        low = min(turn["sure"], r)
        if pair.on_grid:
            strong = np.linalg.svd(seen, compute_uv=False) ** 2 > 0.1 * max(V, rest2)
            low = min(low, int(strong.sum()))
        ranks |= {"rank": r, "rank_low": max(low, 1), "rank_high": turn["high"]}
        if few:
            ranks |= {"rank_low": r, "rank_high": r}
        # Not in the text: directions that are not certain do not count if 0.3% of the update is left.
        kept = np.linalg.svd(seen, compute_uv=False)[: ranks["rank_low"]]
        if rest2 + seen2 - energy(kept) <= 0.003**2 * seen2:
            ranks["rank"] = ranks["rank_low"]

    def visible(verdict, e_rest=0.0, **more):
        size = _share(math.sqrt(e_seen + e_rest), pair.W0)
        return ranks | {"verdict": verdict, "update_size": size} | more

    if pair.tiny:
        verdict = "partly-hidden" if r > 0 else "below-floor"
        return ranks | {"verdict": verdict, "update_size": _size_of_moves(pair)}
    if r > 0 and math.sqrt(rest2) <= 0.003 * math.sqrt(seen2):
        return visible("low-rank")
    if r > 0 and rest2 > 2 * V and (_follows(rest, W0) or _follows(rest.T, W0.T)):
        return None

    half_seen = seen2 >= whole / 2
    fit = _fit_by_exponent(rest, v, _exponents(W1, pair.format), X != 0, pair.on_grid)
    if fit is not None:
        kappa, tau2, sd = fit
        kappa /= max(1 - 2 * g, 0.5)
        tau2 -= g * kappa * V / (n * m)
        e_rest = max(n * m * tau2, 0.0)
        sd = n * m * sd + 0.1 * g * kappa * V
        significant = e_rest > 4 * sd
    if fit is None or kappa > 100:
        if r > 0 and gap >= 1.5 and half_seen:
            return visible("partly-hidden")
        if rest2 > 4 * V:
            return None
        return visible("partly-hidden") if r > 0 else ranks | {"verdict": "below-floor"}

    hidden = e_rest / (e_seen + e_rest) if e_rest > 0 else 0.0
    if significant and e_rest > kappa * V and e_rest > V / 2:
        if pair.on_grid and r > 0 and half_seen and rest2 <= 100 * V:
            return visible("partly-hidden", e_rest, hidden=hidden)
        return None
    if r == 0:
        if rest2 > 4 * V:
            return None
        size = _share(math.sqrt(e_rest) if significant else 0.0, pair.W0)
        return ranks | {"verdict": "below-floor", "update_size": None if pair.on_grid else size}
    little_hidden = not significant or e_rest < 0.01 * (e_seen + e_rest)
    if little_hidden and gap >= 1.5 and (g <= 0.2 or gap >= 5) and not stuck:
        return visible("low-rank", e_rest, or_more=bool(gap < 3))
    return visible("partly-hidden", e_rest, hidden=hidden)


def _size_of_moves(pair):
    """Size of a hidden update, from the chance that it moves an entry by one step."""
    steps = np.abs(pair.W0) / _ulp(pair.W0, pair.format)
    # Weights exactly between two steps move with any update.
    kept = steps - np.floor(steps) != 0.5
    mean = np.abs(pair.L[kept]).mean() if kept.any() else 0.0
    return _share(math.sqrt(math.pi / 2) * float(mean) * math.sqrt(pair.L.size), pair.W0)


def _exact_directions(X, most):
    """Directions of a change with few entries: the exact rank, or None if that is above `most`."""
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    r = int(np.sum(s > 1e-6 * s[0]))
    if r > most:
        return None
    return {"r": r, "high": r, "sure": r, "gap": math.inf, "seen": _terms(U, s, Vt, 0, r)}


def _terms(U, s, Vt, first, last):
    return (U[:, first:last] * s[first:last]) @ Vt[first:last]


def _directions(X, v, tiny):
    """Directions of a change above its noise, or None for many."""
    n, m = X.shape
    most = min(n, m) // 4
    scales = _scales(v)
    turns = []
    r_before = None
    for turn in range(5):
        U, s, Vt = np.linalg.svd(X / scales, full_matrices=False)
        ratios = [s[i] / s[i + 1] if s[i + 1] > 0 else math.inf for i in range(most)]
        k = int(np.argmax(ratios)) + 1
        clear = s[k - 1] > 10 * s[k]
        r = k if clear and not tiny else 0
        while r <= most:
            R = _terms(U, s, Vt, r, None)
            edge = math.sqrt(energy(R) / ((n - r) * (m - r))) * (math.sqrt(n - r) + math.sqrt(m - r))
            if s[r] > 1.06 * edge:
                edge = max(edge, _largest_value(R * _random_signs(R.shape)))
            new = int(np.sum(s > 1.06 * edge))
            if new <= r:
                break
            r = new
        if r > most:
            if turn > 0 or not clear:
                return None
            # The scales of the first turn may be wrong. Take those of what the clear directions leave.
            r_before = k
            scales = _scales((_terms(U, s, Vt, k, None) * scales) ** 2)
            continue
        gap = 0.0 if r == 0 else s[r - 1] / edge if edge > 0 else math.inf
        high, sure = int(np.sum(s > edge)), int(np.sum(s > 1.5 * edge))
        seen = _terms(U, s, Vt, 0, r) * scales
        result = {"r": r, "high": high, "sure": sure, "gap": gap, "seen": seen}
        if r > 0 and gap >= 2:
            return result
        turns.append(result)
        if r == r_before:
            break
        r_before = r
        scales = _scales((R * scales) ** 2)
    smallest = min(result["r"] for result in turns)
    return [result for result in turns if result["r"] == smallest][-1]


def _scales(squares):
    """sqrt(a_i b_j) such that the row and column means of squares/(a b) are 1.

    The text floors only the squares of R. Without a floor for v too, rows of zeros in W1 have scales of
    1e-45, and a float64 SVD loses all other rows.
    """
    squares = np.maximum(squares, 1e-9 * squares.mean())
    a, b = np.ones((len(squares), 1)), np.ones((1, squares.shape[1]))
    for _ in range(6):
        a = (squares / b).mean(axis=1, keepdims=True)
        b = (squares / a).mean(axis=0, keepdims=True)
    return np.sqrt(a * b)


def _follows(rest, W0):
    """Whether the rows of the rest point along the rows of the base."""
    along = by_chance = 0.0
    for rest_row, row in zip(rest, W0, strict=True):
        if row.any():
            along += float(rest_row @ row) ** 2 / energy(row)
            by_chance += float(rest_row**2 @ row**2) / energy(row)
    return along > 0.3 * energy(rest) and along > 3 * by_chance


def _fit_by_exponent(rest, v, exponents, moved, on_grid):
    """Fit `mean rest^2 = kappa v + tau2` over the exponents of W1.

    Returns:
        kappa, tau2 and the standard deviation of tau2, or None if fewer than two exponents are common.
    """
    counts, steps, means = [], [], []
    for exponent in np.unique(exponents):
        members = exponents == exponent
        if members.sum() >= 30 and (not on_grid or moved[members].mean() > 0.7):
            counts.append(members.sum())
            steps.append(v[members].mean())
            means.append((rest[members] ** 2).mean())
    if len(counts) < 2:
        return None
    unit = np.mean(steps)
    x, y = np.array(steps) / unit, np.array(means) / unit
    design = np.stack([x, np.ones_like(x)], axis=1)

    def weights_for(fitted):
        return np.array(counts) / (2 * np.maximum(fitted, 1e-30 * max(fitted.max(), 1e-30)) ** 2)

    weights = weights_for(y)
    for _ in range(12):
        kappa, tau2 = np.linalg.solve(design.T @ (weights[:, None] * design), design.T @ (weights * y))
        if tau2 < 0:
            kappa, tau2 = np.sum(weights * x * y) / np.sum(weights * x * x), 0.0
        elif kappa < 0:
            kappa, tau2 = 0.0, np.sum(weights * y) / np.sum(weights)
        weights = weights_for(kappa * x + tau2)
    covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
    return kappa, tau2 * unit, math.sqrt(covariance[1, 1]) * unit
