"""Heads and neurons in another order, under grouped queries too; gains that were folded in."""

import numpy as np
import pytest

from attnlaw.analysis.diff.matching import head_cosines, is_folded, match_heads, match_neurons
from attnlaw.analysis.diff.rearranged import match_rows


def heads(rng, count, n=20, d=3):
    return [(rng.standard_normal((n, d)), rng.standard_normal((d, n))) for _ in range(count)]


def test_cosines_of_heads_against_dense_ones():
    rng = np.random.default_rng(0)
    base, model = heads(rng, 3), heads(rng, 4, d=2)
    cosines = head_cosines(base, model)
    for i, first in enumerate(base):
        for j, second in enumerate(model):
            product, other = first[0] @ first[1], second[0] @ second[1]
            assert cosines[i, j] == pytest.approx(
                np.vdot(product, other) / np.linalg.norm(product) / np.linalg.norm(other)
            )


def test_a_permutation_is_found_and_inverted():
    rng = np.random.default_rng(1)
    base = [heads(rng, 5), heads(rng, 5)]
    order = [2, 0, 1, 4, 3]
    model = [[kind[place] for place in order] for kind in base]
    assert match_heads(base, model) == [order.index(place) for place in range(5)]
    assert match_heads(base, base) is None


def test_unrelated_heads_keep_their_order():
    rng = np.random.default_rng(2)
    assert match_heads([heads(rng, 8)], [heads(rng, 8)]) is None


def test_a_head_that_was_taken_away():
    rng = np.random.default_rng(3)
    base = heads(rng, 4)
    assert match_heads([base], [[base[0], base[2], base[3]]]) == [0, -1, 1, 2]


def test_grouped_queries_move_within_and_between_groups():
    """Six query heads on three keys: groups as wholes, and the two heads of a group."""
    rng = np.random.default_rng(4)
    queries = [rng.standard_normal((30, 4)) for _ in range(6)]
    keys = [rng.standard_normal((4, 30)) for _ in range(3)]
    base = [(query, keys[place // 2]) for place, query in enumerate(queries)]
    order = [4, 5, 1, 0, 2, 3]
    model = [base[place] for place in order]
    assert match_heads([base], [model], key_value_heads=3) == [order.index(place) for place in range(6)]


def test_neurons_in_another_order():
    rng = np.random.default_rng(5)
    base = rng.standard_normal((16, 40))
    order = np.concatenate([np.arange(10), 10 + rng.permutation(30)])
    noisy = (base + 0.1 * rng.standard_normal(base.shape))[:, order]
    matches = match_neurons(base, noisy)
    assert order[matches].tolist() == list(range(40))
    assert match_neurons(base, base) is None
    assert match_neurons(base, rng.standard_normal(base.shape)) is None


def test_a_folded_gain():
    rng = np.random.default_rng(6)
    base, gain = rng.standard_normal((20, 8)), rng.uniform(0.5, 2.0, 20)
    assert is_folded(base, gain[:, None] * base, rounding=1e-6)
    assert not is_folded(base, 2 * base, rounding=1e-6)
    assert not is_folded(base, base + 0.1 * rng.standard_normal(base.shape), rounding=1e-6)


def test_rows_that_lose_their_places_to_each_other_are_matched_once():
    """Two rows near the same row of the base, and one that only stays: the search must come to an end."""
    base = np.eye(5)[[0, 1, 2, 4]]
    model = base.copy()
    model[1] = [0.96, 0.28, 0, 0, 0]  # nearest to row 0, which stayed
    model[2] = [0, 0, 0.8, 0.6, 0]  # nearest to its own place, but far from it
    model[3] = [0, 0, 0.96, 0, 0.28]  # nearest to row 2
    assert match_rows(base, model) is None
