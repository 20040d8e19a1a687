"""Verdicts of stored tensors: every case of real matrices, and the borders between verdicts."""

import ml_dtypes
import numpy as np
import pytest
from analysis.diff.pair import (
    NAMES,
    absmax_grid,
    as_bfloat16,
    min_max_grid,
    weights,
    with_lora,
    with_noise,
)

from attnlaw.analysis.diff.rounding import INTEGERS
from attnlaw.analysis.diff.tensors import compare_tensors

FEW = NAMES[::11]  # seven of the 72, of every shape and kind


def fresh(matrix, rng):
    return (matrix.std() * rng.standard_normal(matrix.shape)).astype(np.float32)


def schemes(bits, block, **more):
    return lambda matrix, rng: absmax_grid(matrix, bits, block, **more)


# A change, and the verdict, format and rank of every matrix.
CASES = {
    "self": (lambda matrix, rng: matrix, ("identical", None, None)),
    "bfloat16": (as_bfloat16, ("rounded", "bfloat16", None)),
    "float16": (lambda matrix, rng: matrix.astype(np.float16), ("rounded", "float16", None)),
    "bfloat16 kept in float32": (
        lambda matrix, rng: as_bfloat16(matrix).astype(np.float32),
        ("rounded", "bfloat16", None),
    ),
    "int8 by row": (schemes(8, None), ("rounded", "int8/row absmax", None)),
    "int4 absmax": (schemes(4, 32), ("rounded", "int4/32 absmax", None)),
    "int4 min-max": (
        lambda matrix, rng: min_max_grid(matrix, 4, 32),
        ("rounded", "int4/32 min-max", None),
    ),
    "int4 kept in bfloat16": (
        lambda matrix, rng: as_bfloat16(absmax_grid(matrix, 4, 32)),
        ("rounded", "int4/32 absmax", None),
    ),
    "int4 with float16 steps": (schemes(4, 32, steps=np.float16), ("rounded", "int4/32 absmax", None)),
    "LoRA of rank 4, 20 percent": (with_lora(4, 0.2), ("low-rank", None, 4)),
    "LoRA of rank 16, 20 percent": (with_lora(16, 0.2), ("low-rank", None, 16)),
    "LoRA of rank 4, 0.1 percent": (with_lora(4, 1e-3), ("low-rank", None, 4)),
    "LoRA of rank 4, 1e-6": (with_lora(4, 1e-6), ("low-rank", None, 4)),
    "LoRA of rank 4, 2 percent, in bfloat16": (
        with_lora(4, 0.02, ml_dtypes.bfloat16),
        ("low-rank", None, 4),
    ),
    "noise of 1 percent": (with_noise(0.01), ("noise", None, "any")),
    "fresh weights": (fresh, ("reinitialised", None, "any")),
}


def judged(change, names):
    rng = np.random.default_rng(0)
    for name in names:
        base = weights()[name]
        model = change(base, rng)
        yield compare_tensors(base, model, model.dtype.name)


def check(case, names):
    change, (verdict, form, rank) = CASES[case]
    for comparison in judged(change, names):
        assert comparison.verdict == verdict
        assert (comparison.format and comparison.format.name) == form
        assert rank == "any" or comparison.rank == rank


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_verdicts_of_some_matrices(case):
    check(case, FEW)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_verdicts_of_all_72_matrices(case):
    check(case, NAMES)


@pytest.mark.long
def test_an_update_below_the_floor_is_called_so():
    """LoRA of 0.1 percent in bfloat16, of queries and values: a few directions show, or none does."""
    queries = [name for name in NAMES if "query" in name or "value" in name]
    changes = list(judged(with_lora(4, 1e-3, ml_dtypes.bfloat16), queries))
    assert {change.verdict for change in changes} <= {"partly-hidden", "below-floor"}
    seen = [change.rank_low for change in changes if change.verdict == "partly-hidden"]
    assert len(seen) >= 18
    assert max(seen) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["finetuned", "10k"])
def test_fine_tuned_matrices_are_dense(name):
    for tensor_name in FEW:
        comparison = compare_tensors(weights()[tensor_name], weights(name)[tensor_name], "float32")
        assert comparison.verdict == "dense"


@pytest.mark.slow
def test_one_changed_entry_is_of_rank_one():
    base = weights()[NAMES[0]]
    model = base.copy()
    model[3, 5] += 0.01
    comparison = compare_tensors(base, model, "float32")
    assert (comparison.verdict, comparison.rank) == ("low-rank", 1)
    assert comparison.unchanged == 1 - 1 / base.size
    assert comparison.max_change == pytest.approx(0.01, rel=1e-4)


def test_numbers_of_a_change():
    base = np.array([[3.0, 0.0], [0.0, 4.0]])
    model = np.array([[3.0, 0.0], [0.0, 3.0]])
    comparison = compare_tensors(base, model, "float64")
    assert (comparison.size, comparison.unchanged, comparison.max_change) == (0.2, 0.75, 1.0)
    assert comparison.cosine == pytest.approx(21 / (5 * np.sqrt(18)))
    assert comparison.sqnr_db == pytest.approx(20 * np.log10(5))


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_sizes_do_not_depend_on_the_scale(scale):
    rng = np.random.default_rng(1)
    base = rng.standard_normal((8, 6))
    model = base + 0.1 * rng.standard_normal((8, 6))
    plain, scaled = (compare_tensors(factor * base, factor * model, "float64") for factor in (1.0, scale))
    assert scaled.size == pytest.approx(plain.size)
    assert scaled.cosine == pytest.approx(plain.cosine)


def test_vectors_other_shapes_and_damage():
    vector = np.arange(1.0, 9.0, dtype=np.float32)
    assert compare_tensors(vector, vector, "float32").verdict == "identical"
    third = vector / 3
    assert compare_tensors(third, third.astype(np.float16), "float16").format.name == "float16"
    assert compare_tensors(vector, vector + 1, "float32").verdict == "changed"
    bad = vector.copy()
    bad[2] = np.nan
    assert compare_tensors(vector, bad, "float32").verdict == "non-finite"
    assert compare_tensors(bad, vector, "float32").verdict == "non-finite"
    embedding = np.ones((10, 4), dtype=np.float32)
    grown = np.vstack([2 * embedding, np.zeros((3, 4), np.float32)])
    comparison = compare_tensors(embedding, grown, "float32")
    assert (comparison.verdict, comparison.size, comparison.max_change) == ("reshaped", 1.0, 1.0)
    other = compare_tensors(embedding, np.ones((10, 5)), "float32")
    assert (other.verdict, other.size) == ("reshaped", None)


def test_zero_tensors_have_no_size():
    zero, identity = np.zeros((4, 4)), np.eye(4)
    assert compare_tensors(zero, zero, "float64").verdict == "identical"
    comparison = compare_tensors(zero, identity, "float64")
    assert (comparison.size, comparison.cosine, comparison.verdict) == (None, None, "changed")
    gone = compare_tensors(identity, zero, "float64")
    assert (gone.size, gone.cosine, gone.verdict) == (1.0, None, "zeroed")


def test_stacked_experts_are_read_by_their_last_axis():
    rng = np.random.default_rng(2)
    base = rng.standard_normal((3, 64, 32)).astype(np.float32)
    assert compare_tensors(base, base.astype(np.float16), "float16").format.name == "float16"
    changed = base.copy()
    changed[1] += np.outer(rng.standard_normal(64), rng.standard_normal(32)).astype(np.float32)
    comparison = compare_tensors(base, changed, "float32")
    assert (comparison.verdict, comparison.rank) == ("low-rank", 1)


@pytest.mark.parametrize("name", INTEGERS)
def test_every_scheme_is_told_from_the_others(name):
    """Of a Gaussian matrix: the scheme itself is found, unless the matrix is too small for its blocks."""
    base = np.random.default_rng(3).standard_normal((128, 256)).astype(np.float32)
    model = INTEGERS[name].round_weights(base).astype(np.float32)
    comparison = compare_tensors(base, model, "float32")
    assert comparison.verdict == "rounded"
    assert comparison.format.bits == INTEGERS[name].bits
    assert (comparison.format.round_weights(base).astype(np.float32) == model).mean() > 0.99
