"""The experiment beside the theory: draw data, train the student, measure what it has learned.

The same frozen `Problem` feeds `state_evolution` and `simulate`. At size d the target is the deterministic
diagonal matrix of the target law's quantiles (both sensings are invariant under rotations), untied these
times a random rotation, which every seed draws (a diagonal target is symmetric, a generic one is not). The
sample count is n = round(alpha d^2), and every seed draws its own data and noise.

| quantity | definition |
|---|---|
| estimation_error | E = |S_hat - S*|_F^2 / d |
| prediction_error | sum over all (a, b) of the squared error on a fresh sequence with clean labels |
| training_loss | the risk without its penalty, per sample |
| overlap, norm | m = Tr(S_hat^T S*)/d, q = |S_hat|_F^2/d |
| trace, nuclear_norm | Tr S_hat/d if tied, |S_hat|_*/d if untied |
| rank_fraction | share of eigenvalues (untied: singular values) of S_hat that are not zero |
| angle, wrong_keys | of S_hat to S*; share of fresh queries that prefer the other key (cross-entropy) |
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, CancelledError, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from attnlaw.base.declare import Progress, named
from attnlaw.base.errors import BadSetting, InputError
from attnlaw.base.estimate import Estimate, Outcome
from attnlaw.base.progress import watched
from attnlaw.base.settings import require
from attnlaw.base.shown import Shown
from attnlaw.learning.outputs import PAIRS, SENSINGS
from attnlaw.learning.pair_sensing import hidden_target
from attnlaw.learning.prediction import size_of
from attnlaw.learning.problem import ENTRIES, Problem
from attnlaw.learning.risk import Risk
from attnlaw.learning.sensing import TEST_SEQUENCES, Array, check_sensing, draw_sensing, upper
from attnlaw.learning.students import STUDENTS
from attnlaw.learning.training import Check, Trained
from attnlaw.numerics.cores import usable_cores

QUANTITIES = (
    "estimation_error",
    "prediction_error",
    "training_loss",
    "overlap",
    "norm",
    "trace",
    "nuclear_norm",
    "rank_fraction",
    "angle",
    "wrong_keys",
)
WAIT = 0.2  # seconds between two looks for Ctrl-C
NEAR = 0.01  # by this part of alpha a whole number of samples may miss it


@dataclass(frozen=True, repr=False)
class Measurement(Shown, verb="learn.simulate"):
    """What `seeds` trained students of size d learned; `eigenvalues` has shape (seeds, d), ascending.

    Untied students have singular values there, and a `nuclear_norm` in place of the `trace`.
    Each `Estimate` is a mean over the seeds with its standard error, None for a single seed.
    """

    problem: Problem
    size: int
    samples: int
    seeds: int
    seed: int
    sensing: str
    estimation_error: Estimate
    prediction_error: Estimate
    training_loss: Estimate
    overlap: Estimate
    norm: Estimate
    trace: Estimate | None
    nuclear_norm: Estimate | None
    rank_fraction: Estimate
    angle: Estimate | None
    wrong_keys: Estimate | None
    solver: str
    residual: float
    eigenvalues: Array = field(repr=False, compare=False)
    outcome: Outcome = Outcome.DONE
    unsolved: str | None = None

    @property
    def rounding(self) -> str | None:
        """What was simulated instead, where `n = round(alpha d^2)` samples miss alpha by more than 1%."""
        alpha, found = self.problem.alpha, self.samples / self.size**2
        if abs(found - alpha) <= NEAR * alpha:
            return None
        return f"size {self.size}: n = {self.samples}, alpha = {found:.3g} instead of {alpha:.3g}"

    @property
    def remark(self) -> str | None:
        """What training did not reach, and which alpha was simulated instead of the one asked for."""
        rounding = self.rounding
        other = None if rounding is None else f"{rounding}, the theory's; choose a larger size or that alpha"
        return "; ".join(filter(None, (self.unsolved, other))) or None


def simulate(
    problem: Problem,
    size: int,
    seeds: int = 8,
    seed: int = 0,
    sensing: str = "tokens",
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Train the problem's student at size d on `seeds` independent data sets, in threads.

    `jobs` threads (default: the cores) hold one BLAS thread each, so that the numbers do not depend on it.
    Ctrl-C, or a run that fails, ends the others at their next step.
    Cost per gradient: 4 n T d^2 operations with tokens, n T(T+1) d^2 with Gaussian matrices ("goe").
    With tokens S >= 0 forces h_aa >= -Tr S/sqrt(d): as lt -> 0 at T = 1 and small d, the most negative noisy
    label alone fixes Tr S, the minimiser is not unique, and which one is found depends on the solver; compare
    such cases with Gaussian matrices.
    Fails with an `InputError` when d times the target's rank ratio is not whole, for a student that is not
    trained (Bayes-optimal), and when the data would not fit into memory.

    >>> from attnlaw.learning.problem import Target
    >>> problem = Problem(alpha=0.3, target=Target.marchenko_pastur(0.5), noise=0.5, weight_decay=0.6)
    >>> measured = simulate(problem, size=20, seeds=2, seed=1)
    >>> measured.samples, str(measured.outcome), measured.eigenvalues.shape
    (120, 'done', (2, 20))
    """
    seeds, seed = require("seeds", seeds, int, least=1), require("seed", seed, int, least=0)
    jobs = usable_cores() if jobs is None else require("jobs", jobs, int, least=1)
    samples, tell = check_simulation(problem, size, sensing), progress or watched("simulate")
    target = problem.target.quantiles(size)
    children = np.random.SeedSequence(seed).spawn(seeds)
    ended = Event()

    def check() -> None:
        if ended.is_set():
            raise CancelledError

    tell(0, seeds)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(min(jobs, seeds)) as pool,
    ):
        try:
            futures = [
                pool.submit(_run, problem, target, samples, sensing, np.random.default_rng(child), check)
                for child in children
            ]
            pending = set(futures)
            while pending:
                # Polars' signal handler restarts a wait without an end, which Ctrl-C would then not leave.
                done, pending = wait(pending, timeout=WAIT, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                tell(seeds - len(pending), seeds)  # also between two ends: whoever watches may stop it
        finally:
            ended.set()
            pool.shutdown(cancel_futures=True)
    finished = [future.result() for future in futures]
    estimates: dict[str, Any] = {
        name: _estimate([run.values[name] for run in finished]) if name in finished[0].values else None
        for name in QUANTITIES
    }
    return Measurement(
        problem=problem,
        size=size,
        samples=samples,
        seeds=seeds,
        seed=seed,
        sensing=sensing,
        solver=", ".join(sorted({run.trained.solver for run in finished})),
        residual=max(run.trained.residual for run in finished),
        eigenvalues=np.array([run.eigenvalues for run in finished]),
        **_ending([run.trained for run in finished]),
        **estimates,
    )


def check_simulation(problem: Problem, size: int, sensing: str = "tokens") -> int:
    """The number of samples at size d, or an `InputError` for a student that cannot be trained there."""
    if problem.who.trainer is None:
        able = [name for name, one in STUDENTS.items() if one.trainer is not None]
        raise BadSetting(
            "student", f"which is computed and not trained; simulate {' or '.join(able)}", problem.student
        )
    problem.who.theory(problem.shown.name)
    size = require("size", size, int, least=2)
    problem.target.quantiles(size)
    columns = size if problem.width is None else problem.width * size
    if abs(columns - round(columns)) > 1e-9 * size or round(columns) < 1:
        raise InputError(
            f"size {size} times width {problem.width:g} is {columns:g}, expected a whole number of at "
            "least 1; choose another size or width"
        )
    samples = round(problem.sample_ratio * size * size)
    if samples < 1:
        raise InputError(
            f"size: found {size}, where alpha {problem.alpha:g} gives no sample; choose a larger size"
        )
    check_sensing(
        sensing,
        attention=problem.attention,
        samples=samples,
        tokens=problem.tokens,
        entries=_entries(problem),
        size=size,
    )
    return samples


def _entries(problem: Problem) -> int:
    """Observed entries of a sample: pairs a <= b, untied the ordered pairs that are seen."""
    if problem.sides == 2:
        return PAIRS[problem.pairs or ""].count(problem.tokens, problem.shown.queries)
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
        draw = named(SENSINGS[sensing].draws[problem.attention])
        pairs = draw(samples, tokens, problem.pairs, size, rng, problem.shown.queries)
        clean = pairs.fields(target)
        loss = named(problem.shown.loss)(problem, np.ones(clean.shape))
        fields = clean + np.sqrt(problem.noise / 2) * rng.standard_normal(clean.shape)
        labels = loss.labels(fields, tokens)
        return Risk(pairs, loss, 1.0 * (rng.random(samples) < labels) if loss.drawn else labels)
    data = draw_sensing(sensing, samples=samples, tokens=tokens, size=size, rng=rng)
    weights, noise = _weights_and_noise(problem, samples)
    first, second = upper(tokens)
    deviations = np.sqrt(noise * np.where(first == second, 1.0, 0.5))
    fields = data.fields(target) + deviations * rng.standard_normal(noise.shape)
    loss = named(problem.shown.loss)(problem, weights)
    return Risk(data, loss, loss.labels(fields, tokens))


@dataclass(frozen=True)
class _Run:
    trained: Trained
    values: dict[str, float]
    eigenvalues: Array


def _run(
    problem: Problem,
    target: Array,
    samples: int,
    sensing: str,
    rng: np.random.Generator,
    check: Check,
) -> _Run:
    teacher = np.diag(target) if problem.sides == 1 else hidden_target(target, rng)
    risk = draw_risk(problem, teacher, samples, sensing, rng)
    trained = problem.who.train(problem, risk, rng, check)
    matrix, size = trained.matrix, target.size
    spectrum = np.linalg.eigvalsh(matrix) if problem.sides == 1 else np.linalg.svd(matrix)[1][::-1]
    eigenvalues = np.array(spectrum, dtype=float)
    error = matrix - teacher
    # Round-off leaves the zero eigenvalues of a positive semidefinite matrix at about 1e-16 of the largest.
    eigenvalues[np.abs(eigenvalues) <= 1e-12 * np.abs(eigenvalues).max()] = 0.0
    values = {
        "estimation_error": float(np.vdot(error, error)) / size,
        "training_loss": risk(matrix)[0] / samples,
        "overlap": float(np.vdot(matrix, teacher)) / size,
        "norm": float(np.vdot(matrix, matrix)) / size,
        **size_of(problem, float(eigenvalues.sum()) / size),
        "rank_fraction": float(np.mean(eigenvalues != 0.0)),
    }
    error_on_fresh = problem.prediction_error(values["estimation_error"])
    if error_on_fresh is None:
        values |= _on_fresh_sequences(problem, risk, sensing, (target, teacher), matrix, rng)
    else:
        values["prediction_error"] = error_on_fresh
    if problem.shown.queries is not None and values["norm"] > 0:
        cosine = values["overlap"] / np.sqrt(values["norm"] * np.vdot(teacher, teacher) / size)
        values["angle"] = float(np.arccos(np.clip(cosine, -1.0, 1.0)))
    return _Run(trained, values, eigenvalues)


def _on_fresh_sequences(
    problem: Problem,
    risk: Risk,
    sensing: str,
    target: tuple[Array, Array],
    matrix: Array,
    rng: np.random.Generator,
) -> dict[str, float]:
    """The mean loss of a student over 8192 fresh sequences with clean labels, and how often it errs.

    `target` are its eigenvalues (singular values) and its matrix.
    """
    fresh, queries, tokens = (
        named(SENSINGS[sensing].fresh[problem.attention]),
        problem.shown.queries,
        problem.tokens,
    )
    if problem.sides == 1:
        student, teacher = fresh(sensing, matrix, target[0], tokens, rng)
    else:
        student, teacher = fresh(matrix, target[1], tokens, problem.pairs, rng, queries)
    loss, _ = risk.output.loss(student, risk.output.labels(teacher, tokens), tokens)
    found = {"prediction_error": loss / TEST_SEQUENCES}
    if queries is not None:
        wrong = (student[:, 0] > student[:, 1]) != (teacher[:, 0] > teacher[:, 1])
        found["wrong_keys"] = float(wrong.mean())
    return found


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


def _estimate(values: list[float]) -> Estimate:
    count = len(values)
    error = float(np.std(values, ddof=1) / np.sqrt(count)) if count > 1 else None
    return Estimate(float(np.mean(values)), error)


def _ending(trained: list[Trained]) -> dict[str, Any]:
    failed = [run for run in trained if not run.converged]
    if not failed:
        return {}
    worst = max(run.residual for run in failed)
    return {
        "outcome": Outcome.NOT_CONVERGED,
        "unsolved": f"{len(failed)} of {len(trained)} runs stopped with residual up to {worst:.1e} after "
        f"{max(run.steps for run in failed)} steps; raise the weight decay or move away from interpolation",
    }
