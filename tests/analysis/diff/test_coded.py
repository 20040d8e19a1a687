"""The verdict `coded`: the base stored in a quantised code, against numbers formed in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import attnlaw
from attnlaw.analysis.diff.coded import code_bits, coded_change
from attnlaw.checkpoints.open import open_model

CODES = Path(__file__).parents[2] / "checkpoints" / "quantization" / "codes"
BASE = CODES / "original-llama"
GPTQ = "GPTQ 4-bit, groups of 32"
QUERY = "model.layers.0.self_attn.q_proj.weight"


def draw(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((96, 64)).astype(np.float32)


def rounded(weights: np.ndarray, levels: int = 7) -> np.ndarray:
    """The weights on a grid with a step for each row."""
    step = np.abs(weights).max(axis=1, keepdims=True) / levels
    return (np.round(weights / step) * step).astype(np.float32)


def state_of(name: str, **changes: np.ndarray) -> dict[str, np.ndarray]:
    tensors = open_model(CODES / name).tensors
    return {key: np.asarray(tensors.read(key)).astype(np.float32) for key in tensors.shapes} | changes


def test_the_numbers_are_those_of_the_difference() -> None:
    base = draw()
    model = rounded(base)
    change = coded_change(base, model, GPTQ, "bfloat16")
    assert change is not None
    assert (change.verdict, change.code, change.rank, change.along) == ("coded", GPTQ, None, None)
    assert change.size == pytest.approx(np.linalg.norm(model - base) / np.linalg.norm(base), rel=1e-5)
    cosine = np.sum(base * model) / np.linalg.norm(base) / np.linalg.norm(model)
    assert change.cosine == pytest.approx(cosine, rel=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: 1.2 * weights,
        lambda weights: 0 * weights,
        lambda weights: weights[::-1],
        lambda weights: weights[:, ::-1],
        lambda weights: np.full_like(weights, np.nan),
        lambda weights: weights[:-1],
    ],
    ids=["another size", "zero", "rows in another order", "columns in another order", "nan", "fewer rows"],
)
def test_damage_is_not_coded(change: Any) -> None:
    base = draw()
    assert coded_change(base, change(rounded(base)), GPTQ, "bfloat16") is None


def test_equal_tensors_and_plain_types_are_left_to_the_other_verdicts() -> None:
    base = draw()
    assert coded_change(base, base, GPTQ, "bfloat16") is None
    assert coded_change(base, rounded(base), "bfloat16", "bfloat16") is None
    assert coded_change(base, rounded(base), GPTQ, GPTQ) is None


def test_two_bits_may_be_further_away() -> None:
    base = draw()
    model = base + draw(1)  # cosine 0.71
    assert coded_change(base, model, "GPTQ 4-bit, groups of 32", "bfloat16") is None
    assert coded_change(base, model, "GPTQ 2-bit, groups of 32", "bfloat16") is not None


def test_bitnet_may_have_any_factor() -> None:
    base = draw()
    model = 0.3 * rounded(base, levels=2)
    assert coded_change(base, model, "GPTQ 2-bit, groups of 32", "bfloat16") is None
    change = coded_change(base, model, "BitNet 2-bit", "bfloat16")
    assert change is not None
    assert change.factor == pytest.approx(np.sum(base * model) / np.sum(base * base), rel=1e-5)


def test_awq_may_have_a_factor_for_each_column() -> None:
    base = draw()
    factors = np.exp(0.7 * np.random.default_rng(2).standard_normal(64)).astype(np.float32)
    model = rounded(base * factors)
    change = coded_change(base, model, "AWQ 4-bit, groups of 32", "bfloat16")
    assert change is not None
    assert change.along == "columns"
    fitted = [np.linalg.lstsq(base[:, [j]], model[:, j], rcond=None)[0][0] for j in range(64)]
    assert change.factor_low == pytest.approx(min(fitted), rel=1e-4)
    assert change.factor_high == pytest.approx(max(fitted), rel=1e-4)
    left = np.linalg.norm(model - base * fitted) / np.linalg.norm(base * fitted)
    assert change.size == pytest.approx(left, rel=1e-4)
    assert coded_change(base, model, "bitsandbytes NF4, blocks of 64", "bfloat16") is None


def test_one_factor_for_the_whole_tensor_is_not_awq() -> None:
    base = draw()
    assert coded_change(base, 2 * rounded(base), "AWQ 4-bit, groups of 32", "bfloat16") is None


def test_the_number_of_bits_of_every_label() -> None:
    labels = {GPTQ: 4, "float8 e4m3fn, rows": 8, "IQ2_XXS": 2, "BitNet 2-bit, any": 2, "a code": 8}
    assert {label: code_bits(label) for label in labels} == labels


@pytest.mark.parametrize("name", ["gptq-4-sym", "fp8-block", "bitnet-divide"])
def test_a_coded_model_is_not_a_damaged_one(name: str) -> None:
    result = attnlaw.diff(BASE, CODES / name, jobs=1)
    coded = result.tables["diff_tensors"].filter(pl.col("verdict") == "coded")
    assert coded.height == 7
    assert coded["rank"].null_count() == coded["sqnr_db"].len()
    label = coded["dtype_model"][0]
    assert coded["format"].unique().to_list() == [label]
    assert result.row()["verdict"].startswith(f"Stored as {label}: all 7 matrices, ")
    assert "This file cannot show changes that are" in result.row()["verdict"]
    assert attnlaw.check(CODES / name, base=str(BASE), rules="export", jobs=1).row()["passed"]


def test_a_matrix_that_was_damaged_before_it_was_coded_fails_the_gate() -> None:
    damaged = state_of("original-llama")
    damaged[QUERY] = damaged[QUERY][::-1].copy()
    result = attnlaw.diff(damaged, CODES / "gptq-4-sym", heads=4, jobs=1)
    row = result.tables["diff_tensors"].row(by_predicate=pl.col("tensor") == QUERY, named=True)
    assert row["verdict"] == "permuted"


def test_stacked_experts_of_a_coded_model_are_compared_one_by_one() -> None:
    result = attnlaw.diff(CODES / "original-moe", CODES / "mlx-moe", jobs=1)
    counts = dict(result.tables["diff_tensors"]["verdict"].value_counts().iter_rows())
    assert counts == {"coded": 16 + 2 + 1, "identical": 5}  # 4 experts of 3 matrices, attention; router


def test_more_than_the_error_of_a_code_is_not_coded():
    """A float8 copy of a changed model: the change is many times the error of float8."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((64, 64)).astype(np.float32)
    label = "float8 e4m3fn, one scale"
    for noise, expected in ((0.02, "coded"), (0.3, None)):
        model = (base + noise * rng.standard_normal(base.shape)).astype(np.float32)
        change = coded_change(base, model, label, "float32")
        assert (None if change is None else change.verdict) == expected


def test_a_coarse_code_does_not_make_other_singular_values_the_same() -> None:
    """The base lacks an update of rank 2 that is as large as each matrix."""
    rng = np.random.default_rng(0)
    base = state_of("original-llama")
    for name, weights in base.items():
        if "proj" in name:
            update = rng.standard_normal((len(weights), 2)) @ rng.standard_normal((2, weights.shape[1]))
            base[name] = weights - (update * np.linalg.norm(weights) / np.linalg.norm(update)).astype(
                np.float32
            )
    comparison = attnlaw.diff(base, CODES / "gptq-4-sym", heads=4)
    assert "rotated" not in comparison.values()["verdicts"]
    assert "same singular values" not in comparison.values()["verdict"]
