"""Pairs of tensors whose right verdict is known from how they are made, for the confusion table of `diff`.

`NOTE_CASES` follows the verdicts and the reference values of theory 18. `OWN_CASES` are workflows that the
note does not list, on models that it does not use for `diff`. Both hold functions that build cases, so that
no checkpoint is read when this file is imported. No truth here comes from the output of a program: an
update is compared with the rounding of the file, and that decides what the file can show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle, product
from pathlib import Path

import ml_dtypes
import numpy as np
from real_checkpoints import real_checkpoint

from attnlaw.checkpoints.open import find_checkpoint, open_file

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)
# Bits of the fraction and the smallest exponent: the step is 2^(exponent - bits).
FORMATS = {
    "float32": (23, -126),
    "float16": (10, -14),
    "bfloat16": (7, -126),
    "float8_e4m3fn": (3, -6),
    "float8_e5m2": (2, -14),
}
NOTE_CASES: list[Callable[[], Iterator[Case]]] = []
OWN_CASES: list[Callable[[], Iterator[Case]]] = []


@dataclass(frozen=True)
class Numbers:
    """What is known of the printed numbers. None: not known, or not the same for every right verdict.

    Args:
        rank: Rank of the update. A low-rank verdict must have it in its range, a partly hidden one may not
            promise more directions.
        exact_rank: True if a low-rank verdict must report this rank itself.
        open_above: True if the file may hide the weakest directions, so only `rank_low` is checked.
        formats: Names that the format of a rounded tensor may have.
        factors: Smallest and largest factor of a rescaled tensor.
        along: What the factors belong to: "tensor", "rows" or "columns".
        update_size: Interval of the size of the update, relative to the base.
        roundings: Interval of the noise, in roundings of the file.
        tail: Share of the update's energy that is outside its first 0, 1, 2, ... directions.
        most_tail: Share that may be outside the reported rank of a low-rank verdict.
    """

    rank: int | None = None
    exact_rank: bool = False
    open_above: bool = False
    formats: frozenset[str] = frozenset()
    factors: tuple[float, float] | None = None
    along: str | None = None
    update_size: tuple[float, float] | None = None
    roundings: tuple[float, float] | None = None
    tail: tuple[float, ...] = ()
    most_tail: float = 0.01


@dataclass(frozen=True)
class Case:
    """A base, a model, and what is true of them.

    Args:
        name: How the pair was made.
        truth: Kind of change, the row of the confusion table.
        base: Array of the base.
        model: Array of the model.
        dtype: Type of the model's file.
        allowed: Right verdicts.
        vague: Verdicts that are not false but say less than the truth, each with the reason.
        numbers: What is known of the printed numbers.
    """

    name: str
    truth: str
    base: np.ndarray = field(repr=False)
    model: np.ndarray = field(repr=False)
    dtype: str
    allowed: frozenset[str]
    vague: dict[str, str] = field(default_factory=dict)
    numbers: Numbers = Numbers()


def build_cases(builders: Iterable[Callable[[], Iterator[Case]]]) -> Iterator[Case]:
    """Build the cases of a list one by one, so that only one pair is in memory."""
    for builder in builders:
        yield from builder()


def note_case(builder: Callable[[], Iterator[Case]]) -> Callable[[], Iterator[Case]]:
    NOTE_CASES.append(builder)
    return builder


def own_case(builder: Callable[[], Iterator[Case]]) -> Callable[[], Iterator[Case]]:
    OWN_CASES.append(builder)
    return builder


def make(
    name: str,
    truth: str,
    base: np.ndarray,
    model: np.ndarray,
    allowed: str | Iterable[str],
    vague: dict[str, str] | None = None,
    **numbers: object,
) -> Case:
    """Make a case. The type of the file is that of the model's array."""
    words = {allowed} if isinstance(allowed, str) else set(allowed)
    vague = {word: reason for word, reason in (vague or {}).items() if word not in words}
    return Case(name, truth, base, model, model.dtype.name, frozenset(words), vague, Numbers(**numbers))


# Weights.


@cache
def _tensors(model: str):
    folder = (
        Path(__file__).parents[3] / "examples/tiny-decoder"
        if model == "tiny-decoder"
        else real_checkpoint(model)
    )
    return open_file(find_checkpoint(folder))


@cache
def read(model: str, name: str) -> np.ndarray:
    """Read one stored tensor, in its own type."""
    return _tensors(model).read(name)


def rxnfp(layer: int, part: str, model: str = "rxnfp-pretrained") -> np.ndarray:
    name = f"encoder.layer.{layer}.{part}"
    tensors = _tensors(model)
    return read(model, name if name in tensors.shapes else f"bert.{name}")


def minilm(layer: int, part: str) -> np.ndarray:
    """Read a matrix of MiniLM, cut to at most 512 x 256 so that the table stays quick."""
    return np.ascontiguousarray(read("minilm", f"encoder.layer.{layer}.{part}")[:512, :256])


def decoder(layer: int, part: str) -> np.ndarray:
    return read("tiny-decoder", f"transformer.h.{layer}.{part}.weight")


def whisper(name: str, dtype: np.dtype = FLOAT16) -> np.ndarray:
    return read("whisper-tiny.en", name).astype(dtype)


def albert(part: str, dtype: np.dtype = FLOAT32) -> np.ndarray:
    at = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    return read("rxnmapper", f"{at}.{part}").astype(dtype)


MATRICES: dict[str, Callable[[], np.ndarray]] = {
    "rxnfp 5 query": lambda: rxnfp(5, "attention.self.query.weight"),
    "decoder 0 c_attn": lambda: decoder(0, "attn.c_attn"),
    "rxnfp 0 ffn_in": lambda: rxnfp(0, "intermediate.dense.weight"),
    "decoder 2 c_fc": lambda: decoder(2, "mlp.c_fc"),
    "minilm 3 key": lambda: minilm(3, "attention.self.key.weight"),
    "decoder 1 c_proj": lambda: decoder(1, "attn.c_proj"),
    "rxnfp 11 ffn_out": lambda: rxnfp(11, "output.dense.weight"),
    "decoder 3 mlp.c_proj": lambda: decoder(3, "mlp.c_proj"),
    "minilm 1 ffn_in": lambda: minilm(1, "intermediate.dense.weight"),
    "rxnfp 8 value": lambda: rxnfp(8, "attention.self.value.weight"),
}
SQUARE = ("rxnfp 5 query", "decoder 1 c_proj", "rxnfp 8 value")


# Changes. Sizes are relative to the base: |update| / |base|.


def gaussian_factors(shape: tuple[int, int], rank: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))


def scaled(update: np.ndarray, base: np.ndarray, size: float) -> np.ndarray:
    """Scale an update to a size relative to the base."""
    return update * (size * _norm(base) / _norm(update))


def merged(base: np.ndarray, update: np.ndarray, dtype: np.dtype, times: int = 1) -> np.ndarray:
    """Add update / times so many times, and store each sum in a type."""
    model = base.astype(dtype) if times > 1 else base
    for _ in range(times):
        model = (model.astype(np.float64) + update / times).astype(dtype)
    return model


def absmax_code(matrix, bits, block=None, columns=False, steps=np.float32):
    """Round to a code with one step per block and no offset."""
    work = matrix.astype(np.float64)
    work = work.T if columns else work
    blocks = work.reshape(work.shape[0], -1, block or work.shape[1])
    step = np.abs(blocks).max(axis=2, keepdims=True) / (2 ** (bits - 1) - 1)
    step = step.astype(steps).astype(np.float64)
    rounded = (step * np.rint(blocks / step)).reshape(work.shape)
    return (rounded.T if columns else rounded).astype(np.float32)


def min_max_code(matrix, bits, block=None, columns=False, steps=np.float32):
    """Round to a code with a step and a start per block."""
    work = matrix.astype(np.float64)
    work = work.T if columns else work
    blocks = work.reshape(work.shape[0], -1, block or work.shape[1])
    low = blocks.min(axis=2, keepdims=True).astype(steps).astype(np.float64)
    step = (blocks.max(axis=2, keepdims=True) - low) / (2**bits - 1)
    step = step.astype(steps).astype(np.float64)
    rounded = (low + step * np.rint((blocks - low) / step)).reshape(work.shape)
    return (rounded.T if columns else rounded).astype(np.float32)


def toward_zero(matrix: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Cast to a narrow type without ever growing in magnitude."""
    nearest = np.ascontiguousarray(matrix.astype(dtype))
    codes = nearest.view(np.uint8 if nearest.itemsize == 1 else np.uint16).copy()
    grown = np.abs(nearest.astype(np.float64)) > np.abs(matrix.astype(np.float64))
    codes[grown] -= 1
    return codes.view(dtype)


def as_base(matrix: np.ndarray, kind: str) -> np.ndarray:
    """Turn a matrix into a base of a kind: a float type, or the grid of a 4-bit code in float32."""
    if kind == "int4":
        return absmax_code(matrix, 4, 32)
    return matrix.astype({"float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}[kind])


# What a file can show.


def steps_of(weights: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Compute the distance between neighbours of a type at each weight."""
    bits, least = FORMATS[dtype.name]
    magnitude = np.abs(weights.astype(np.float64))
    exponent = np.floor(np.log2(np.maximum(magnitude, 2.0**least)))
    return 2.0 ** (np.maximum(exponent, least) - bits)


def rounding_size(base: np.ndarray, dtype: np.dtype) -> float:
    """Compute the size of one rounding of the file, relative to the base."""
    return float(np.sqrt(np.sum(steps_of(base, dtype) ** 2) / 12) / _norm(base))


def on_grid(base: np.ndarray, dtype: np.dtype) -> bool:
    return bool(np.mean(base.astype(dtype).astype(np.float64) == base.astype(np.float64)) >= 0.9)


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


def _values(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrix.astype(np.float64), compute_uv=False)


def low_rank_case(
    name: str, base: np.ndarray, update: np.ndarray, rank: int, dtype: np.dtype, times: int = 1
) -> Case:
    """Make a case of a low-rank update that is merged once or more often.

    A clear update is much larger than the rounding of the file, and so is its weakest direction. A direction
    is visible above the largest singular value of the rounding errors, (sqrt n + sqrt m) times their rms.
    """
    model = merged(base, update, dtype, times)
    if np.array_equal(model.astype(np.float64), base.astype(np.float64)):
        return make(name, "low-rank", base, model, "identical")
    if np.array_equal(model, base.astype(dtype)):
        return make(name, "low-rank", base, model, "rounded")
    rows, columns = base.shape
    size = _norm(update) / _norm(base)
    noise = times * rounding_size(base, dtype)
    weakest = _values(update)[rank - 1] / _norm(base)
    strength = weakest / (noise * (1 / np.sqrt(rows) + 1 / np.sqrt(columns)))
    grid = on_grid(base, dtype)
    share = rank / rows + rank / columns  # of the noise that falls into the seen directions
    tiny_noise = noise <= 0.002 * size
    clear = tiny_noise or (
        times == 1
        and strength >= 4
        and (share <= 0.2 or strength >= 8)
        and size >= (10 if grid else 5) * noise
    )
    vague = {}
    if not clear:
        vague["partly-hidden"] = "the update is close to the rounding of the file, or was rounded repeatedly"
    if grid and dtype != FLOAT32 and np.mean(model == base) > 0.1:
        vague["partly-hidden"] = "a tenth of the entries or more changed by less than half a step, and stayed"
    if not clear and (size < 2 * noise or strength < 2):
        vague["below-floor"] = "the update is smaller than the rounding of the file"
    if times >= 8 and size / times < 2 * rounding_size(base, dtype):
        vague["dense"] = "each merge was mostly lost, so what the file keeps is not of low rank"
    low, high = (0.95, 1.05) if clear else (0.1 if grid or base.dtype == FLOAT16 else 0.4, 1.6)
    return make(
        name,
        "low-rank",
        base,
        model,
        "low-rank",
        vague,
        rank=rank,
        exact_rank=tiny_noise,
        open_above=not clear,
        update_size=(low * size, high * size),
    )


def dense_case(name: str, base: np.ndarray, update: np.ndarray, rest: float, dtype: np.dtype) -> Case:
    """Make a case of an update with many directions; `rest` is the size of what is not in a few of them."""
    model = merged(base, update, dtype)
    if np.array_equal(model, base.astype(dtype)):
        return make(name, "dense", base, model, "rounded")
    noise = rounding_size(base, dtype)
    size = _norm(update) / _norm(base)
    grid = on_grid(base, dtype)
    vague = {}
    if dtype != FLOAT32 and rest < (25 if grid else 10) * noise:
        vague["partly-hidden"] = "the many weak directions are close to the rounding of the file"
    if dtype != FLOAT32 and size < 3 * noise:
        vague["below-floor"] = "the update is close to the rounding of the file"
    if dtype != FLOAT32 and rest < noise and size > 2 * noise:
        vague["low-rank"] = "the weak directions are below the rounding of the file"
    return make(name, "dense", base, model, "dense", vague, update_size=(0.1 * size, 1.6 * size))


def noise_case(name: str, base: np.ndarray, update: np.ndarray, dtype: np.dtype) -> Case:
    model = merged(base, update, dtype)
    noise = rounding_size(base, dtype)
    size = _norm(update) / _norm(base)
    if np.array_equal(model, base.astype(dtype)):
        return make(name, "noise", base, model, "rounded")
    vague = {}
    if dtype != FLOAT32 and size < 4 * noise:
        vague = dict.fromkeys(("below-floor", "partly-hidden"), "the noise is close to the rounding")
    return make(name, "noise", base, model, "noise", vague, update_size=(0, 1.6 * size))


def random_truth(name: str, truth: str, base: np.ndarray, model: np.ndarray) -> Case:
    """Make a case of weights that have nothing to do with the base.

    Its own largest singular value, compared with that of a random matrix, decides how it must be called.
    """
    work = model.astype(np.float64)
    edge = work.std() * (np.sqrt(work.shape[0]) + np.sqrt(work.shape[1]))
    ratio = _values(work)[0] / edge
    cosine = abs(np.vdot(base.astype(np.float64), work)) / (_norm(base) * _norm(work))
    allowed = ["reinitialised"] if ratio < 1.06 else ["unrelated"]
    if 1.06 <= ratio < 1.15:
        allowed = ["reinitialised", "unrelated"]
    if cosine > 0.15:
        allowed = [*allowed, "dense"] if cosine < 0.25 else ["dense"]
    return make(name, truth, base, model, allowed)


# The cases of the note.


@note_case
def reference_values() -> Iterator[Case]:
    """Section 4: rxnfp layer 5 query, with the numbers that the note measured."""
    base = rxnfp(5, "attention.self.query.weight")
    update = gaussian_factors(base.shape, 8, np.random.default_rng(0))
    update = scaled(update, base, 0.02)
    for times in (1, 2, 8, 64):
        yield make(
            f"section 4: rank 8 of 2% merged {times} times in float32",
            "low-rank",
            base,
            merged(base, update, FLOAT32, times),
            "low-rank",
            rank=8,
            exact_rank=True,
            roundings=(0.93 * times**2, 1.07 * times**2),
            update_size=(0.0199, 0.0201),
        )
        yield make(
            f"section 4: rank 8 of 2% merged {times} times in float32, then bfloat16",
            "low-rank",
            base,
            merged(base, update, FLOAT32, times).astype(BFLOAT16),
            "low-rank",
            rank=8,
            exact_rank=True,
            update_size=(0.0196, 0.0204),
        )
    yield make(
        "section 4: rank 8 of 0.1%, bfloat16",
        "low-rank",
        base,
        merged(base, update / 20, BFLOAT16),
        "partly-hidden",
        rank=8,
        update_size=(0.0009, 0.00105),
    )
    tune = rxnfp(5, "attention.self.query.weight", "rxnfp-finetuned").astype(np.float64) - base
    for size, verdict in ((2e-4, "below-floor"), (5e-4, "below-floor"), (1e-3, "partly-hidden")):
        yield make(
            f"section 4: real tune of {size:.2%}, bfloat16",
            "dense",
            base,
            merged(base, scaled(tune, base, size), BFLOAT16),
            verdict,
            update_size=(0.93 * size, 1.07 * size),
        )
    noise = np.random.default_rng(0).standard_normal(base.shape)
    codes = {"absmax": absmax_code, "min-max": min_max_code}
    for (kind, code), steps in product(codes.items(), (np.float32, np.float16)):
        grid = code(base, 4, 32, steps=steps)
        least = 0.85e-5 if steps is np.float32 else 1e-9
        yield make(
            f"section 4: int4/32 {kind} base with {np.dtype(steps)} steps, update 1e-5, bfloat16",
            "noise",
            grid,
            merged(grid, scaled(noise, grid, 1e-5), BFLOAT16),
            "below-floor",
            update_size=(least, 1.15e-5),
        )


@note_case
def low_rank_in_float32() -> Iterator[Case]:
    names, sizes = cycle(MATRICES), cycle((0.2, 0.02, 1e-3, 1e-4, 0.05))
    for seed, (rank, times) in enumerate(product((1, 2, 4, 8, 16, 32, 64), (1, 2, 8, 64))):
        name = next(names)
        while min(MATRICES[name]().shape) < 4 * rank:
            name = next(names)
        base, size = MATRICES[name](), next(sizes)
        update = gaussian_factors(base.shape, rank, np.random.default_rng(seed))
        title = f"{name}: rank {rank} of {size:.2%} merged {times} times, float32"
        yield low_rank_case(title, base, scaled(update, base, size), rank, FLOAT32, times)


@note_case
def low_rank_in_narrow_files() -> Iterator[Case]:
    names = cycle(MATRICES)
    kinds = ("float32", "float16", "bfloat16", "int4")
    settings = product((BFLOAT16, FLOAT16), kinds, (1, 4, 8, 32), (0.05, 0.01, 0.002, 5e-4))
    for seed, (dtype, kind, rank, size) in enumerate(settings):
        name = next(names)
        base = as_base(MATRICES[name](), kind)
        update = gaussian_factors(base.shape, rank, np.random.default_rng(1000 + seed))
        title = f"{name}: rank {rank} of {size:.2%}, {kind} base, {dtype.name} file"
        yield low_rank_case(title, base, scaled(update, base, size), rank, dtype)


@note_case
def low_rank_from_other_bases_in_float32() -> Iterator[Case]:
    names = cycle(MATRICES)
    for seed, (kind, rank, size) in enumerate(
        product(("float16", "bfloat16", "int4"), (4, 16), (0.02, 1e-4))
    ):
        name = next(names)
        base = as_base(MATRICES[name](), kind)
        update = gaussian_factors(base.shape, rank, np.random.default_rng(2000 + seed))
        title = f"{name}: rank {rank} of {size:.2%}, {kind} base, float32 file"
        yield low_rank_case(title, base, scaled(update, base, size), rank, FLOAT32)


@note_case
def repeated_merges_in_narrow_files() -> Iterator[Case]:
    names = cycle(MATRICES)
    settings = [*product((FLOAT16,), ("float32", "float16"), (2, 8, 64), (0.2, 0.02))]
    settings += [*product((BFLOAT16,), ("float32", "bfloat16"), (2, 8), (0.2, 0.05))]
    for seed, (dtype, kind, times, size) in enumerate(settings):
        name = next(names)
        base = as_base(MATRICES[name](), kind)
        update = gaussian_factors(base.shape, 8, np.random.default_rng(3000 + seed))
        title = f"{name}: rank 8 of {size:.2%} merged {times} times in {dtype.name}, {kind} base"
        yield low_rank_case(title, base, scaled(update, base, size), 8, dtype, times)


@note_case
def two_adapters() -> Iterator[Case]:
    for seed, (name, dtype, kind) in enumerate(
        (
            ("rxnfp 5 query", FLOAT32, "float32"),
            ("decoder 2 c_fc", FLOAT32, "int4"),
            ("minilm 3 key", BFLOAT16, "float32"),
            ("rxnfp 0 ffn_in", FLOAT16, "float16"),
        )
    ):
        base, rng = as_base(MATRICES[name](), kind), np.random.default_rng(4000 + seed)
        update = sum(scaled(gaussian_factors(base.shape, 8, rng), base, 0.05) for _ in range(2))
        yield low_rank_case(f"{name}: two adapters 8 + 8, {dtype.name}", base, update, 16, dtype)


@note_case
def products_in_bfloat16_and_subnormals() -> Iterator[Case]:
    for seed, name in enumerate(("rxnfp 5 query", "minilm 1 ffn_in")):
        base, rng = MATRICES[name](), np.random.default_rng(5000 + seed)
        update = scaled(gaussian_factors(base.shape, 8, rng), base, 0.05)
        model = (base + update.astype(BFLOAT16).astype(np.float64)).astype(np.float32)
        yield make(
            f"{name}: rank 8 of 5%, the product in bfloat16, float32 file",
            "low-rank",
            base,
            model,
            "low-rank",
            rank=8,
            exact_rank=True,
            update_size=(0.049, 0.051),
        )
    for seed, (name, kind) in enumerate(
        product(("rxnfp 8 value", "decoder 0 c_attn"), ("float32", "float16"))
    ):
        base = as_base(MATRICES[name]() * 2.0**-8, kind)
        update = gaussian_factors(base.shape, 4, np.random.default_rng(5100 + seed))
        title = f"{name}: small weights, rank 4 of 5%, {kind} base, float16 file"
        yield low_rank_case(title, base, scaled(update, base, 0.05), 4, FLOAT16)


@note_case
def gaussian_with_directions() -> Iterator[Case]:
    names = cycle(MATRICES)
    sizes = ((0.02, 0.02), (0.2, 0.05), (0.004, 0.002))
    kinds = ((FLOAT32, "float32"), (FLOAT32, "int4"), (FLOAT16, "float32"), (FLOAT16, "float16"))
    kinds = (*kinds, (BFLOAT16, "float32"), (BFLOAT16, "bfloat16"), (BFLOAT16, "int4"))
    for seed, ((dtype, kind), (strong, weak)) in enumerate(product(kinds, sizes)):
        name = next(names)
        base, rng = as_base(MATRICES[name](), kind), np.random.default_rng(6000 + seed)
        update = scaled(gaussian_factors(base.shape, 4, rng), base, strong)
        update = update + scaled(rng.standard_normal(base.shape), base, weak)
        title = (
            f"{name}: 4 directions of {strong:.1%} and Gaussian {weak:.1%}, {kind} base, {dtype.name} file"
        )
        yield dense_case(title, base, update, weak, dtype)


@note_case
def real_fine_tunes() -> Iterator[Case]:
    parts = ("attention.self.query.weight", "output.dense.weight")
    settings = product(parts, (FLOAT32, FLOAT16, BFLOAT16), (None, 0.03, 1e-3, 1e-4))
    for seed, (part, dtype, size) in enumerate(settings):
        layer = (5, 0, 9, 2)[seed % 4]
        base = rxnfp(layer, part)
        tune = rxnfp(layer, part, "rxnfp-finetuned").astype(np.float64) - base
        update = tune if size is None else scaled(tune, base, size)
        # The values fall slowly: half of the energy is certainly not in a few directions.
        rest = 0.5 * _norm(update) / _norm(base)
        title = f"rxnfp {layer} {part}: real tune, {'full' if size is None else f'{size:.2%}'}, {dtype.name}"
        yield dense_case(title, base, update, rest, dtype)
    for layer in (1, 7, 11):
        base, model = (
            rxnfp(layer, "intermediate.dense.weight", f"rxnfp-{name}") for name in ("10k", "finetuned")
        )
        yield make(f"rxnfp {layer} ffn_in: one fine-tune against the other", "dense", base, model, "dense")


@note_case
def dora_and_high_ranks() -> Iterator[Case]:
    for seed, (name, dtype) in enumerate(
        product(("rxnfp 5 query", "decoder 3 mlp.c_proj", "rxnfp 0 ffn_in"), (FLOAT32, BFLOAT16))
    ):
        base, rng = MATRICES[name](), np.random.default_rng(7000 + seed)
        scale = 1 + 0.04 * rng.standard_normal(base.shape[1])
        update = (base + scaled(gaussian_factors(base.shape, 8, rng), base, 0.05)) * scale - base
        yield dense_case(f"{name}: DoRA of rank 8, {dtype.name}", base, update, 0.04, dtype)
    for seed, (name, rank) in enumerate(
        (("rxnfp 5 query", 100), ("decoder 2 c_fc", 60), ("minilm 3 key", 128), ("rxnfp 11 ffn_out", 90))
    ):
        base = MATRICES[name]()
        update = gaussian_factors(base.shape, rank, np.random.default_rng(7100 + seed))
        yield dense_case(f"{name}: rank {rank}, float32", base, scaled(update, base, 0.05), 0.05, FLOAT32)


@note_case
def noise_of_many_sizes() -> Iterator[Case]:
    names = cycle(MATRICES)
    kinds = ((FLOAT32, "float32"), (FLOAT32, "int4"), (FLOAT16, "float16"))
    kinds = (*kinds, (BFLOAT16, "float32"), (BFLOAT16, "bfloat16"))
    for seed, ((dtype, kind), size) in enumerate(product(kinds, (0.1, 0.01, 1e-3, 1e-4))):
        name = next(names)
        base, rng = as_base(MATRICES[name](), kind), np.random.default_rng(8000 + seed)
        update = scaled(rng.standard_normal(base.shape), base, size)
        title = f"{name}: Gaussian noise of {size:.2%}, {kind} base, {dtype.name} file"
        yield noise_case(title, base, update, dtype)
    for seed, name in enumerate(("rxnfp 5 query", "decoder 2 c_fc")):
        base, rng = MATRICES[name](), np.random.default_rng(8100 + seed)
        update = base * 0.02 * rng.standard_normal(base.shape)
        yield noise_case(f"{name}: noise in proportion to the weights", base, update, FLOAT32)


@note_case
def changed_entries() -> Iterator[Case]:
    kinds = ((FLOAT32, "float32"), (BFLOAT16, "float32"), (BFLOAT16, "bfloat16"), (FLOAT16, "float16"))
    settings = product(("rxnfp 5 query", "decoder 2 c_fc", "rxnfp 0 ffn_in"), kinds)
    for seed, (name, (dtype, kind)) in enumerate(settings):
        base, rng = as_base(MATRICES[name](), kind), np.random.default_rng(9000 + seed)
        values = base.astype(np.float64)
        count = 150
        places = rng.choice(base.size, count, replace=False)
        values.flat[places] += rng.choice([-1, 1], count) * values.std()
        title = f"{name}: {count} scattered entries, {kind} base, {dtype.name} file"
        yield make(title, "entries", base, values.astype(dtype), "sparse")
    for seed, (name, count) in enumerate(
        (("rxnfp 5 query", 1), ("decoder 0 c_attn", 3), ("rxnfp 8 value", 9))
    ):
        base, rng = MATRICES[name](), np.random.default_rng(9100 + seed)
        model = base.copy()
        places = rng.choice(min(base.shape), count, replace=False)
        model[places, places[::-1]] += base.std()
        title = f"{name}: {count} entries in different rows and columns"
        yield make(title, "entries", base, model, "low-rank", rank=count, exact_rank=True)
    for seed, name in enumerate(("rxnfp 5 query", "decoder 2 c_fc")):
        base, rng = MATRICES[name](), np.random.default_rng(9200 + seed)
        mask = rng.random(base.shape) < 0.2
        model = (base + mask * 0.1 * base.std() * rng.standard_normal(base.shape)).astype(np.float32)
        yield make(f"{name}: Gaussian steps of a fifth of the entries", "noise", base, model, "noise")


@note_case
def tuned_rows_and_blocks() -> Iterator[Case]:
    kinds = ((FLOAT32, "float32"), (BFLOAT16, "float32"), (BFLOAT16, "bfloat16"), (FLOAT16, "float16"))
    settings = product(("rxnfp 5 query", "decoder 2 c_fc"), kinds, ((6, None), (None, 5), (12, 40)))
    for seed, (name, (dtype, kind), (rows, columns)) in enumerate(settings):
        base, rng = as_base(MATRICES[name](), kind), np.random.default_rng(10000 + seed)
        block = np.ix_(
            rng.choice(base.shape[0], rows or base.shape[0], replace=False),
            rng.choice(base.shape[1], columns or base.shape[1], replace=False),
        )
        values = base.astype(np.float64)
        values[block] += 0.5 * values.std() * rng.standard_normal(values[block].shape)
        rank = min(values[block].shape)
        title = f"{name}: {rows or 'all'} rows and {columns or 'all'} columns, {kind} base, {dtype.name} file"
        yield make(
            title, "rows or a block", base, values.astype(dtype), "low-rank", rank=rank, exact_rank=True
        )
    for seed, (name, (dtype, kind)) in enumerate(product(("rxnfp 0 ffn_in", "decoder 3 mlp.c_proj"), kinds)):
        base, rng = as_base(MATRICES[name](), kind), np.random.default_rng(10100 + seed)
        values = base.astype(np.float64)
        places = rng.choice(base.shape[0], 24, replace=False)
        values[places] += 0.5 * values.std() * rng.standard_normal((24, base.shape[1]))
        title = f"{name}: 24 tuned rows, {kind} base, {dtype.name} file"
        # Its rank is 24, and within the rows it is Gaussian noise: both are true.
        allowed = ("low-rank", "noise", "dense")
        yield make(title, "rows or a block", base, values.astype(dtype), allowed, rank=24)


@note_case
def rounded_to_floats() -> Iterator[Case]:
    names = cycle(MATRICES)
    narrow = [np.dtype(kind) for kind in (ml_dtypes.bfloat16, np.float16)]
    narrow += [np.dtype(kind) for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)]
    casts = {"nearest": lambda matrix, dtype: matrix.astype(dtype), "toward zero": toward_zero}
    for (way, cast), dtype, kind, stored in product(
        casts.items(), narrow, ("float32", "float16"), (False, True)
    ):
        if dtype == FLOAT16 and kind == "float16":
            continue
        name = next(names)
        base = as_base(MATRICES[name](), kind)
        model = cast(base, dtype)
        title = f"{name}: {kind} base cast to {dtype.name}, {way}"
        if stored:
            model, title = model.astype(np.float32), f"{title}, kept in float32"
        yield make(title, "rounded", base, model, "rounded", formats=frozenset({dtype.name}))
    base = as_base(MATRICES["rxnfp 5 query"](), "bfloat16")
    for dtype in narrow[2:]:
        title = f"rxnfp 5 query: bfloat16 base cast to {dtype.name}"
        model = base.astype(np.float32).astype(dtype)
        yield make(title, "rounded", base, model, "rounded", formats=frozenset({dtype.name}))


@note_case
def rounded_to_codes() -> Iterator[Case]:
    names = cycle(("rxnfp 5 query", "rxnfp 0 ffn_in", "decoder 0 c_attn", "rxnfp 8 value", "minilm 3 key"))
    codes = {"absmax": absmax_code, "min-max": min_max_code}
    settings = product((8, 6, 5, 4, 3, 2), ((None, False), (32, False), (64, True), (128, False)))
    for seed, (bits, (block, columns)) in enumerate(settings):
        name, kind = next(names), ("absmax", "min-max")[(seed // 2 + seed // 4) % 2]
        base = MATRICES[name]()
        model = codes[kind](base, bits, block, columns)
        if seed % 3 == 1:
            model = model.astype(BFLOAT16)
        label = f"int{bits}/{block or 'row'} {kind}{' columns' if columns else ''}"
        title = f"{name}: {label}, {model.dtype.name} file"
        yield make(title, "rounded", base, model, "rounded", formats=frozenset({label}))
    for bits, kind in ((4, "absmax"), (8, "absmax"), (4, "min-max")):
        base = MATRICES["rxnfp 5 query"]()
        model = codes[kind](base, bits, 32, steps=np.float16)
        label = f"int{bits}/32 {kind}"
        title = f"rxnfp 5 query: {label} with float16 steps"
        yield make(title, "rounded", base, model, "rounded", formats=frozenset({label}))


@note_case
def small_steps_from_a_grid() -> Iterator[Case]:
    """Training from a 4-bit base, stored in bfloat16. The base is on the grid: nothing was rounded to it."""
    names = cycle(("rxnfp 5 query", "decoder 0 c_attn", "rxnfp 8 value", "decoder 2 c_fc"))
    codes = {"absmax": absmax_code, "min-max": min_max_code}
    settings = product(codes.items(), (np.float32, np.float16), ("Gaussian", "rank 4"), (1e-5, 1e-4, 5e-4))
    for seed, ((kind, code), steps, form, size) in enumerate(settings):
        name = next(names)
        base, rng = code(MATRICES[name](), 4, 32, steps=steps), np.random.default_rng(11000 + seed)
        draw = rng.standard_normal(base.shape) if form == "Gaussian" else gaussian_factors(base.shape, 4, rng)
        update = scaled(draw, base, size)
        title = f"{name}: int4/32 {kind} base with {np.dtype(steps)} steps, {form} of {size:.3%}, bfloat16"
        reason = "the update is far below the rounding of the file"
        model = merged(base, update, BFLOAT16)
        allowed = "rounded" if np.array_equal(model, base.astype(BFLOAT16)) else "below-floor"
        rank = None if form == "Gaussian" else 4
        yield make(
            title,
            "small steps from a grid",
            base,
            model,
            allowed,
            {"partly-hidden": reason},
            rank=rank,
            formats=frozenset({"bfloat16"}),
            update_size=(0, 1.3 * size),
        )
        if steps is np.float32 and size == 1e-5:
            model = merged(base, update, FLOAT32)
            allowed = "noise" if form == "Gaussian" else "low-rank"
            title = title.replace("bfloat16", "float32")
            yield make(title, "small steps from a grid", base, model, allowed, rank=rank)


@note_case
def rescaled() -> Iterator[Case]:
    names = cycle(MATRICES)
    for dtype, factor in product((FLOAT32, BFLOAT16, FLOAT16), (10.0, 1.05, 0.98, -1.0)):
        name = next(names)
        base = MATRICES[name]()
        model = (base * factor).astype(dtype)
        title = f"{name}: times {factor:g}, {dtype.name} file"
        near = (factor - 1e-3 * abs(factor), factor + 1e-3 * abs(factor))
        yield make(title, "rescaled", base, model, "rescaled", factors=near, along="tensor")
    for seed, (dtype, along, kind) in enumerate(
        product((FLOAT32, BFLOAT16), ("rows", "columns"), ("float32", "bfloat16", "int4"))
    ):
        name = next(names)
        base, rng = as_base(MATRICES[name](), kind), np.random.default_rng(12000 + seed)
        side = base.shape[0 if along == "rows" else 1]
        factors = rng.uniform(0.7, 1.4, side)
        work = base.astype(np.float64)
        model = (work * (factors[:, None] if along == "rows" else factors)).astype(dtype)
        title = f"{name}: every one of the {along} times a factor, {kind} base, {dtype.name} file"
        ends = (factors.min(), factors.max())
        yield make(title, "rescaled", base, model, "rescaled", factors=ends, along=along)


@note_case
def same_zero_broken_and_reshaped() -> Iterator[Case]:
    for name in ("rxnfp 5 query", "decoder 2 c_fc"):
        base = MATRICES[name]()
        yield make(f"{name}: the same", "identical", base, base.copy(), "identical")
        narrow = base.astype(BFLOAT16)
        model = narrow.astype(np.float32)
        yield make(f"{name}: bfloat16 widened to float32", "identical", narrow, model, "identical")
        yield make(f"{name}: zeros", "zeroed", base, np.zeros_like(base), "zeroed")
        for value in (np.nan, np.inf):
            model = base.copy()
            model[3, 5] = value
            yield make(f"{name}: one {value}", "non-finite", base, model, "non-finite")
            yield make(f"{name}: one {value} in the base", "non-finite", model, base, "non-finite")
        yield make(f"{name}: one row less", "reshaped", base, base[1:].copy(), "reshaped")
        half = np.ascontiguousarray(base.reshape(-1, base.shape[1] // 2))
        yield make(f"{name}: folded to half the width", "reshaped", base, half, "reshaped")
    vector = rxnfp(5, "output.dense.bias")
    yield make("bias: zeros", "zeroed", vector, np.zeros_like(vector), "zeroed")


@note_case
def drawn_again() -> Iterator[Case]:
    names = cycle(MATRICES)
    for seed, (draw, dtype) in enumerate(
        product(("Gaussian", "uniform", "Xavier"), (FLOAT32, BFLOAT16, FLOAT16))
    ):
        name = next(names)
        base, rng = MATRICES[name](), np.random.default_rng(13000 + seed)
        limit = np.sqrt(6 / sum(base.shape)) if draw == "Xavier" else base.std() * np.sqrt(3)
        values = rng.uniform(-limit, limit, base.shape)
        if draw == "Gaussian":
            values = 0.02 * rng.standard_normal(base.shape)
        title = f"{name}: {draw} weights, {dtype.name}"
        yield make(title, "reinitialised", base, values.astype(dtype), "reinitialised")


@note_case
def of_another_model() -> Iterator[Case]:
    pairs = {
        "rxnfp 5 query, rxnmapper query": (
            rxnfp(5, "attention.self.query.weight"),
            albert("attention.query.weight"),
        ),
        "rxnfp 0 ffn_in, rxnmapper ffn": (rxnfp(0, "intermediate.dense.weight"), albert("ffn.weight")),
        "rxnfp 11 ffn_out, rxnmapper ffn_output": (
            rxnfp(11, "output.dense.weight"),
            albert("ffn_output.weight"),
        ),
        "minilm 1 ffn_in, rxnmapper ffn": (minilm(1, "intermediate.dense.weight"), albert("ffn.weight")),
        "decoder 1 c_proj, a cut of minilm": (
            decoder(1, "attn.c_proj"),
            minilm(0, "attention.self.query.weight")[:128, :128].copy(),
        ),
    }
    for name, (base, model) in pairs.items():
        yield random_truth(name, "unrelated", base, model)
        yield random_truth(f"{name}, bfloat16", "unrelated", base, model.astype(BFLOAT16))
    for seed, name in enumerate(("rxnfp 5 query", "decoder 2 c_fc", "minilm 3 key")):
        base = MATRICES[name]()
        model = np.random.default_rng(14000 + seed).permutation(base.ravel()).reshape(base.shape)
        yield random_truth(f"{name}: its entries shuffled", "unrelated", base, model)


@note_case
def vectors() -> Iterator[Case]:
    stored = {
        "norm gain": rxnfp(5, "attention.output.LayerNorm.weight"),
        "bias": rxnfp(5, "intermediate.dense.bias"),
        "decoder gain": decoder(2, "ln_1"),
    }
    for seed, (name, base) in enumerate(stored.items()):
        rng = np.random.default_rng(15000 + seed)
        yield make(f"{name}: the same", "identical", base, base.copy(), "identical")
        for dtype in (BFLOAT16, FLOAT16):
            label = frozenset({dtype.name})
            yield make(f"{name}: {dtype.name}", "rounded", base, base.astype(dtype), "rounded", formats=label)
            near = (1.099, 1.101)
            model = (base * 1.1).astype(dtype)
            title = f"{name}: times 1.1, {dtype.name}"
            yield make(title, "rescaled", base, model, "rescaled", factors=near, along="tensor")
        noise = rng.standard_normal(base.shape) * base.std()
        model = (base + 0.1 * noise).astype(np.float32)
        yield make(f"{name}: 10% noise", "changed vector", base, model, "changed")
        model = (base + 0.1 * noise).astype(BFLOAT16)
        yield make(f"{name}: 10% noise, bfloat16", "changed vector", base, model, "changed")
        model = base.copy()
        model[7] += 0.5
        yield make(f"{name}: one entry", "changed vector", base, model, "changed")
        # A move of every third entry by a tenth of a step: few entries change, by one step each.
        values = base.astype(np.float64)
        values[::3] += 0.1 * steps_of(base, BFLOAT16)[::3]
        model = values.astype(BFLOAT16)
        allowed = "rounded" if np.array_equal(model, base.astype(BFLOAT16)) else "below-floor"
        yield make(f"{name}: moved by a tenth of a step, bfloat16", "changed vector", base, model, allowed)
        shifted = (base + 0.5).astype(np.float32)
        yield make(f"{name}: plus a constant", "changed vector", base, shifted, "changed")
    base = read("rxnfp-pretrained", "bert.embeddings.token_type_embeddings.weight")
    rng = np.random.default_rng(15100)
    model = (base + 0.1 * base.std() * rng.standard_normal(base.shape)).astype(np.float32)
    yield make("two embedding rows: 10% noise", "changed vector", base, model, "changed")
    yield make("two embedding rows: times 2", "rescaled", base, 2 * base, "rescaled", factors=(1.999, 2.001))


# Workflows that the note does not list, on Whisper tiny.en (stored in float16) and on rxnmapper (ALBERT).

QUERY = "encoder.blocks.1.attn.query.weight"
VALUE = "decoder.blocks.2.cross_attn.value.weight"
CODED = ("noise", "dense")  # a code that no scheme of theory 12 names


def adapter(base: np.ndarray, rank: int, alpha: float, rng: np.random.Generator, size: float) -> np.ndarray:
    """Draw a trained adapter: a uniform down-projection, a small up-projection, times alpha / rank."""
    down = rng.uniform(-1, 1, (rank, base.shape[1])) * np.sqrt(3 / base.shape[1])
    up = rng.standard_normal((base.shape[0], rank)) * np.geomspace(1, 0.3, rank)
    return scaled(alpha / rank * up @ down, base, size)


def with_values(shape: tuple[int, int], values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a matrix with given singular values and random directions."""
    left = np.linalg.qr(rng.standard_normal((shape[0], len(values))))[0]
    right = np.linalg.qr(rng.standard_normal((shape[1], len(values))))[0]
    return (left * values) @ right.T


@own_case
def adapters_in_half_precision() -> Iterator[Case]:
    rng = np.random.default_rng(20)
    half, full = whisper(QUERY), whisper(QUERY, FLOAT32)
    update = adapter(half, 8, 16, rng, 0.03)
    yield low_rank_case("whisper: LoRA 8, alpha 16, merged twice in float16", half, update, 8, FLOAT16, 2)
    yield low_rank_case("whisper: LoRA 8, alpha 16, merged once in float16", half, update, 8, FLOAT16)
    yield low_rank_case("whisper: LoRA 8, float16 base, float32 file", half, update, 8, FLOAT32)
    yield low_rank_case("whisper: LoRA 8, bfloat16 file of a float16 base", half, update, 8, BFLOAT16)
    value = whisper(VALUE)
    update = adapter(value, 16, 32, rng, 0.1)
    yield low_rank_case("whisper: LoRA 16 of 10% in float16", value, update, 16, FLOAT16)
    update = adapter(full, 8, 16, rng, 3.0)
    yield low_rank_case("whisper: LoRA 8, three times the base, float32", full, update, 8, FLOAT32)
    ffn = albert("ffn.weight")
    update = adapter(ffn, 4, 8, rng, 0.05)
    yield low_rank_case("albert: LoRA 4, float32", ffn, update, 4, FLOAT32)
    yield low_rank_case("albert: LoRA 4, bfloat16", ffn, update, 4, BFLOAT16)
    yield low_rank_case("albert: LoRA 4 merged three times, float32", ffn, update, 4, FLOAT32, 3)
    yield low_rank_case("albert: LoRA 4, float64 base, float32 file", ffn.astype(float), update, 4, FLOAT32)
    up = rng.standard_normal((512, 3)) @ rng.standard_normal((3, 16))
    update = scaled(up @ rng.standard_normal((16, 256)), ffn, 0.05)
    yield low_rank_case("albert: LoRA of 16 that trained only 3 directions", ffn, update, 3, FLOAT32)
    steep = with_values(ffn.shape, np.geomspace(1, 1e-3, 8), rng)
    for dtype in (FLOAT32, FLOAT16, BFLOAT16):
        title = f"albert: rank 8 with values down to 1e-3, {dtype.name}"
        yield low_rank_case(title, ffn, scaled(steep, ffn, 0.05), 8, dtype)


@own_case
def adapters_of_a_part() -> Iterator[Case]:
    rng = np.random.default_rng(21)
    base = whisper(QUERY, FLOAT32)
    update = np.zeros(base.shape)
    update[64:128] = adapter(base[64:128], 4, 8, rng, 0.1)
    yield low_rank_case("whisper: LoRA 4 of one head", base, update, 4, FLOAT32)
    parts = [albert(f"attention.{name}.weight") for name in ("query", "key", "value")]
    fused = np.vstack(parts)
    update = np.zeros(fused.shape)
    update[:256] = adapter(parts[0], 4, 8, rng, 0.05)
    update[512:] = adapter(parts[2], 4, 8, rng, 0.05)
    yield low_rank_case("albert: LoRA 4 of query and of value, fused", fused, update, 8, FLOAT32)
    direction = rng.standard_normal(base.shape[0])
    direction /= np.linalg.norm(direction)
    update = -np.outer(direction, direction @ base)
    yield low_rank_case("whisper: a direction removed, float32", base, update, 1, FLOAT32)
    half = whisper(QUERY)
    left, values, right = np.linalg.svd(half.astype(float), full_matrices=False)
    update = -values[0] * np.outer(left[:, 0], right[0])
    yield low_rank_case("whisper: its first direction removed, float16", half, update, 1, FLOAT16)
    ones = np.ones(base.shape)
    yield low_rank_case("whisper: a constant added, float32", base, 0.1 * base.std() * ones, 1, FLOAT32)
    yield low_rank_case("whisper: a constant added, float16", half, 0.1 * base.std() * ones, 1, FLOAT16)
    gradient = gaussian_factors(base.shape, 16, rng)
    update = scaled(gradient, base, 1e-4)
    yield low_rank_case("whisper: a gradient step of 16 tokens, float32", base, update, 16, FLOAT32)
    signs = np.sign(np.outer(rng.standard_normal(384), rng.standard_normal(384)))
    yield low_rank_case("whisper: a sign step of one token", base, scaled(signs, base, 1e-3), 1, FLOAT32)
    update = adapter(base, 4, 8, rng, 0.05)
    update[rng.choice(384, 6, replace=False)] += 0.1 * base.std() * rng.standard_normal((6, 384))
    yield low_rank_case("whisper: LoRA 4 and 6 tuned rows", base, update, 10, FLOAT32)


@own_case
def adapters_and_something_else() -> Iterator[Case]:
    rng = np.random.default_rng(22)
    base = albert("ffn_output.weight")
    tuned = base + adapter(base, 8, 16, rng, 0.05)
    pruned = np.where(np.abs(tuned) > np.median(np.abs(tuned)), tuned, 0)
    stories = {
        "merged, then half of the entries pruned": pruned,
        "merged, then rounded to int8 by row": absmax_code(tuned, 8),
        "merged into the base times 1.05": tuned + 0.05 * base,
        "merged, with 10% noise of the update": tuned + scaled(rng.standard_normal(base.shape), base, 0.005),
    }
    outliers = tuned.copy()
    outliers.flat[rng.choice(base.size, 3000, replace=False)] += base.std()
    stories["merged, with 3000 broken entries"] = outliers
    for story, model in stories.items():
        yield make(f"albert: LoRA 8 {story}", "dense", base, model.astype(np.float32), "dense")
    update = tuned - base
    dropped = np.where(rng.random(base.shape) < 0.1, 10 * update, 0)
    title = "albert: LoRA 8 with 90% of the entries dropped at random (DARE)"
    yield make(title, "dense", base, (base + dropped).astype(np.float32), ("dense", "noise"))
    half = whisper(VALUE)
    update = adapter(half, 8, 16, rng, 0.03)
    model = (merged(half, update, FLOAT16).astype(float) - update).astype(np.float16)
    reason = "what is left is at most a step of the larger weight"
    title = "whisper: LoRA 8 merged and taken out again in float16"
    yield make(title, "small steps", half, model, ("below-floor", "identical"), {"noise": reason})


@own_case
def merged_models() -> Iterator[Case]:
    base = whisper("encoder.blocks.2.attn.value.weight", FLOAT32)
    other = whisper("decoder.blocks.0.attn.value.weight", FLOAT32)
    other = (other * (_norm(base) / _norm(other))).astype(np.float32)
    angle = np.arccos(np.vdot(base, other) / (_norm(base) * _norm(other)))
    for share in (0.1, 0.3, 0.5):
        first, second = np.sin((1 - share) * angle), np.sin(share * angle)
        model = (first * base + second * other) / np.sin(angle)
        yield make(f"whisper: SLERP at {share}", "dense", base, model.astype(np.float32), "dense")
    for share, dtype in ((0.05, FLOAT32), (0.3, FLOAT16), (0.2, BFLOAT16)):
        model = ((1 - share) * base + share * other).astype(dtype)
        yield make(f"whisper: linear merge {share}, {dtype.name}", "dense", base, model, "dense")
    model = (0.999 * base + 0.001 * other).astype(np.float32)
    yield make("whisper: moving average 0.999, float32", "dense", base, model, "dense")
    rng = np.random.default_rng(23)
    tune = gaussian_factors(base.shape, 6, rng) + 2 * rng.standard_normal(base.shape)
    kept = np.where(np.abs(tune) > np.quantile(np.abs(tune), 0.8), tune, 0)
    model = (base + scaled(kept, base, 0.1)).astype(np.float32)
    yield make("whisper: the largest fifth of a tune (TIES)", "dense", base, model, "dense")
    sign = np.sign(tune)
    model = (base + scaled(sign, base, 0.05)).astype(np.float32)
    yield make("whisper: the signs of a tune with directions (BitDelta)", "dense", base, model, "dense")
    sign = np.sign(rng.standard_normal(base.shape))
    yield noise_case("whisper: the signs of Gaussian steps", base, scaled(sign, base, 0.05), FLOAT32)


@own_case
def decay_and_steps() -> Iterator[Case]:
    rng = np.random.default_rng(24)
    near = {"factors": (0.9988, 0.9992), "along": "tensor"}
    for dtype in (FLOAT32, FLOAT16):
        base = whisper(QUERY, dtype)
        model = (base.astype(float) * 0.999).astype(dtype)
        yield make(f"whisper: weight decay 0.999, {dtype.name}", "rescaled", base, model, "rescaled", **near)
    base = albert("attention.query.weight")
    hidden = dict.fromkeys(("below-floor", "partly-hidden"), "the decay is smaller than the rounding")
    model = (base * 0.999).astype(BFLOAT16)
    yield make("albert: weight decay 0.999, bfloat16", "rescaled", base, model, "rescaled", hidden, **near)
    step = scaled(gaussian_factors(base.shape, 16, rng), base, 0.002)
    model = (0.999 * base - step).astype(np.float32)
    yield make("albert: a gradient step of 16 tokens with decay", "dense", base, model, "dense")
    base = whisper(QUERY)
    tune = gaussian_factors(base.shape, 6, rng) + 3 * rng.standard_normal(base.shape)
    for size in (1e-4, 1e-3, 0.02):
        update = scaled(tune, base, size)
        yield dense_case(f"whisper: AdamW of {size:.2%} in float16", base, update, 0.7 * size, FLOAT16)
    half = np.sign(rng.standard_normal(base.shape)) * 1e-5
    title = "whisper: sign steps of 1e-5 in float16"
    yield noise_case(title, base, half, FLOAT16)


@own_case
def pruned() -> Iterator[Case]:
    base = whisper(QUERY)
    size = np.abs(base.astype(float))
    model = np.where(size > np.median(size), base, np.float16(0))
    yield make("whisper: half of the entries pruned", "pruned", base, model, "dense")
    groups = size.reshape(-1, 4)
    kept = np.argsort(np.argsort(groups, axis=1), axis=1) >= 2
    model = np.where(kept.reshape(base.shape), base, np.float16(0))
    yield make("whisper: two of four pruned", "pruned", base, model, "dense")
    base = albert("attention.value.weight")
    size = np.abs(base)
    model = np.where(size > np.quantile(size, 0.1), base, np.float32(0))
    reason = "the smallest tenth has no pattern and almost no energy along the base"
    yield make("albert: the smallest tenth pruned", "pruned", base, model, "dense", {"noise": reason})
    model = np.where(size > np.quantile(size, 0.005), base, np.float32(0))
    yield make("albert: the smallest 0.5% pruned", "pruned", base, model, "sparse")
    limit = np.quantile(size, 0.998)
    model = np.clip(base, -limit, limit)
    yield make("albert: the largest 0.2% clipped", "pruned", base, model, "sparse")
    ffn = albert("ffn.weight")
    places = np.random.default_rng(25).choice(512, 20, replace=False)
    model = ffn.copy()
    model[places] = 0
    # Rows times 0 and 1, and also an update of rank 20: both are true.
    both = ("rescaled", "low-rank")
    yield make(
        "albert: 20 neurons dropped", "rescaled", ffn, model, both, along="rows", factors=(0, 1), rank=20
    )
    model = albert("ffn_output.weight").copy()
    model[:, places] = 0
    yield make(
        "albert: the columns of 20 neurons dropped",
        "rescaled",
        albert("ffn_output.weight"),
        model,
        both,
        along="columns",
        factors=(0, 1),
        rank=20,
    )
    left, values, right = np.linalg.svd(base.astype(float))
    model = ((left[:, :64] * values[:64]) @ right[:64]).astype(np.float32)
    yield make("albert: compressed to 64 directions", "dense", base, model, "dense")


@own_case
def folded_and_rescaled() -> Iterator[Case]:
    gain = whisper("encoder.blocks.1.attn_ln.weight").astype(float)
    for dtype in (FLOAT32, FLOAT16):
        base = whisper(QUERY, dtype)
        model = (base.astype(float) * gain).astype(dtype)
        ends = {"factors": (gain.min(), gain.max()), "along": "columns"}
        yield make(f"whisper: norm gain folded, {dtype.name}", "rescaled", base, model, "rescaled", **ends)
    base = albert("ffn.weight")
    smooth = np.abs(base).max(axis=0).astype(float) ** 0.5
    smooth /= smooth.mean()
    model = (base / smooth).astype(BFLOAT16)
    ends = {"factors": (1 / smooth.max(), 1 / smooth.min()), "along": "columns"}
    yield make("albert: SmoothQuant columns, bfloat16", "rescaled", base, model, "rescaled", **ends)
    norms = np.linalg.norm(base.astype(float), axis=1)
    model = (base / norms[:, None]).astype(np.float32)
    ends = {"factors": (1 / norms.max(), 1 / norms.min()), "along": "rows"}
    yield make("albert: rows of norm 1", "rescaled", base, model, "rescaled", **ends)
    half = whisper(VALUE)
    factors = np.ones(384)
    factors[128:192] = 0.5
    model = (half.astype(float) * factors[:, None]).astype(np.float16)
    ends = {"factors": (0.5, 1.0), "along": "rows"}
    yield make("whisper: one head halved", "rescaled", half, model, "rescaled", **ends)
    ends = {"factors": (-1.001, -0.999), "along": "tensor"}
    yield make("whisper: negated", "rescaled", half, -half, "rescaled", **ends)
    factors = np.exp(0.05 * np.random.default_rng(26).standard_normal(384))
    model = (half.astype(float) * factors[:, None]).astype(np.float16)
    ends = {"factors": (factors.min(), factors.max()), "along": "rows"}
    yield make("whisper: outputs times a learned vector (IA3)", "rescaled", half, model, "rescaled", **ends)
    model = (half.astype(np.float32) * 65536).astype(np.float32)
    ends = {"factors": (65500, 65570), "along": "tensor"}
    yield make("whisper: a loss scale left in, float32", "rescaled", half, model, "rescaled", **ends)
    with np.errstate(over="ignore"):
        model = (half.astype(float) * 1e7).astype(np.float16)
    yield make("whisper: a loss scale left in, float16 overflows", "non-finite", half, model, "non-finite")


def flip_bits(base: np.ndarray, places: np.ndarray, bit: int) -> np.ndarray:
    model = base.copy()
    codes = model.view(np.uint16 if base.itemsize == 2 else np.uint32)
    codes.flat[places] ^= codes.dtype.type(1 << bit)
    return model


@own_case
def flipped_bits() -> Iterator[Case]:
    rng = np.random.default_rng(27)
    half, full = whisper(QUERY), albert("attention.key.weight")
    place = np.array([np.abs(half).argmax()])
    single = {"rank": 1, "exact_rank": True}
    yield make("whisper: one sign flipped", "entries", half, flip_bits(half, place, 15), "low-rank", **single)
    yield make(
        "whisper: one exponent bit flipped", "entries", half, flip_bits(half, place, 12), "low-rank", **single
    )
    model = flip_bits(full, np.array([1234]), 29)
    yield make("albert: one high exponent bit flipped", "entries", full, model, "low-rank", **single)
    reason = "one step of one entry is also an update of rank 1"
    for base, title in ((half, "whisper"), (full, "albert")):
        model = flip_bits(base, place % base.size, 0)
        title = f"{title}: the last bit of one entry flipped"
        yield make(title, "small steps", base, model, "below-floor", {"low-rank": reason}, rank=1)
    places = rng.choice(half.size, 60, replace=False)
    places = places[np.abs(half.ravel()[places].astype(float)) > 1e-3]
    yield make("whisper: scattered signs flipped", "entries", half, flip_bits(half, places, 15), "sparse")
    title = "whisper: scattered last bits flipped"
    yield make(title, "small steps", half, flip_bits(half, places, 0), "below-floor")
    everywhere = np.flatnonzero(rng.random(full.size) < 0.5)
    model = flip_bits(full, everywhere, 0)
    allowed = ("noise", "below-floor")
    yield make("albert: half of the last bits flipped", "small steps", full, model, allowed)


@own_case
def rounded_in_other_ways() -> Iterator[Case]:
    rng = np.random.default_rng(28)
    full = albert("ffn.weight")
    both = ("rounded", "below-floor")
    model = full.astype(np.float16).astype(BFLOAT16)
    yield make("albert: float16, then bfloat16", "rounded twice", full, model, both)
    model = full.astype(BFLOAT16).astype(np.float16)
    yield make("albert: bfloat16, then float16", "rounded twice", full, model, both)
    for base in (full, whisper(VALUE)):
        lower = toward_zero(base, BFLOAT16).astype(np.float64)
        step = np.where(base < 0, -1, 1) * steps_of(lower, BFLOAT16)
        chance = (base.astype(float) - lower) / step
        model = (lower + step * (rng.random(base.shape) < chance)).astype(BFLOAT16)
        title = f"stochastic rounding of a {base.dtype.name} base to bfloat16"
        reason = "each entry moves at random to one of its two neighbours"
        yield make(title, "rounded at random", base, model, "below-floor", {"noise": reason})
    for digits in (3, 5):
        model = np.round(full.astype(float), digits).astype(np.float32)
        yield make(f"albert: {digits} decimals kept", "another code", full, model, CODED)
    exponent = np.floor(np.log10(np.maximum(np.abs(full.astype(float)), 1e-30)))
    model = (np.round(full / 10.0**exponent, 5) * 10.0**exponent).astype(np.float32)
    reason = "the sixth digit is close to the rounding of float32"
    title = "albert: written as text with six digits"
    yield make(title, "another code", full, model, CODED, {"below-floor": reason})
    half = whisper(QUERY)
    name = frozenset({"bfloat16"})
    title = "whisper: float16 base in bfloat16"
    yield make(title, "rounded", half, half.astype(BFLOAT16), "rounded", formats=name)
    convolution = whisper("encoder.conv1.weight")
    title = "whisper: a convolution in bfloat16"
    yield make(title, "rounded", convolution, convolution.astype(BFLOAT16), "rounded", formats=name)
    yield make("whisper: the same convolution", "identical", convolution, convolution.copy(), "identical")


NF4 = np.array(
    (
        *(-1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0),
        *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
    )
)
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
E2M1 = np.concatenate([-E2M1[:0:-1], E2M1])


def to_levels(matrix: np.ndarray, levels: np.ndarray, scale: np.ndarray, block: int) -> np.ndarray:
    """Round each block, divided by its scale, to the nearest of some levels."""
    blocks = matrix.astype(float).reshape(matrix.shape[0], -1, block) / scale
    middles = (levels[1:] + levels[:-1]) / 2
    return (levels[np.searchsorted(middles, blocks)] * scale).reshape(matrix.shape).astype(np.float32)


def feedback_code(matrix: np.ndarray, bits: int, block: int, rng: np.random.Generator) -> np.ndarray:
    """Round column by column and spread each error over the columns that follow, as GPTQ does."""
    inputs = rng.standard_normal((matrix.shape[1], 600))
    inputs[1:] += 0.7 * inputs[:-1]
    moments = inputs @ inputs.T / 600 + 0.01 * np.eye(matrix.shape[1])
    factor = np.linalg.cholesky(np.linalg.inv(moments)).T
    work, model = matrix.astype(float).copy(), np.zeros(matrix.shape)
    for column in range(matrix.shape[1]):
        if column % block == 0:
            step = np.abs(work[:, column : column + block]).max(axis=1) / (2 ** (bits - 1) - 1)
        model[:, column] = step * np.rint(work[:, column] / step)
        error = (work[:, column] - model[:, column]) / factor[column, column]
        work[:, column:] -= np.outer(error, factor[column, column:])
    return model.astype(np.float32)


@own_case
def other_codes() -> Iterator[Case]:
    rng = np.random.default_rng(29)
    base = albert("ffn.weight")
    blocks = np.abs(base).reshape(base.shape[0], -1, 64).max(axis=2, keepdims=True).astype(float)
    yield make("albert: NF4 of 64", "another code", base, to_levels(base, NF4, blocks, 64), CODED)
    narrow = np.abs(base).reshape(base.shape[0], -1, 32).max(axis=2, keepdims=True).astype(float)
    scale = 2.0 ** (np.floor(np.log2(narrow)) - 2)
    vague = {"below-floor": "these numbers lie on float8's grid, where they look like a few roundings"}
    yield make("albert: MXFP4", "another code", base, to_levels(base, E2M1, scale, 32), CODED, vague)
    factor = 448 / np.abs(base).max() / 1.3
    model = ((base * factor).astype(ml_dtypes.float8_e4m3fn).astype(float) / factor).astype(np.float32)
    yield make("albert: float8 with a scale", "another code", base, model, CODED)
    yield make("albert: float8 with a scale, bfloat16", "another code", base, model.astype(BFLOAT16), CODED)
    step = np.abs(base).max() / 127
    model = (step * np.rint(base / step)).astype(np.float32)
    yield make("albert: int8 with one step", "another code", base, model, CODED)
    clipped = narrow / 8
    model = clipped * np.clip(np.rint(base.reshape(base.shape[0], -1, 32) / clipped), -8, 7)
    model = model.reshape(base.shape).astype(np.float32)
    yield make("albert: Q4_0, clipped", "another code", base, model, CODED)
    # Scales of 32 in 6 bits of the scale of 256: as the k-quants of llama.cpp.
    blocks = base.astype(float).reshape(base.shape[0], -1, 8, 32)
    low, high = blocks.min(axis=3, keepdims=True), blocks.max(axis=3, keepdims=True)
    low, span = np.minimum(low, 0), (high - np.minimum(low, 0)) / 15
    span = np.rint(span / span.max(axis=2, keepdims=True) * 63) / 63 * span.max(axis=2, keepdims=True)
    low = np.rint(low / low.min(axis=2, keepdims=True) * 63) / 63 * low.min(axis=2, keepdims=True)
    model = (span * np.clip(np.rint((blocks - low) / span), 0, 15) + low).reshape(base.shape)
    yield make("albert: k-quants of 4 bits", "another code", base, model.astype(np.float32), CODED)
    square = albert("attention.query.weight")
    for bits in (4, 3):
        model = feedback_code(square, bits, 32, rng)
        yield make(f"albert: GPTQ of {bits} bits", "another code", square, model, CODED)
    half = whisper(QUERY)
    scale = np.abs(half.astype(float)).mean()
    model = (scale * np.clip(np.rint(half.astype(float) / scale), -1, 1)).astype(np.float16)
    yield make("whisper: ternary", "another code", half, model, CODED)
    name = frozenset({"int8/row absmax"})
    full = whisper(QUERY, FLOAT32)
    yield make("whisper: int8 by row", "rounded", full, absmax_code(full, 8), "rounded", formats=name)
    name = frozenset({"int4/128 min-max"})
    model = min_max_code(full, 4, 128).astype(BFLOAT16)
    yield make("whisper: AWQ-like int4/128, bfloat16", "rounded", full, model, "rounded", formats=name)


@own_case
def embeddings() -> Iterator[Case]:
    rng = np.random.default_rng(30)
    base = read("rxnmapper", "albert.embeddings.word_embeddings.weight")
    places = rng.choice(len(base), 60, replace=False)
    model = base.copy()
    model[places[:8]] = base.std() * rng.standard_normal((8, 128))
    title = "albert: 8 embedding rows retrained"
    yield make(title, "rows or a block", base, model, "low-rank", rank=8, exact_rank=True)
    model = base.copy()
    model[places] = base.std() * rng.standard_normal((60, 128))
    yield make("albert: 60 embedding rows drawn again", "rows or a block", base, model, "dense")
    model = base.copy()
    model[100] = 0
    allowed = ("rescaled", "low-rank")
    yield make("albert: an embedding row zeroed", "rescaled", base, model, allowed, along="rows", rank=1)
    model = np.vstack([base, base.mean(axis=0, keepdims=True)])
    yield make("albert: an embedding row appended", "reshaped", base, model, "reshaped")
    model = base + 0.05 * base.std() * rng.standard_normal(base.shape)
    model[:5] = base[:5]
    yield make("albert: noise on all but 5 rows", "noise", base, model.astype(np.float32), "noise")
    model = base - base.mean(axis=0)
    update = -np.broadcast_to(base.mean(axis=0, dtype=float), base.shape)
    yield low_rank_case("albert: the mean row subtracted", base, update, 1, FLOAT32)


@own_case
def turned_and_reordered() -> Iterator[Case]:
    rng = np.random.default_rng(31)
    base = whisper(QUERY, FLOAT32)
    turn = np.linalg.qr(rng.standard_normal((384, 384)))[0]
    yield random_truth("whisper: rotated", "unrelated", base, (turn @ base).astype(np.float32))
    twist = rng.standard_normal((384, 384))
    twist = (twist - twist.T) / np.sqrt(2 * 384)
    model = (base + 0.02 * twist @ base).astype(np.float32)
    reason = "a small random turn moves every column at right angles to itself"
    yield make("whisper: turned a little", "dense", base, model, "dense", {"noise": reason})
    moved = {
        "transposed": (base.T.copy(), "transposed"),
        "rows sorted by norm": (base[np.argsort(np.linalg.norm(base, axis=1))], "permuted"),
        "columns reversed": (base[:, ::-1].copy(), "permuted"),
        "rows rolled by one head": (np.roll(base, 64, axis=0), "permuted"),
    }
    for story, (model, finer) in moved.items():
        # The pair alone shows what a look at the order names more finely.
        coarse = random_truth(story, "reordered", base, model)
        allowed = coarse.allowed - {"reinitialised"} | {finer}
        yield make(f"whisper: {story}", "reordered", base, model, allowed)
    order = np.arange(384)
    order[:64], order[64:128] = order[64:128].copy(), order[:64].copy()
    model = base[order]
    # The two blocks change by opposite amounts: at most 64 directions.
    allowed = ("dense", "permuted", "low-rank")
    yield make("whisper: two heads exchanged", "reordered", base, model, allowed, rank=64)
    other = whisper("decoder.blocks.3.attn.query.weight", FLOAT32)
    yield random_truth("whisper: weights of another block", "unrelated", base, other)
    model = ((base + other * (_norm(base) / _norm(other))) / 2).astype(np.float32)
    yield make("whisper: the mean of two blocks", "dense", base, model, "dense")
    codes = base.astype(BFLOAT16).view(np.uint16).view(np.float16)
    cosine = np.vdot(base, codes.astype(np.float32)) / (_norm(base) * _norm(codes))
    allowed = "dense" if cosine > 0.25 else ("dense", "unrelated")
    yield make("whisper: bits of bfloat16 read as float16", "dense", base, codes.copy(), allowed)


@own_case
def falling_values() -> Iterator[Case]:
    rng = np.random.default_rng(32)
    base = albert("attention.dense.weight")
    for power, dtype in product((0.5, 1.0, 1.5), (FLOAT32, BFLOAT16)):
        values = np.arange(1, 257.0) ** -power
        update = scaled(with_values(base.shape, values, rng), base, 0.05)
        tail = np.append(1 - np.cumsum(values**2) / np.sum(values**2), 0)
        case = dense_case(f"albert: values as i^-{power}, 5%, {dtype.name}", base, update, 0.005, dtype)
        vague = dict(case.vague)
        if dtype != FLOAT32 and power == 1.5:
            vague["low-rank"] = "beyond the seen directions is less than 1% of the energy"
        numbers = {"tail": (1.0, *map(float, tail))}
        yield make(case.name, case.truth, base, case.model, case.allowed, vague, **numbers)
    update = scaled(with_values(base.shape, np.exp(-np.arange(256) / 3), rng), base, 0.05)
    model = merged(base, update, FLOAT32)
    title = "albert: values as exp(-i/3)"
    yield make(title, "dense", base, model, ("dense", "low-rank"))


@own_case
def small_tensors() -> Iterator[Case]:
    rng = np.random.default_rng(33)
    gain, bias = whisper("decoder.blocks.1.mlp_ln.weight"), whisper("decoder.blocks.1.mlp.0.bias")
    yield make("whisper: norm gain times 0.5", "rescaled", gain, gain / 2, "rescaled", factors=(0.499, 0.501))
    model = (gain.astype(float) + 0.02 * rng.standard_normal(gain.shape)).astype(np.float16)
    yield make("whisper: norm gain tuned", "changed vector", gain, model, "changed")
    model = (bias.astype(float) + 0.1 * bias.std() * rng.standard_normal(bias.shape)).astype(np.float16)
    yield make("whisper: bias tuned", "changed vector", bias, model, "changed")
    places = np.flatnonzero(np.abs(bias.astype(float)) > 1e-3)[:3]
    model = flip_bits(bias, places, 0)
    yield make("whisper: last bits of 3 biases", "changed vector", bias, model, "below-floor")
    yield make("whisper: bias sorted", "changed vector", bias, np.sort(bias), ("changed", "permuted"))
    yield make("whisper: gain set to 1", "changed vector", gain, np.ones_like(gain), "changed")
    title = "whisper: bias in bfloat16"
    name = frozenset({"bfloat16"})
    yield make(title, "rounded", bias, bias.astype(BFLOAT16), "rounded", formats=name)
    number = np.array([2.6593], np.float32)
    model = np.array([4.6052], np.float32)
    yield make("a single number changed", "changed vector", number, model, ("rescaled", "changed"))
    narrow = read("rxnmapper", "albert.embeddings.token_type_embeddings.weight")
    model = (narrow + 0.3 * narrow.std() * rng.standard_normal(narrow.shape)).astype(np.float32)
    yield make("albert: two type rows tuned", "changed vector", narrow, model, "changed")
