"""The confusion table of `diff`: verdicts of pairs whose truth is known from how they are made.

Run with `-s` to see the tables and every verdict that says less than the truth.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import polars as pl
import pytest
from analysis.diff.cases import NOTE_CASES, OWN_CASES, Case, build_cases, gaussian_factors, scaled
from oracles.diff_verdicts import judge

import attnlaw
from attnlaw.analysis.diff.tensors import compare_tensors
from attnlaw.checkpoints.open import find_checkpoint, open_file

pytestmark = pytest.mark.slow

WIDTH, INNER, HEADS = 48, 96, 4
TINY_DECODER = Path(__file__).parents[3] / "examples/tiny-decoder"
SMALL = {"below-floor", "partly-hidden", "low-rank"}  # verdicts that estimate the size of the update


# Verdicts of single tensors.


def wrong_numbers(case: Case, comparison) -> list[str]:
    """List the printed numbers that contradict what is known of a case."""
    numbers, verdict, problems = case.numbers, comparison.verdict, []
    if numbers.rank is not None and verdict == "low-rank":
        if numbers.exact_rank and comparison.rank != numbers.rank:
            problems.append(f"rank {comparison.rank}, not {numbers.rank}")
        if comparison.rank_low > numbers.rank:
            problems.append(f"rank_low {comparison.rank_low} above rank {numbers.rank}")
        if not numbers.open_above and comparison.rank_high < numbers.rank:
            problems.append(f"rank_high {comparison.rank_high} below rank {numbers.rank}")
    if numbers.rank is not None and verdict == "partly-hidden" and comparison.rank_low > numbers.rank:
        problems.append(f"at least {comparison.rank_low} directions, but there are {numbers.rank}")
    if numbers.tail and verdict == "low-rank" and numbers.tail[comparison.rank] > numbers.most_tail:
        problems.append(
            f"{numbers.tail[comparison.rank]:.1%} of the energy is outside rank {comparison.rank}"
        )
    if numbers.formats and verdict == "rounded":
        name = comparison.format and comparison.format.name
        if name not in numbers.formats:
            problems.append(f"format {name}, not {sorted(numbers.formats)}")
    if verdict == "rescaled":
        problems += _wrong_factors(case, comparison)
    if numbers.update_size and verdict in SMALL and comparison.update_size is not None:
        low, high = numbers.update_size
        # An update below the floor may be reported as 0: it was not significant.
        low = 0 if verdict == "below-floor" and comparison.update_size == 0 else low
        if not low <= comparison.update_size <= high:
            problems.append(f"update_size {comparison.update_size:.3g} outside {low:.3g} to {high:.3g}")
    if numbers.roundings and not numbers.roundings[0] <= comparison.roundings <= numbers.roundings[1]:
        problems.append(f"{comparison.roundings:.3g} roundings outside {numbers.roundings}")
    return problems


def _wrong_factors(case: Case, comparison) -> list[str]:
    numbers, problems = case.numbers, []
    if numbers.along and comparison.along != numbers.along:
        problems.append(f"along {comparison.along}, not {numbers.along}")
    elif numbers.factors and comparison.along == "tensor":
        if not numbers.factors[0] <= comparison.factor <= numbers.factors[1]:
            problems.append(f"factor {comparison.factor:.5g} outside {numbers.factors}")
    elif numbers.factors:
        ends = (comparison.factor_low, comparison.factor_high)
        if ends != pytest.approx(numbers.factors, rel=0.01, abs=1e-6):
            problems.append(f"factors {ends[0]:.5g} to {ends[1]:.5g}, not {numbers.factors}")
    return problems


def confusion_table(counts: Counter) -> str:
    """Write the counts of (truth, verdict) with a row per truth."""
    truths = sorted({truth for truth, _ in counts})
    lines = []
    for truth in truths:
        row = {verdict: count for (key, verdict), count in counts.most_common() if key == truth}
        cells = ", ".join(f"{verdict} {count}" for verdict, count in row.items())
        lines.append(f"{truth:>24} {sum(row.values()):4}: {cells}")
    return "\n".join(lines)


@pytest.mark.parametrize("builders", [NOTE_CASES, OWN_CASES], ids=["note", "own"])
def test_no_verdict_is_wrong(builders):
    counts, wrong, vague, apart = Counter(), [], [], []
    for case in build_cases(builders):
        comparison = compare_tensors(case.base, case.model, case.dtype)
        verdict = comparison.verdict
        counts[case.truth, verdict] += 1
        slow = judge(case.base, case.model, case.dtype)
        if verdict != slow["verdict"] or abs((comparison.rank or 0) - (slow["rank"] or 0)) > 1:
            apart.append(
                f"{case.name}: {verdict} {comparison.rank}, naively {slow['verdict']} {slow['rank']}"
            )
        if verdict in case.vague:
            vague.append(f"{case.name}: {verdict}, since {case.vague[verdict]}")
        elif verdict not in case.allowed:
            rights = " or ".join(sorted({*case.allowed, *case.vague}))
            wrong.append(f"{case.name}: {verdict} (rank {comparison.rank}), right is {rights}")
            continue
        wrong += [f"{case.name}: {verdict} with {problem}" for problem in wrong_numbers(case, comparison)]
    lines = ["", confusion_table(counts), f"{len(vague)} vague:", *vague, f"{len(wrong)} wrong:", *wrong]
    sys.stdout.write("\n".join(lines) + "\n")
    assert not wrong, "\n".join(wrong)
    # Signs are drawn, so a direction at the edge may count here and not there.
    assert len(apart) <= 0.01 * counts.total(), "\n".join(apart)


def test_names_are_unique_and_there_are_enough():
    for builders, least in ((NOTE_CASES, 300), (OWN_CASES, 60)):
        names = [case.name for case in build_cases(builders)]
        assert len(names) >= least
        assert [name for name, count in Counter(names).items() if count > 1] == []


# Whole models.


def encoder(seed=0, layers=3):
    """Draw a small BERT with weak common directions, so that no two of its rows are alike."""
    rng = np.random.default_rng(seed)
    shapes = {
        **{f"attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")},
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (INNER, WIDTH),
        "output.dense": (WIDTH, INNER),
    }
    state = {"bert.embeddings.word_embeddings.weight": rng.standard_normal((50, WIDTH))}
    for layer in range(layers):
        for name, shape in shapes.items():
            at = f"bert.encoder.layer.{layer}.{name}"
            directions = rng.standard_normal((shape[0], 3)) @ rng.standard_normal((3, shape[1]))
            state[f"{at}.weight"] = 0.2 * rng.standard_normal(shape) + 0.08 * directions
            state[f"{at}.bias"] = 0.1 * rng.standard_normal(shape[0])
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            at = f"bert.encoder.layer.{layer}.{name}"
            state[f"{at}.weight"] = 1 + 0.1 * rng.standard_normal(WIDTH)
            state[f"{at}.bias"] = 0.1 * rng.standard_normal(WIDTH)
    return {name: tensor.astype(np.float32) for name, tensor in state.items()}


def tiny_decoder():
    tensors = open_file(find_checkpoint(TINY_DECODER))
    return {name: tensors.read(name) for name in tensors.shapes}


MODELS = {"encoder": (encoder, "bert.encoder.layer."), "decoder": (tiny_decoder, "transformer.h.")}


@pytest.fixture(params=MODELS)
def stored(request):
    """A state dict and how the names of its layers begin."""
    load, prefix = MODELS[request.param]
    return load(), prefix


def compared(base, model):
    return attnlaw.diff(base, model, heads=HEADS, jobs=1)


def rows_of(result, *parts):
    """The rows of the table whose tensors have all these parts in their names."""
    table = result.diff_tensors
    return [row for row in table.iter_rows(named=True) if all(part in row["tensor"] for part in parts)]


def verdicts_of(result, *parts):
    return {row["verdict"] for row in rows_of(result, *parts)}


def names_of(state, prefix, layer):
    return [name for name in state if name.startswith(f"{prefix}{layer}.")]


def is_matrix(row):
    return (
        row["tensor"].endswith(".weight") and "ln_" not in row["tensor"] and "LayerNorm" not in row["tensor"]
    )


def copy_layer(base, prefix, pairs):
    """A state dict in which layer a holds the tensors of the base's layer b, for every pair (a, b)."""
    model = dict(base)
    for layer, source in pairs:
        for name in names_of(base, prefix, layer):
            model[name] = base[name.replace(f"{prefix}{layer}.", f"{prefix}{source}.", 1)]
    return model


def test_exchanged_layers(stored):
    base, prefix = stored
    result = compared(base, copy_layer(base, prefix, [(1, 2), (2, 1)]))
    for layer, source in ((1, 2), (2, 1)):
        rows = rows_of(result, f"{prefix}{layer}.")
        assert {row["verdict"] for row in rows} == {"moved"}
        assert all(f"{prefix}{source}." in row["source"] for row in rows)
    assert verdicts_of(result, f"{prefix}0.") == {"identical"}
    assert re.search(r"[Ll]ayers 1 and 2 are exchanged", result.verdict)


def test_a_copied_layer(stored):
    base, prefix = stored
    result = compared(base, copy_layer(base, prefix, [(2, 0)]))
    rows = rows_of(result, f"{prefix}2.")
    assert {row["verdict"] for row in rows} == {"moved"}
    assert all(f"{prefix}0." in row["source"] for row in rows)
    assert verdicts_of(result, f"{prefix}0.") == verdicts_of(result, f"{prefix}1.") == {"identical"}
    assert "exchanged" not in result.verdict
    assert re.search(r"[Ll]ayer 2\b.*\blayer 0\b", result.verdict)


def test_an_exchanged_layer_after_a_small_tune():
    """The tensors are no longer the same bit for bit, but nothing else in the base is near them."""
    base, prefix = encoder(), "bert.encoder.layer."
    rng = np.random.default_rng(5)
    model = {
        name: (tensor + 0.05 * tensor.std() * rng.standard_normal(tensor.shape)).astype(np.float32)
        for name, tensor in copy_layer(base, prefix, [(0, 1), (1, 0)]).items()
    }
    result = compared(base, model)
    matrices = [row for layer in (0, 1) for row in rows_of(result, f"{prefix}{layer}.") if is_matrix(row)]
    assert {row["verdict"] for row in matrices} == {"moved"}
    matrices = [row for row in rows_of(result, f"{prefix}2.") if is_matrix(row)]
    assert {row["verdict"] for row in matrices} == {"noise"}
    assert re.search(r"[Ll]ayers 0 and 1 are exchanged", result.verdict)


def test_exchanged_query_and_key():
    base = encoder()
    at = "bert.encoder.layer.1.attention.self"
    model = dict(base)
    for kind in ("weight", "bias"):
        names = [f"{at}.query.{kind}", f"{at}.key.{kind}"]
        model[names[0]], model[names[1]] = base[names[1]], base[names[0]]
    result = compared(base, model)
    for part, source in (("query", "key"), ("key", "query")):
        (row,) = rows_of(result, f"{at}.{part}.weight")
        assert row["verdict"] == "moved"
        assert f"{at}.{source}" in row["source"]
    assert verdicts_of(result, f"{at}.value") == {"identical"}
    assert "exchanged" not in result.verdict or "ayers" not in result.verdict


def test_exchanged_query_and_key_in_a_fused_tensor():
    base, name = tiny_decoder(), "transformer.h.1.attn.c_attn"
    model = dict(base)
    for kind in ("weight", "bias"):
        query, key, value = np.split(base[f"{name}.{kind}"], 3, axis=-1)
        model[f"{name}.{kind}"] = np.concatenate([key, query, value], axis=-1)
    result = compared(base, model)
    assert "moved" in verdicts_of(result, f"{name}.weight")
    assert verdicts_of(result, "transformer.h.2.") == {"identical"}
    assert "identical: all" not in result.verdict.lower()


def reorder_neurons(state, layer, order, only_first=False):
    """Reorder the neurons of a BERT layer: the rows of FFN-in and its bias, the columns of FFN-out."""
    at, model = f"bert.encoder.layer.{layer}", dict(state)
    model[f"{at}.intermediate.dense.weight"] = state[f"{at}.intermediate.dense.weight"][order]
    if not only_first:
        model[f"{at}.intermediate.dense.bias"] = state[f"{at}.intermediate.dense.bias"][order]
        model[f"{at}.output.dense.weight"] = np.ascontiguousarray(
            state[f"{at}.output.dense.weight"][:, order]
        )
    return model


@pytest.mark.parametrize("only_first", [False, True], ids=["all three", "only one"])
def test_permuted_neurons_of_an_encoder(only_first):
    base, order = encoder(), np.random.default_rng(1).permutation(INNER)
    result = compared(base, reorder_neurons(base, 1, order, only_first))
    at = "bert.encoder.layer.1"
    assert verdicts_of(result, f"{at}.intermediate.dense.weight") == {"permuted"}
    rest = "identical" if only_first else "permuted"
    assert verdicts_of(result, f"{at}.intermediate.dense.bias") == {rest}
    assert verdicts_of(result, f"{at}.output.dense.weight") == {rest}
    assert verdicts_of(result, "layer.0.") == verdicts_of(result, "layer.2.") == {"identical"}
    assert ("same function" in result.verdict.lower()) is not only_first


def test_neurons_permuted_by_two_orders_are_not_the_same_function():
    base, rng = encoder(), np.random.default_rng(2)
    at = "bert.encoder.layer.1"
    model = reorder_neurons(base, 1, rng.permutation(INNER))
    other = np.ascontiguousarray(base[f"{at}.output.dense.weight"][:, rng.permutation(INNER)])
    model[f"{at}.output.dense.weight"] = other
    assert "same function" not in compared(base, model).verdict.lower()


@pytest.mark.parametrize("only_first", [False, True], ids=["all three", "only one"])
def test_permuted_neurons_of_the_decoder(only_first):
    """GPT-2 stores its matrices as (in, out), so neurons are columns of c_fc and rows of c_proj."""
    base, order = tiny_decoder(), np.random.default_rng(3).permutation(512)
    at, model = "transformer.h.2.mlp", dict(base)
    model[f"{at}.c_fc.weight"] = np.ascontiguousarray(base[f"{at}.c_fc.weight"][:, order])
    if not only_first:
        model[f"{at}.c_fc.bias"] = base[f"{at}.c_fc.bias"][order]
        model[f"{at}.c_proj.weight"] = base[f"{at}.c_proj.weight"][order]
    result = compared(base, model)
    assert verdicts_of(result, f"{at}.c_fc.weight") == {"permuted"}
    assert verdicts_of(result, f"{at}.c_proj.weight") == {"identical" if only_first else "permuted"}
    assert ("same function" in result.verdict.lower()) is not only_first


@pytest.mark.parametrize("axis", [0, 1], ids=["rows", "columns"])
def test_permuted_then_low_rank(axis):
    base, rng = encoder(), np.random.default_rng(4)
    name = "bert.encoder.layer.2.intermediate.dense.weight"
    order = rng.permutation(base[name].shape[axis])
    reordered = np.ascontiguousarray(np.take(base[name], order, axis=axis))
    update = scaled(gaussian_factors(reordered.shape, 4, rng), reordered, 0.1)
    result = compared(base, base | {name: (reordered + update).astype(np.float32)})
    (row,) = rows_of(result, name)
    assert row["verdict"] == "permuted"
    assert "low-rank" in row["then"]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["float32", "bfloat16"])
def test_transposed_square_matrices(dtype):
    base = encoder()
    names = [f"bert.encoder.layer.{layer}.attention.self.value.weight" for layer in range(3)]
    model = {name: tensor.astype(dtype) for name, tensor in base.items()}
    model |= {name: np.ascontiguousarray(model[name].T) for name in names}
    result = compared(base, model)
    for name in names:
        assert verdicts_of(result, name) == {"transposed"}
    assert verdicts_of(result, "query") == {"identical" if dtype is np.float32 else "rounded"}


def test_a_transposed_square_matrix_of_the_decoder():
    base, name = tiny_decoder(), "transformer.h.1.attn.c_proj.weight"
    result = compared(base, base | {name: np.ascontiguousarray(base[name].T)})
    assert verdicts_of(result, name) == {"transposed"}
    assert "transposed" in result.verdict.lower()


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
def test_a_vector_of_another_layer(dtype):
    base = encoder()
    name, source = (f"bert.encoder.layer.{layer}.output.LayerNorm.weight" for layer in (0, 2))
    model = {key: tensor.astype(dtype) for key, tensor in base.items()}
    model[name] = base[source].astype(dtype)
    (row,) = rows_of(compared(base, model), name)
    assert row["verdict"] == "moved"
    assert source in row["source"]


def test_constant_vectors_are_not_called_moved():
    """A gain that was set to 1 has the bits of every other gain that is 1: that shows nothing."""
    base = encoder()
    names = [f"bert.encoder.layer.{layer}.output.LayerNorm.weight" for layer in (0, 1)]
    base[names[1]] = np.ones(WIDTH, np.float32)
    result = compared(base, base | {names[0]: np.ones(WIDTH, np.float32)})
    assert verdicts_of(result, names[0]) == {"changed"}


@pytest.mark.parametrize(
    "dtype", [None, ml_dtypes.bfloat16, np.float16], ids=["itself", "bfloat16", "float16"]
)
def test_sound_pairs_raise_no_alarm(stored, dtype):
    base, _ = stored
    model = base if dtype is None else {name: tensor.astype(dtype) for name, tensor in base.items()}
    result = compared(base, model)
    allowed = {"identical"} if dtype is None else {"rounded", "identical"}
    assert set(result.diff_tensors["verdict"]) <= allowed
    alarm = r"moved|exchanged|copied|permuted|transposed|low-rank|dense|noisy|hidden|reinit|unrelated|damage"
    assert not re.search(alarm, result.verdict.lower()), result.verdict
    if dtype is not None:
        assert set(result.diff_tensors.filter(pl.col("verdict") == "rounded")["format"]) == {
            np.dtype(dtype).name
        }


def test_a_small_tune_of_a_sound_model_is_not_called_a_rearrangement(stored):
    base, prefix = stored
    rng = np.random.default_rng(6)
    model = {
        name: (tensor + 0.02 * tensor.std() * rng.standard_normal(tensor.shape)).astype(np.float32)
        for name, tensor in base.items()
    }
    result = compared(base, model)
    matrices = [row for layer in (0, 1, 2) for row in rows_of(result, f"{prefix}{layer}.") if is_matrix(row)]
    # The largest singular value of noise varies by more than 10% in a matrix of 48 rows.
    assert {row["verdict"] for row in matrices} <= {"noise", "dense"}
    assert not {"moved", "permuted", "transposed"} & set(result.diff_tensors["verdict"])


def test_tensors_of_one_model_only():
    base = encoder()
    removed, added = "bert.encoder.layer.1.output.dense.bias", "bert.pooler.dense.weight"
    model = {name: tensor for name, tensor in base.items() if name != removed}
    model[added] = np.ones((WIDTH, WIDTH), np.float32)
    result = compared(base, model)
    assert verdicts_of(result, removed) == {"removed"}
    assert verdicts_of(result, added) == {"added"}
    assert set(result.diff_tensors["verdict"]) == {"removed", "added", "identical"}
