"""The comparison of rxnfp's checkpoints against figures that dense computations gave."""

import numpy as np
import polars as pl
import pytest
from analysis.diff.pair import FIGURES, NAMES, absmax_grid, as_bfloat16, compared, damaged, opened, weights

from attnlaw.analysis.diff.diff import diff
from attnlaw.analysis.diff.map_changes import compare_heads, compare_matrices, count_intruders
from attnlaw.analysis.diff.update import MatrixVectors, head_update_values, product_inner
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.settings import ModelSettings

KINDS = FIGURES["kinds"]


def first_maps(model, layer):
    """QK and VO of head 0, and both feed-forward matrices, of the base and of a model."""
    base = opened("pretrained")
    for kind in ("qk", "vo"):
        yield tuple(next(iter(side.layers[layer].attention.factors(side, kind))) for side in (base, model))
    for part in ("inner", "outer"):
        yield tuple(side.read(getattr(side.layers[layer].feed_forward, part)) for side in (base, model))


def numbers(base, model):
    if isinstance(base, tuple):
        return compare_heads(base, model, None).numbers
    return compare_matrices(base, model, floor=0.0).numbers


def agree(actual, expected):
    """To half a unit of the last digit that was published."""
    digits = len(f"{expected}".rpartition(".")[2])
    return actual == pytest.approx(expected, abs=0.51 * 10.0**-digits)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["0", "5", "11"])
def test_sizes_and_stable_ranks_of_the_fine_tuned_model(layer):
    maps = compared("finetuned").maps.filter(pl.col("layer") == int(layer), pl.col("head").fill_null(0) == 0)
    for kind, (size, rank) in zip(KINDS, FIGURES["size_and_stable_rank"]["finetuned"][layer], strict=True):
        row = maps.row(by_predicate=pl.col("kind") == kind, named=True)
        assert agree(row["size"], size)
        assert agree(row["stable_rank"], rank)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["0", "5", "11"])
def test_sizes_and_stable_ranks_of_the_short_run(layer):
    figures = FIGURES["size_and_stable_rank"]["10k"][layer]
    for pair, (size, rank) in zip(first_maps(opened("10k"), int(layer)), figures, strict=True):
        row = numbers(*pair)
        assert agree(row["size"], size)
        assert agree(row["stable_rank"], rank)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change"),
    [("bfloat16", as_bfloat16), ("int4/32", lambda matrix, rng: absmax_grid(matrix, 4, 32))],
)
def test_sizes_and_stable_ranks_of_rounded_copies(name, change):
    layer = [tensor_name for tensor_name in NAMES if ".layer.5." in tensor_name]
    model = open_model(damaged(change, layer), heads=4)
    for pair, (size, rank) in zip(
        first_maps(model, 5), FIGURES["size_and_stable_rank"][name]["5"], strict=True
    ):
        row = numbers(*pair)
        assert agree(row["size"], size)
        assert agree(row["stable_rank"], rank)


@pytest.mark.slow
@pytest.mark.parametrize("column", FIGURES["finetuned_layer_5"])
def test_layer_5_of_the_fine_tuned_model(column):
    maps = compared("finetuned").maps.filter(pl.col("layer") == 5, pl.col("head").fill_null(0) == 0)
    for kind, expected in zip(KINDS, FIGURES["finetuned_layer_5"][column], strict=True):
        assert agree(maps.row(by_predicate=pl.col("kind") == kind, named=True)[column], expected)


@pytest.mark.slow
def test_median_sizes_of_heads():
    maps = compared("finetuned").maps
    for kind, expected in FIGURES["median_size"]["finetuned"].items():
        assert agree(maps.filter(pl.col("kind") == kind)["size"].median(), expected)
    grid = {name: absmax_grid(matrix, 8, None) for name, matrix in weights().items()}
    for name, model in (("10k", opened("10k")), ("int8/row", open_model(damaged(_of(grid)), heads=4))):
        for kind, expected in FIGURES["median_size"][name].items():
            assert agree(np.median(list(_head_sizes(model, kind))), expected)


def _of(grid):
    following = iter(grid.values())
    return lambda matrix, rng: next(following)


def _head_sizes(model, kind):
    base = opened("pretrained")
    for layer in range(12):
        heads = zip(
            *(side.layers[layer].attention.factors(side, kind) for side in (base, model)), strict=True
        )
        for before, after in heads:
            norm = np.sqrt(product_inner(*before, *before))
            yield np.linalg.norm(head_update_values(*before, *after)) / norm


@pytest.mark.slow
def test_intruders_and_new_directions_of_heads():
    for kind, expected in FIGURES["intruders_of_finetuned_heads"].items():
        rows = compared("finetuned").maps.filter(pl.col("kind") == kind)
        assert [rows["intruders_left"].sum(), rows["intruders_right"].sum()] == expected
        new = rows["new_left"].sum() + rows["new_right"].sum()
        assert new == FIGURES["new_of_finetuned_heads"][kind]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("finetuned", 6), ("10k", 1)])
def test_intruders_of_stored_queries(name, expected):
    """Of the first 10 left vectors of the 12 stored matrices, of which none is new on either side."""
    strange, new = 0, 0
    for query in NAMES[::6]:
        before, after = (MatrixVectors.of(weights(run)[query].astype(float)) for run in ("pretrained", name))
        counts = count_intruders(before, after)
        strange += counts["left"][0]
        new += counts["left"][1] + counts["right"][1]
    assert (strange, new) == (expected, 0)


@pytest.mark.slow
def test_fine_tuning_shrank_the_weights():
    """Medians of the moves of the largest value; the published ones are of 60 draws, good to some percent."""
    comparison = compared("finetuned")
    maps = comparison.maps
    for kind, expected in (("qk", -10.8), ("ffn_in", -20.1)):
        assert maps.filter(pl.col("kind") == kind)["z_top"].median() == pytest.approx(expected, rel=0.05)
    for kind, expected in (("qk", 0.895), ("ffn_in", 0.953)):
        assert agree(maps.filter(pl.col("kind") == kind)["scale"].median(), expected)
    along = (pl.col("scale") - 1) / pl.col("size")  # cosine of the update and the base
    qk = maps.filter(pl.col("kind") == "qk").select(along).to_series().median()
    assert agree(qk, FIGURES["cosine_of_update_and_base"]["qk"])
    cosines = [
        np.vdot(after.astype(float) - before, before)
        / np.linalg.norm(after - before)
        / np.linalg.norm(before)
        for before, after in zip(weights().values(), weights("finetuned").values(), strict=True)
    ]
    assert agree(np.median(cosines), FIGURES["cosine_of_update_and_base"]["tensors"])


@pytest.mark.slow
def test_the_sentence_of_the_pair():
    sentence = compared("finetuned").quantities["verdict"]
    assert sentence.startswith("Dense update in all 72 matrices")
    assert "The head that changed most is layer 11 VO head 0 (63.2%)." in sentence
    assert "Every kind of matrix shrank by 4.74% to 12.4%" in sentence


@pytest.mark.slow
def test_permuted_heads_are_told_and_recovered():
    """Every layer's heads in a random order: matched, nothing changed."""
    rng = np.random.default_rng(0)
    orders = [np.concatenate([[1, 0], 2 + rng.permutation(2)]) for _ in range(12)]

    def change(name, matrix):
        layer = int(name.split(".layer.")[1].split(".")[0])
        rows = (orders[layer][:, None] * 64 + np.arange(64)).ravel()
        return matrix[:, rows] if "output" in name else matrix[rows]

    attention = [name for name in NAMES if "attention" in name]
    state = damaged(lambda matrix, rng: matrix, [])
    state |= {name: change(name, state[name]) for name in attention}
    base = damaged(lambda matrix, rng: matrix, [])
    comparison = diff(base, ModelSettings(model=state, heads=4, only=("qk", "vo")))
    assert "reordered" in comparison.quantities["verdicts"]
    assert comparison.maps["cosine"].min() == pytest.approx(1.0)
    matched = comparison.maps.filter(pl.col("kind") == "qk").group_by("layer", maintain_order=True)
    for (layer,), rows in matched:
        assert orders[layer][rows["matched_head"].to_numpy()].tolist() == [0, 1, 2, 3]
    assert comparison.maps["size"].max() < 1e-12


@pytest.mark.slow
def test_fresh_weights_share_nothing():
    """Gaussian weights of each tensor's spread, medians over heads against one published draw.

    Over eight other draws the three medians had standard deviations of .0029, .0010 and .0024.
    """
    state = damaged(lambda matrix, rng: rng.normal(0, matrix.std(), matrix.shape).astype(np.float32))
    base = damaged(lambda matrix, rng: matrix, [])
    heads = diff(base, ModelSettings(model=state, heads=4, only=("qk",))).maps
    apart = 4 * 2**0.5  # standard deviations of the difference of two draws
    published = (("size", 1.2528, 0.0029), ("cosine", -0.0004, 0.0010), ("overlap_left", 0.0676, 0.0024))
    for name, expected, spread in published:
        assert heads[name].median() == pytest.approx(expected, abs=apart * spread), name
    assert (heads["k"] / heads["rows"]).median() == pytest.approx(0.0684, abs=1e-4)
    assert heads["intruders_left"].median() == 10
