"""The training data of a student of size d: what it sees, its noise and its labels."""

from __future__ import annotations

import numpy as np

from attnlaw.core.lazy import resolve
from attnlaw.theory.learn.choices import PAIRS, SENSINGS
from attnlaw.theory.learn.problem import ENTRIES, Problem
from attnlaw.theory.learn.risk import Risk
from attnlaw.theory.learn.sensing import Array, draw_sensing, upper


def entries(problem: Problem) -> int:
    """Observed entries of a sample: pairs a <= b, untied the ordered pairs that are seen."""
    if problem.sides == 2:
        return PAIRS[problem.pairs or ""].count(problem.tokens, problem.observed_output.queries)
    return problem.tokens * (problem.tokens + 1) // 2


def draw_risk(problem: Problem, target: Array, samples: int, sensing: str, rng: np.random.Generator) -> Risk:
    """Draw the training data of a student: sensing, noise and labels of the target's matrix.

    `target` is that matrix (d, d), or the eigenvalues (d,) of a diagonal one. Noise on h_ab is Gaussian of
    variance Delta (1 + delta_ab)/2, inside the softmax where there is one; untied Delta/2 on every pair. With
    observation groups, each entry's samples are shared out in consecutive blocks.
    """
    tokens, size = problem.tokens, len(target)
    target = target if target.ndim == 2 else np.diag(target)
    if problem.sides == 2:
        draw = resolve(SENSINGS[sensing].draws[problem.attention])
        pairs = draw(samples, tokens, problem.pairs, size, rng, problem.observed_output.queries)
        clean = pairs.fields(target)
        loss = resolve(problem.observed_output.loss)(problem, np.ones(clean.shape))
        fields = clean + np.sqrt(problem.noise / 2) * rng.standard_normal(clean.shape)
        labels = loss.labels(fields, tokens)
        return Risk(pairs, loss, 1.0 * (rng.random(samples) < labels) if loss.drawn else labels)
    data = draw_sensing(sensing, samples=samples, tokens=tokens, size=size, rng=rng)
    weights, noise = _weights_and_noise(problem, samples)
    first, second = upper(tokens)
    deviations = np.sqrt(noise * np.where(first == second, 1.0, 0.5))
    fields = data.fields(target) + deviations * rng.standard_normal(noise.shape)
    loss = resolve(problem.observed_output.loss)(problem, weights)
    return Risk(data, loss, loss.labels(fields, tokens))


def _weights_and_noise(problem: Problem, samples: int) -> tuple[Array, Array]:
    """Loss weight and noise variance Delta of each sample and pair, shapes (n, P)."""
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
    return weights, noise
