"""Matrix completion: limits by formula and by flow, the greedy path, its statuses, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from theory.regression.agree import holds

from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.implicit_bias.completion import (
    Completion,
    components,
    mean_cosine,
    predict_completion,
    train_completion,
)

SEEN = np.array([[False, True], [True, True]])


def corner(e: float, init: float = 1e-3, seen: np.ndarray = SEEN) -> Completion:
    return Completion([[0, 1], [1, e]], seen, init=init)


def blocks(init: float) -> Completion:
    """Blocks 3 x 2 and 2 x 3, each of singular values 3 and 1.2, seen whole."""
    rng, M, seen = np.random.default_rng(0), np.zeros((5, 5)), np.zeros((5, 5))
    for rows, cols in ((slice(0, 3), slice(0, 2)), (slice(3, 5), slice(2, 5))):
        shape = seen[rows, cols].shape
        U, V = (np.linalg.qr(rng.standard_normal((size, 2)))[0] for size in shape)
        M[rows, cols], seen[rows, cols] = (U * [3, 1.2]) @ V.T, 1
    return Completion(M, seen, init=init)


def test_the_greedy_limit_is_rank_one() -> None:
    prediction = predict_completion(corner(0.6))
    assert (prediction.kind, prediction.components, prediction.rank) == ("connected", 1, 1)
    assert prediction.matrix[0, 0] == pytest.approx(1 / 0.6, abs=1e-7)  # the fit is followed to 1e-8
    s = np.sqrt(1 + 0.3**2) + np.array([0.3, -0.3])
    assert prediction.exponent == pytest.approx(2 * (1 - s[1] / s[0]), rel=1e-12)
    assert prediction.exponent == pytest.approx(0.8928, abs=5.1e-5)
    # Not the least nuclear norm, which has the first entry e.
    norms = [np.linalg.norm([[x, 1], [1, 0.6]], "nuc") for x in (0.59, 0.6, 0.61)]
    assert norms[1] < min(norms[0], norms[2])
    assert norms[1] < prediction.nuclear


def test_training_tends_to_the_limit_at_the_predicted_rate() -> None:
    """The second singular value over four decades of the start: its slope is the exponent."""
    inits = np.array([1e-6, 1e-7, 1e-8])
    second = [np.linalg.svd(train_completion(corner(0.6, init), 0).matrix)[1][1] for init in inits]
    slopes = np.diff(np.log(second)) / np.diff(np.log(inits))
    # The correction to the power is itself a power: it shrinks from one pair to the next.
    assert slopes[1] == pytest.approx(0.8928, abs=2e-3)
    assert train_completion(corner(0.6, 1e-8), 0).matrix[0, 0] == pytest.approx(1.66667, abs=1e-5)


def test_a_long_valley_hides_the_law() -> None:
    prediction = predict_completion(corner(0.2))
    assert prediction.matrix[0, 0] == pytest.approx(5, abs=1e-6)
    assert prediction.exponent == pytest.approx(0.362, abs=5.1e-4)
    assert train_completion(corner(0.2, 1e-12), 0).matrix[0, 0] < 4.5


@pytest.mark.parametrize("seed", range(3))
def test_single_entries_leave_a_cosine(seed: int) -> None:
    misses = []
    for init in (1e-2, 1e-3):
        problem = Completion(np.diag([1.0, 4.0]), np.eye(2), init=init)
        A, B = problem.start(seed)
        first, second = A[0] + B[:, 0], A[1] + B[:, 1]
        cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
        prediction, run = predict_completion(problem, seed), train_completion(problem, seed)
        assert prediction.matrix == pytest.approx(np.array([[1, 2 * cosine], [2 * cosine, 4]]), abs=1e-12)
        assert run.nuclear == pytest.approx(5, abs=100 * init**2)
        misses.append(np.abs(prediction.matrix - run.matrix).max())
    assert misses[0] / misses[1] == pytest.approx(100, rel=0.1)  # of order init^2


def test_complete_blocks() -> None:
    misses = []
    for init in (1e-3, 1e-4, 1e-6):
        problem = blocks(init)
        prediction, run = predict_completion(problem), train_completion(problem)
        misses.append(np.abs(prediction.matrix - run.matrix).max())
    assert (prediction.kind, prediction.components, prediction.rank, run.rank) == ("complete", 2, 4, 4)
    assert prediction.nuclear == pytest.approx(8.4, rel=1e-12)
    assert np.linalg.norm(prediction.matrix, "nuc") == pytest.approx(8.4, rel=1e-9)
    assert run.nuclear == pytest.approx(8.4, abs=1e-7)
    assert misses[0] > 5 * misses[1] > 25 * misses[2]
    assert misses[2] < 1e-5


def test_incomplete_components_add_their_norms_and_ranks() -> None:
    """A 2 x 2 corner of rank one beside a whole 2 x 2 block: all blocks are known."""
    M, seen = np.zeros((4, 4)), np.zeros((4, 4))
    M[:2, :2], seen[:2, :2] = [[0, 1], [1, 0.7]], SEEN
    M[2:, 2:], seen[2:, 2:] = [[2, 0.5], [0.5, 1]], 1
    block_errors, between, norms = [], [], []
    for init in (1e-8, 1e-10, 1e-12):
        problem = Completion(M, seen, init=init)
        prediction, run = predict_completion(problem, 1), train_completion(problem, 1)
        missed = np.abs(prediction.matrix - run.matrix)
        norms.append(run.nuclear)
        block_errors.append(missed[:2, :2].max())
        between.append(max(missed[:2, 2:].max(), missed[2:, :2].max()))
    assert (prediction.kind, prediction.rank, run.rank) == ("disconnected", 3, 3)
    assert np.linalg.norm(prediction.matrix, "nuc") == pytest.approx(prediction.nuclear, rel=1e-6)
    # The nuclear norms of the runs tend to that of the greedy limit, which is not the least.
    least = 2 + np.linalg.norm(M[2:, 2:], "nuc")  # the corner at 0.7
    assert prediction.nuclear == pytest.approx(least + 1 / 0.7 + 0.7 - 2, rel=1e-7)
    assert np.abs(np.diff([*norms, prediction.nuclear])).tolist() == sorted(
        np.abs(np.diff([*norms, prediction.nuclear])), reverse=True
    )
    assert norms[2] == pytest.approx(prediction.nuclear, abs=1e-8)
    # A block has squares of what is left in the factors, a block between others its first power.
    assert block_errors[1] < 1e-7
    assert np.log10(between[0] / between[2]) / 4 == pytest.approx(prediction.exponent / 2, rel=0.05)


def masked(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A 6 x 6 matrix of rank 2 and 19 + seed of its entries, of a connected graph on all lines."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 6))
    while True:
        seen = rng.permuted(np.arange(36) < 19 + seed).reshape(6, 6)
        if [rows.size + cols.size for rows, cols in components(seen)] == [12]:
            return M, seen


def least_nuclear(M: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The completion of least nuclear norm, by Douglas and Rachford's splitting."""
    Z = np.where(seen, M, 0.0)
    for _ in range(2000):
        X = np.where(seen, M, Z)
        U, s, Vt = np.linalg.svd(2 * X - Z)
        Z = Z + (U * np.maximum(s - 0.5, 0)) @ Vt - X
    return np.where(seen, M, Z)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_connected_masks(seed: int) -> None:
    """19 to 26 entries for 20 degrees of freedom: where the greedy path ends it is M, and so is training.

    Seeds 0 and 5 have a stage of rank 2 without an end. Seed 1 has as many entries as degrees of freedom and
    another matrix of rank 2. Seed 2 has the exponent .44: no start of floats is small enough for training.
    """
    M, seen = masked(seed)
    prediction = predict_completion(Completion(M, seen))
    assert prediction.kind == "connected"
    if prediction.outcome == Outcome.NOT_CONVERGED:
        assert seed in (0, 5)
        assert prediction.nuclear > 10 * np.linalg.norm(M, "nuc")
        assert "no rank-2 critical point" in prediction.remark
        return
    assert prediction.rank == 2
    assert np.abs(seen * (prediction.matrix - M)).max() < 1e-7
    if seen.sum() > 20:
        assert prediction.matrix == pytest.approx(M, abs=1e-6)
        assert np.linalg.norm(least_nuclear(M, seen) - M) > 0.04 * np.linalg.norm(M)
        if prediction.exponent > 0.5:
            run = train_completion(Completion(M, seen, init=1e-20))
            assert (run.rank, run.matrix) == (2, pytest.approx(M, abs=1e-6))


@pytest.mark.slow
def test_entries_between_components_are_random() -> None:
    """Mean size over starts against E |cos| in k dimensions; seeds in order."""
    family = []
    for place, latent in enumerate((2, 3, 6)):
        problem = Completion([[0, 1], [1, 0]], [[0, 1], [1, 0]], latent, 1e-3)
        sizes = [abs(train_completion(problem, 100 * place + i).matrix[0, 0]) for i in range(40)]
        mean = mean_of(sizes)
        family.append((mean.value - mean_cosine(latent)) / mean.error)
    assert holds(family), family


def test_a_narrow_latent_space_is_told() -> None:
    problem = Completion(np.diag([2.0, 1.0]), np.ones((2, 2)), latent=1, init=1e-4)
    prediction, run = predict_completion(problem), train_completion(problem)
    assert prediction.matrix == pytest.approx(np.diag([2.0, 0.0]), abs=1e-12)
    assert run.matrix == pytest.approx(prediction.matrix, abs=1e-6)
    assert (
        prediction.remark
        == run.remark
        == "latent 1 is too small to fit all observed entries; choose a larger value"
    )


def test_lines_without_an_entry_are_in_no_component() -> None:
    assert len(components(np.diag([1, 1, 0]))) == 2
    prediction = predict_completion(Completion(np.ones((2, 2)), [[1, 0], [0, 0]]))
    assert prediction.matrix.tolist() == [[pytest.approx(1.0), 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Completion(np.ones((2, 2)), np.zeros((2, 2))), "the mask shows no entry, so"),
        (lambda: Completion(np.zeros((2, 2)), np.ones((2, 2))), "all observed entries are zero"),
        (
            lambda: Completion(np.ones((2, 2)), np.ones((2, 3))),
            r"completion: found matrix of shape \(2, 2\) and mask of shape \(2, 3\)",
        ),
        (lambda: Completion([[np.nan, 1.0]], [[1, 1]]), "not finite; leave it out of the mask"),
        (lambda: Completion(np.ones((2, 2)), np.ones((2, 2)), latent=0), "latent: found 0, expected a whole"),
    ],
)
def test_bad_input_is_one_line(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
