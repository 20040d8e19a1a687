"""State evolution with the row softmax output, for any number of tokens and several students.

With `(omega, v*) ~ N(0, [[q, m], [m, Q*]] x K)`, labels `y = softmax(beta (v* + noise))`, noise of covariance
`(Delta/2) K`, proximal point p, `g = -l'(p)`, `H = l''(p)` and B (`attnlaw.theory.learn.softmax_channel`):

    Vhat = 2 alpha E tr[(I + V H K)^-1 H K]
    mhat = 2 alpha E tr[(I + V H K)^-1 B K]
    qhat = 2 alpha E g^T K g
    factorized: a = sqrt(qhat)/mhat, b = 2 lt/mhat, r = mhat/Vhat; q = r^2 J, m = r (J + b M1 - a^2 chi),
                V = chi/Vhat, and the trained matrix is r (X - b)_+ with X of law mu_a
    direct:     V = 1/(Vhat + 4 lambda), m = V mhat Q*, q = V^2 (mhat^2 Q* + qhat)

The unknowns are E, V and the angle theta between the student's error and the target: `Q* - m = sqrt(Q* E)
cos(theta)`, `q - m^2/Q* = E sin^2(theta)`. So E keeps its digits if the student is near the target.

Expectations are averages over a scrambled Sobol sequence, the same at every step (error 1e-4 in E at 2^13
draws and beta = 1). `REPLICATES` other scrambles with a quarter of the draws estimate the error, 2 to 4 times
too large if the loss is smooth.

The theory assumes replica symmetry and the global proximal point. The replicon value `K 2 alpha E tr[(K G)^2]
/ Vhat^2` indicates how far to trust it, with `G = -dg/domega` and the first K that of
`attnlaw.theory.learn.stability`. It is unstable above 1: small differences between two students trained on
the same data then grow. For one group of a quadratic loss it is the value of the linear output. Letters are
explained in `attnlaw.theory.learn.problem`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy

from attnlaw.core.arrays import Reals
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome
from attnlaw.numerics.fixed_point import Iteration, accelerated_iteration
from attnlaw.numerics.small_systems import factor, inverse
from attnlaw.theory.laws.free_convolution import FreeConvolution
from attnlaw.theory.laws.transformed import Rectified
from attnlaw.theory.learn.outliers import find_outliers
from attnlaw.theory.learn.prediction import (
    UNSTABLE,
    Prediction,
    estimates,
    recovered_prediction,
    trace_or_nuclear_norm,
)
from attnlaw.theory.learn.problem import Problem, ProblemBatch
from attnlaw.theory.learn.softmax_channel import (
    covariance,
    derivatives,
    gauss_newton,
    label_response,
    local_minimum,
    loss,
    softmax_rows,
)

if TYPE_CHECKING:
    from attnlaw.theory.learn.attended_key import AttendedKey

SOBOL_SEED = 20250924
REFRESH = 10
REPLICATES = 4
LARGEST_BYTES = 2**33
LEAST_E, LEAST_V = 1e-40, 1e-10
UNRESOLVED = 1e-19  # E over Q* below which the gradients at the proximal points are round-off
Start = tuple[float, float, float]  # (E, theta, V) at which the iteration begins


@dataclass(frozen=True)
class SoftmaxPoint:
    """A solution of the equations. `replicates` are solutions for other random draws, for its error."""

    E: float
    theta: float
    V: float
    m: float
    q: float
    a: float  # noise level of the matrix X that the student effectively sees
    b: float  # threshold below which the student cuts eigenvalues; 0 for the direct student
    r: float  # factor by which the rest is multiplied: the trained matrix is `r (X - b)_+`
    rank: float
    trace: float
    train: float
    test: float
    iteration: Iteration
    stability: float | None = None  # replicon value; None if the loss is convex
    replicates: tuple[SoftmaxPoint, ...] = ()


@dataclass(frozen=True)
class ChannelAverages:
    """Averages over the random draws, for an error E, an angle theta and a response V."""

    Vhat: float
    qhat: float
    mhat: float
    train: float


@dataclass(frozen=True)
class StudentUpdate:
    """The equations of one kind of student. They map averages to a new error E, angle theta and V."""

    start: Callable[[ProblemBatch], tuple[Reals, Reals, Reals]]  # E, `Q* - m` and V with a linear output
    # Returns E, theta, V, m, q, a, b, r, rank fraction and trace.
    step: Callable[[Problem, ChannelAverages], tuple[float, ...]]
    slope: Callable[[Problem, float, float, float], float]  # K of `learn.stability` from (Vhat, a, b)
    cuts: bool  # whether the trained matrix is `r (X - b)_+` instead of `r X`


class _Channel:
    """The draws of one problem, on the last axis. Each step starts at the last proximal points."""

    def __init__(self, problem: Problem, log2_draws: int, scramble: int = 0) -> None:
        self.problem = problem
        self.K = covariance(problem.tokens)
        self.inverse: Reals = np.asarray(np.linalg.inv(self.K), dtype=float)
        size = self.K.shape[0]
        blocks = 3 if problem.noise else 2
        sobol = scipy.stats.qmc.Sobol(
            blocks * size, scramble=True, rng=np.random.default_rng(SOBOL_SEED + scramble)
        )
        uniform = np.clip(sobol.random_base2(log2_draws), 1e-12, 1 - 1e-12)
        z = scipy.special.ndtri(uniform).reshape(-1, blocks, size) @ np.linalg.cholesky(self.K).T
        z = np.ascontiguousarray(z.transpose(1, 2, 0))
        self.teacher = np.sqrt(problem.target.second_moment) * z[0]
        self.free = z[1]
        shown = self.teacher + (np.sqrt(problem.noise / 2) * z[2] if problem.noise else 0.0)
        self.shown = shown
        self.labels = softmax_rows(shown, problem.beta, problem.tokens)
        self.starts: list[Reals] = []
        self.calls = 0

    def student(self, E: float, theta: float) -> Reals:
        Q, root = self.problem.target.second_moment, np.sqrt(E)
        away = np.sin(theta) * self.free - np.cos(theta) / np.sqrt(Q) * self.teacher
        return np.asarray(self.teacher + root * away)

    def average(self, E: float, theta: float, V: float) -> ChannelAverages:
        problem = self.problem
        sigma, gradient, H, solved = self._proximal(E, theta, V)
        B = label_response(sigma, self.labels, problem.beta)
        trace, response = (np.einsum("pqn,pqn->n", solved, matrix).mean() / V for matrix in (H, B))
        power = np.einsum("pn,pn->n", gradient, self.K @ gradient).mean()
        scale = 2 * problem.alpha
        train = loss(sigma, self.labels).mean()
        return ChannelAverages(
            float(scale * trace), float(scale * power), float(scale * response), float(train)
        )

    def response(self, E: float, theta: float, V: float) -> float:
        """Return the response `2 alpha E tr[(K G)^2]`, which decides whether the solution is stable."""
        *_, H, solved = self._proximal(E, theta, V)
        product = np.einsum("prn,rqn->pqn", solved, H)
        square = np.einsum("pqn,qpn->n", product, product).mean() / V**2
        return float(2 * self.problem.alpha * square)

    def _proximal(self, E: float, theta: float, V: float) -> tuple[Reals, Reals, Reals, Reals]:
        """Return softmax rows, gradient, H and A^-1 (A: Newton's matrix) at the better of two minima."""
        problem = self.problem
        omega = self.student(E, theta)
        # Draws may change between their two minima, so both searches start again every few calls.
        if self.calls % REFRESH == 0 or not self.starts:
            self.starts = [omega, self.shown]
        self.calls += 1
        minima = [
            local_minimum(start, omega, self.labels, self.inverse / V, problem.beta) for start in self.starts
        ]
        self.starts = [v for v, _ in minima]
        p = np.where(minima[0][1] <= minima[1][1], minima[0][0], minima[1][0])
        sigma = softmax_rows(p, problem.beta, problem.tokens)
        gradient, H = derivatives(sigma, self.labels, problem.beta)
        # (I + V H K)^-1 = (V K)^-1 A^-1, A the matrix of Newton's method: the traces are tr A^-1 H / V.
        return sigma, gradient, H, inverse(factor(H + (self.inverse / V)[..., None]))

    def test_error(self, E: float, theta: float) -> float:
        """Return the error on noise-free labels of a student with error E at the angle theta."""
        seen = (self.student(E, theta), self.teacher)
        sigma, clean = (softmax_rows(v, self.problem.beta, self.problem.tokens) for v in seen)
        return float(loss(sigma, clean).mean())


def default_draws(problem: Problem) -> int:
    """Return log2 of the number of random draws: 13, or 15 if beta is above 2."""
    return 13 if problem.beta <= 2 else 15


def check_size(problem: Problem, log2_draws: int | None = None) -> None:
    """Raise an `InputError` if the arrays of all draws do not fit into memory."""
    draws = 1 << (log2_draws or default_draws(problem))

    def needed(T: int) -> int:
        P = T * (T + 1) // 2 - 1
        return 8 * draws * (10 * P**2 + 10 * T**2)

    if needed(problem.tokens) > LARGEST_BYTES:
        most = next(T for T in range(2, problem.tokens) if needed(T + 1) > LARGEST_BYTES)
        raise InputError(
            f"tokens: {problem.tokens} through a softmax need {needed(problem.tokens) / 2**30:.0f} GiB, "
            f"more than {LARGEST_BYTES // 2**30}; choose at most {most} tokens, or use the linear output "
            "or the student bayes"
        )


def solve(
    problem: Problem,
    student: StudentUpdate,
    start: Start | None = None,
    *,
    log2_draws: int | None = None,
    tolerance: float = 1e-6,
) -> SoftmaxPoint:
    """Solve the equations for E, theta and V, from `start` or from the solution of a linear output."""
    check_size(problem, log2_draws)
    final = log2_draws or default_draws(problem)
    # A coarse average brings the state close, at a fraction of the cost of all draws.
    coarse = _Channel(problem, min(10, final))
    state = start or _linear_start(coarse, student)
    for channel, goal in ((coarse, 1e-3), (_Channel(problem, final), tolerance)):
        point = fixed_point(channel, student, state, goal)
        state = (point.E, point.theta, point.V)
    if not point.iteration.converged:
        return point
    replicates = (
        fixed_point(_Channel(problem, final - 2, scramble), student, state, 10 * tolerance)
        for scramble in range(1, REPLICATES + 1)
    )
    return replace(point, replicates=tuple(replicates))


def _linear_start(channel: _Channel, student: StudentUpdate) -> Start:
    """Return (E, theta, V) of a linear output whose quadratic loss has the mean curvature of the softmax."""
    problem = channel.problem
    H = gauss_newton(channel.labels, problem.beta).mean(axis=-1)
    # Exact as beta -> 0, and as the weight decay -> 0, where V grows and the weights cancel.
    weights = np.linalg.eigvals(channel.K @ H).real[None] / 2
    batch = ProblemBatch(
        problem.target,
        np.full(weights.shape, problem.alpha),
        weights,
        np.full(weights.shape, problem.noise / 2),
        np.array([problem.weight_decay]),
    )
    E, gap, V = student.start(batch)
    return float(E[0]), angle(problem.target.second_moment, float(E[0]), float(gap[0])), float(V[0])


def angle(Q: float, E: float, gap: float) -> float:
    """Return the angle theta between the student's error and the target, given E and Q* - m."""
    return float(np.arctan2(np.sqrt(max(E - gap * gap / Q, 0.0)), gap / np.sqrt(Q)))


def fixed_point(
    channel: _Channel | AttendedKey, student: StudentUpdate, start: Start, tolerance: float
) -> SoftmaxPoint:
    """Solve the equations of one output (`channel`) and one student, by accelerated iteration."""
    problem = channel.problem

    def unknowns(E: float, theta: float, V: float) -> Reals:
        # V ranges from order one to the inverse of the weight decay, so its logarithm is the unknown.
        return np.array([np.log(max(E, LEAST_E)), theta, np.log(max(V, LEAST_V))])

    def values(at: Reals) -> tuple[float, float, float]:
        return float(np.exp(at[0])), float(at[1]), float(np.exp(at[2]))

    def update(at: Reals) -> Reals:
        E, theta, V, *_ = student.step(problem, channel.average(*values(at)))
        return unknowns(E, theta, V)

    iteration = accelerated_iteration(
        update, unknowns(*start), damping=0.3, tolerance=tolerance, max_steps=200, patience=25
    )
    E, theta, V = values(iteration.state)
    averages = channel.average(E, theta, V)
    _, _, _, m, q, a, b, r, rank, trace = student.step(problem, averages)
    test, response = channel.test_error(E, theta), channel.response(E, theta, V)
    stability = (
        None
        if response is None
        else response / averages.Vhat**2 * student.slope(problem, averages.Vhat, a, b)
    )
    return SoftmaxPoint(E, theta, V, m, q, a, b, r, rank, trace, averages.train, test, iteration, stability)


def noise_level(problem: Problem, averages: ChannelAverages) -> float:
    """Return the noise level `a = sqrt(qhat)/mhat`, or the smallest level above rounding errors."""
    return max(float(np.sqrt(averages.qhat)) / averages.mhat, problem.target.least_noise_level)


def predictions(
    problems: list[Problem],
    student: StudentUpdate,
    report: Callable[[int], object],
    solved: Callable[[Problem, StudentUpdate, Start | None], SoftmaxPoint] = solve,
) -> list[Prediction]:
    """Predict several problems with the same target. Each solution is the start of the next one."""
    order = sorted(
        range(len(problems)), key=lambda i: (problems[i].tokens, problems[i].beta, problems[i].alpha)
    )
    results: dict[int, Prediction] = {}
    start = None
    for done, i in enumerate(order, start=1):
        problem = problems[i]
        if problem.weight_decay == 0 and problem.noise == 0:
            results[i] = recovered_prediction(problem, 0.0, 0.0, 0, 0.0 if student.cuts else None)
        else:
            point = solved(problem, student, start)
            start = (point.E, point.theta, point.V) if point.iteration.converged else None
            results[i] = _prediction(problem, student, point)
        report(done)
    return [results[i] for i in range(len(problems))]


def _values(problem: Problem, student: StudentUpdate, point: SoftmaxPoint) -> dict[str, float]:
    """Return the quantities of a prediction that are averages, by name."""
    values = {
        "estimation_error": point.E,
        "prediction_error": point.test,
        "training_loss": point.train,
        "overlap": point.m,
        "norm": point.q,
        "rank_fraction": point.rank,
        **trace_or_nuclear_norm(problem, point.trace),
        "noise_level": point.a,
    }
    return {**values, "threshold": point.b} if student.cuts else values


def errors(problem: Problem, student: StudentUpdate, point: SoftmaxPoint) -> dict[str, float]:
    """Return the standard errors of a solution, from its replicates and from the remaining residual."""
    tables = [_values(problem, student, replicate) for replicate in point.replicates]
    away = np.sqrt(problem.target.second_moment * point.E)
    sizes = _values(problem, student, point) | {"overlap": away, "norm": 2 * away + point.E}
    if not student.cuts:
        sizes["rank_fraction"] = 0.0
    root = np.sqrt(len(tables))
    return {
        name: float(
            np.hypot(np.std([table[name] for table in tables], ddof=1) / root, point.iteration.error * size)
        )
        for name, size in sizes.items()
    }


def _prediction(problem: Problem, student: StudentUpdate, point: SoftmaxPoint) -> Prediction:
    law, iteration, threshold = problem.target.law, point.iteration, point.b if student.cuts else None
    bound = UNRESOLVED * problem.target.second_moment
    if bound > point.E:
        return recovered_prediction(problem, bound, iteration.residual, iteration.steps)
    outcome, remark = Outcome.DONE, None
    if point.stability is not None and point.stability > UNSTABLE:
        outcome = Outcome.UNSTABLE
        remark = (
            f"unstable (stability {point.stability:.3g} is above 1), so training runs may end at "
            "different students"
        )
    if not iteration.converged:
        outcome = Outcome.NOT_CONVERGED
        remark = (
            f"training stopped with a residual of {iteration.residual:.1e} after {iteration.steps} steps, "
            "so these values may be wrong; lower beta or raise the weight decay"
        )
    values = _values(problem, student, point)
    return Prediction(
        problem=problem,
        **estimates(
            problem,
            values.pop("estimation_error"),
            **values,
            errors=errors(problem, student, point) if point.replicates else None,
        ),
        shrinkage=point.r,
        spectrum=(
            Rectified(FreeConvolution(law, point.a), point.b, point.r, problem.sides)
            if student.cuts
            else FreeConvolution(law.scaled(point.r), point.r * point.a)
        ),
        outliers=find_outliers(problem.target, point.a, threshold, point.r),
        stability=point.stability if iteration.converged else None,
        outcome=outcome,
        remark=remark,
        residual=iteration.residual,
        steps=iteration.steps,
    )
