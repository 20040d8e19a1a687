"""Training and test data of students: what they see of a target, the noise and the labels.

`SENSINGS` names the ways to see a matrix; `attnlaw.theory.learn.sensing` has the formulas. If attention is
tied, the target is diagonal, because both sensings are invariant under rotations. If attention is untied, the
target is rotated at random: the two orders of a pair would show the same field of a diagonal matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import BadSetting
from attnlaw.core.settings import check_value
from attnlaw.core.variants import by_name
from attnlaw.theory.learn.attention import PAIRS
from attnlaw.theory.learn.problem import ENTRIES, Problem
from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.sensing import (
    MatrixSensing,
    PairSensing,
    Sensing,
    SquareSensing,
    TokenSensing,
    check_dense,
    upper,
)

TEST_SEQUENCES = 8192


def draw_tokens(samples: int, tokens: int, size: int, rng: np.random.Generator) -> TokenSensing:
    return TokenSensing(rng.standard_normal((tokens, samples, size)))


def draw_signed(samples: int, tokens: int, size: int, rng: np.random.Generator) -> TokenSensing:
    """Draw sequences of Gaussian tokens, and for each sequence a random sign of all its scores."""
    return TokenSensing(rng.standard_normal((tokens, samples, size)), rng.choice([-1.0, 1.0], size=samples))


def draw_matrices(samples: int, tokens: int, size: int, rng: np.random.Generator) -> MatrixSensing:
    """Draw a symmetric Gaussian input matrix for each pair of tokens in each sample."""
    first, second = upper(tokens)
    count, dimension = first.size, size * (size + 1) // 2
    rows = rng.standard_normal((samples, count, dimension))
    rows *= (np.where(first == second, np.sqrt(2.0), 1.0) / np.sqrt(size))[:, None]
    return MatrixSensing(rows.reshape(-1, dimension), tokens, size)


def draw_pairs(
    samples: int, tokens: int, pairs: str, size: int, rng: np.random.Generator, queries: int | None = None
) -> PairSensing:
    """Draw sequences of Gaussian tokens. If the pairs are crossed, draw separate tokens as keys."""
    kind = PAIRS[pairs]
    x = rng.standard_normal((tokens if queries is None else queries, samples, size))
    z = rng.standard_normal((tokens, samples, size)) if kind.crossed else x
    return PairSensing(x, z, kind.visible_pairs(tokens, queries))


def draw_squares(
    samples: int, tokens: int, pairs: str, size: int, rng: np.random.Generator, queries: int | None = None
) -> SquareSensing:
    """Draw a Gaussian input matrix for each pair in each sample. Mirrored pairs share one matrix."""
    rows = rng.standard_normal((samples * PAIRS[pairs].count(tokens, queries), size * size)) / np.sqrt(size)
    if PAIRS[pairs].mirrored:
        square = rows.reshape(samples, tokens, tokens, size, size)
        flipped = square.swapaxes(3, 4)
        for a in range(tokens):
            square[:, a, a] = (square[:, a, a] + flipped[:, a, a]) / np.sqrt(2.0)
            for b in range(a):
                square[:, a, b] = flipped[:, b, a]
    return SquareSensing(rows, samples, tokens, size)


@dataclass(frozen=True)
class SensingChoice:
    """A kind of training inputs: tokens, or Gaussian matrices in their place."""

    name: str
    label: str
    draws: Mapping[str, Callable[..., Any]]  # draw the training data, by attention
    # Returns rows and columns of the largest array from samples, tokens, observed entries of a sample, size.
    dense: Callable[[int, int, int, int], tuple[int, int]]
    remedy: str  # against too large an array, besides a smaller size
    gaussian: bool = False  # whether students see Gaussian matrices instead of tokens


def _token_rows(samples: int, tokens: int, entries: int, size: int) -> tuple[int, int]:
    return samples * tokens, size


SENSINGS = by_name(
    SensingChoice(
        "tokens",
        "Gaussian tokens",
        {"tied": draw_tokens, "untied": draw_pairs},
        _token_rows,
        " or {samples}",
    ),
    SensingChoice(
        "signed",
        "Gaussian tokens, each sample with a random sign",
        {"tied": draw_signed},
        _token_rows,
        " or {samples}",
    ),
    SensingChoice(
        "goe",
        "symmetric Gaussian matrices of the same covariance",
        {"tied": draw_matrices},
        lambda samples, tokens, entries, size: (samples * entries, size * (size + 1) // 2),
        ", or {sensing} tokens",
        gaussian=True,
    ),
    SensingChoice(
        "ginibre",
        "Gaussian matrices with independent entries",
        {"untied": draw_squares},
        lambda samples, tokens, entries, size: (samples * entries, size * size),
        ", or {sensing} tokens",
        gaussian=True,
    ),
)


def draw_sensing(name: str, *, samples: int, tokens: int, size: int, rng: np.random.Generator) -> Sensing:
    """Draw the inputs of n samples of T tokens each, for symmetric matrices of size d."""
    _check_sensing(name, "tied", samples, tokens, tokens * (tokens + 1) // 2, size)
    sensing: Sensing = SENSINGS[name].draws["tied"](samples, tokens, size, rng)
    return sensing


def check_sensing(name: str, problem: Problem, samples: int, size: int) -> None:
    """Raise a `BadSetting` if this attention has no such inputs, or if they do not fit into memory."""
    _check_sensing(name, problem.attention, samples, problem.tokens, entries(problem), size)


def _check_sensing(name: str, attention: str, samples: int, tokens: int, entries: int, size: int) -> None:
    check_value("sensing", name, str, choices=SENSINGS)
    if attention not in SENSINGS[name].draws:
        able = [sensing.name for sensing in SENSINGS.values() if attention in sensing.draws]
        raise BadSetting("sensing", f"expected {' or '.join(able)} with {{attention}} {attention}", name)
    check_dense(*SENSINGS[name].dense(samples, tokens, entries, size), SENSINGS[name].remedy, size)


def hidden_target(values: Reals, rng: np.random.Generator) -> Reals:
    """Return a target with the singular values s, `diag(s) O`, where O is a random rotation."""
    q, r = np.linalg.qr(rng.standard_normal((values.size, values.size)))
    return np.asarray(values[:, None] * (q * np.sign(np.diag(r))))


def entries(problem: Problem) -> int:
    """Return the number of token pairs that have a label in a sample. Tied attention counts a <= b."""
    if problem.sides == 2:
        return PAIRS[problem.pairs or ""].count(problem.tokens, problem.observed_output.queries)
    return problem.tokens * (problem.tokens + 1) // 2


def draw_risk(problem: Problem, target: Reals, samples: int, sensing: str, rng: np.random.Generator) -> Risk:
    """Draw the training data of a student: its inputs, the noise and the labels.

    The noise of the score h_ab is Gaussian of variance `Delta (1 + delta_ab)/2`. It is inside the softmax if
    there is one. Untied attention has noise of variance Delta/2 on every pair. If there are observation
    groups, consecutive blocks of samples belong to the groups.
    """
    tokens, size, make_loss = problem.tokens, len(target), problem.observed_output.loss
    assert make_loss is not None  # students that are trained have outputs with a loss
    target = target if target.ndim == 2 else np.diag(target)
    if problem.sides == 2:
        draw = SENSINGS[sensing].draws[problem.attention]
        data = draw(samples, tokens, problem.pairs, size, rng, problem.observed_output.queries)
        weights, noise = np.ones((samples, entries(problem))), np.array(problem.noise / 2)
    else:
        data = draw_sensing(sensing, samples=samples, tokens=tokens, size=size, rng=rng)
        weights, noise = _weights_and_noise(problem, samples)
    loss, clean = make_loss(problem, weights), data.fields(target)
    fields = clean + np.sqrt(noise) * rng.standard_normal(clean.shape)
    labels = loss.labels(fields, tokens)
    return Risk(data, loss, 1.0 * (rng.random(samples) < labels) if loss.drawn else labels)


def _weights_and_noise(problem: Problem, samples: int) -> tuple[Reals, Reals]:
    """Return the loss weight, and the variance of the noise, of each sample and pair (n, P)."""
    first, second = upper(problem.tokens)
    weights = np.ones((samples, first.size))
    noise = np.full((samples, first.size), problem.noise)
    for place, columns in (("diagonal", first == second), ("off_diagonal", first != second)):
        reached = 0.0
        for group in problem.groups:
            if getattr(ENTRIES[group.entries], place):
                block = slice(round(reached * samples), round((reached + group.share) * samples))
                weights[block, columns] = group.weight
                noise[block, columns] = group.noise
                reached += group.share
    return weights, noise * np.where(first == second, 1.0, 0.5)


def fresh_fields(
    problem: Problem, sensing: str, matrix: Reals, target: Reals, rng: np.random.Generator
) -> tuple[Reals, Reals]:
    """Return the scores of a student's matrix and of the target, both (d, d), on new samples."""
    tokens, size, queries = problem.tokens, len(matrix), problem.observed_output.queries
    if SENSINGS[sensing].gaussian:
        z = rng.standard_normal((2, TEST_SEQUENCES, entries(problem)))
        if problem.sides == 1:
            first, second = upper(tokens)
            z = np.where(first == second, np.sqrt(2.0), 1.0) * z
        q, m, Q = (
            float(np.vdot(*pair)) / size for pair in ((matrix, matrix), (matrix, target), (target, target))
        )
        return m / np.sqrt(Q) * z[0] + np.sqrt(max(q - m * m / Q, 0.0)) * z[1], np.sqrt(Q) * z[0]
    if problem.sides == 1:
        data: Sensing = draw_sensing(sensing, samples=TEST_SEQUENCES, tokens=tokens, size=size, rng=rng)
    else:
        data = draw_pairs(TEST_SEQUENCES, tokens, problem.pairs or "", size, rng, queries)
    return data.fields(matrix), data.fields(target)
