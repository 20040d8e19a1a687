"""The tied student: reference values, a matrix flow, ends, slopes, and the truncated hierarchy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.linalg import expm
from theory.dynamics.matrix_flow import extrapolated, tied_flow

from attnlaw.theory.dynamics.potential import potential_of
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.tied import TiedStart, flow, riccati_step, start_of, target_nodes
from attnlaw.theory.dynamics.trajectory import trajectory
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.state_evolution import state_evolution

LONG = pytest.mark.long
SOFTMAX = {"output": "softmax", "tokens": 2}
# Computed twice by independent programs before this one; q, m, t to their six digits.
REFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[float, tuple[float, float, float]]]] = {
    "linear": (
        {},
        {},
        {
            0.02: (0.712379, 0.660670, 0.627275),
            0.05: (0.885410, 0.995650, 0.654689),
            0.1: (1.287008, 1.338921, 0.724499),
            0.2: (1.473833, 1.475084, 0.752197),
            0.4: (1.500294, 1.497288, 0.744342),
        },
    ),
    "two tokens, narrow, decay": (
        {"tokens": 2},
        {"width": 0.5, "decay": 2.0},
        {
            0.01: (0.682094, 0.637050, 0.510004),
            0.03: (0.987106, 1.103186, 0.549846),
            0.12: (1.360773, 1.419192, 0.641802),
            0.5: (1.384753, 1.440157, 0.662076),
        },
    ),
    "softmax": (
        SOFTMAX,
        {},
        {
            0.1: (0.729443, 0.618526, 0.633773),
            0.3: (0.714152, 0.893397, 0.599953),
            1.2: (1.239634, 1.353812, 0.687426),
            5.0: (1.503931, 1.501294, 0.729754),
        },
    ),
    "softmax, cold": ({**SOFTMAX, "beta": 4.0}, {}, {0.4: (0.895266, 1.151246, 0.592028)}),
    "hermite2": (
        {"output": "hermite2"},
        {},
        {
            0.004: (0.789488, 0.550233, 0.650864),
            0.016: (1.136271, 1.102153, 0.732622),
            0.03: (1.451422, 1.438316, 0.766556),
        },
    ),
    "softmax, noise, narrow, decay": (
        {**SOFTMAX, "noise": 0.5},
        {"width": 0.5, "decay": 0.05, "scale": 0.3},
        {
            0.1: (0.201163, 0.281414, 0.271209),
            1.0: (0.665470, 0.972959, 0.434862),
            20.0: (1.011023, 1.231332, 0.574664),
        },
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_reference_values(name: str) -> None:
    problem, schedule, rows = REFERENCES[name]
    path = trajectory(Problem(**problem), Schedule(list(rows), **schedule))
    ours = np.stack([path.norm, path.overlap, path.trace], axis=1)[1:]
    assert ours == pytest.approx(np.array(list(rows.values())), abs=1e-5)
    assert path.estimation_error == pytest.approx(path.norm - 2 * path.overlap + 1.5, abs=1e-12)


def test_a_target_proportional_to_the_identity_is_the_papers_closed_form() -> None:
    """arXiv 2609.03858, equation 348."""
    path = trajectory(Problem(target=Target.discrete([1.3])), Schedule([0.01, 0.03, 0.06, 0.12], width=1.5))
    trace = [0.71887876, 0.77225330, 0.86977049, 1.06239904]
    norm = [0.79547483, 0.81605609, 0.91912568, 1.20399618]
    assert path.trace[1:] == pytest.approx(trace, abs=1e-8)
    assert path.norm[1:] == pytest.approx(norm, abs=1e-8)
    assert np.isnan(path.alignment).all()


def test_few_nodes_against_many() -> None:
    problem, times = Problem(), np.array([0.0, 0.02, 0.1, 0.4])
    few, many = (
        flow(start_of(problem, Schedule([1.0]), angles), potential_of(problem).gains, 0.0, times)
        for angles in (32, 96)
    )
    for state, other in zip(few, many, strict=True):
        assert (state.q, state.m, state.t) == pytest.approx((other.q, other.m, other.t), abs=2e-5)


FLOWS: dict[str, tuple[dict[str, Any], float, float, float, list[float]]] = {
    "linear": ({}, 1.0, 0.7, 0.0, [0.02, 0.1]),
    "two tokens, narrow, decay": ({"tokens": 2}, 0.5, 0.7, 2.0, [0.01, 0.05]),
    "softmax, noise, wide": ({**SOFTMAX, "noise": 0.5}, 2.0, 0.7, 0.05, [0.2, 1.0]),
    "hermite2": ({"output": "hermite2"}, 1.0, 0.7, 0.0, [0.005, 0.03]),
    "hermite3": ({"output": "hermite3"}, 1.0, 0.7, 0.0, [0.003, 0.006]),
    # A norm below Q*/3: G and with it F are negative at first. At .02 a clipped F has q = .149 for .448(26).
    "hermite2, small start": ({"output": "hermite2"}, 1.0, 0.2, 0.0, [0.02, 0.05]),
}


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [((8, 32), (16, 16)), pytest.param(((16, 32), (32, 16)), marks=LONG)])
@pytest.mark.parametrize("name", FLOWS)
def test_a_matrix_flow_agrees(name: str, sizes: tuple[tuple[int, int], ...]) -> None:
    """Complex starts at two sizes, extrapolated in 1/d^2; within 4 standard errors."""
    given, width, scale, decay, times = FLOWS[name]
    target = Target.discrete([0.0, 0.4, 1.0, 2.2])
    problem = Problem(target=target, **given)
    gains = potential_of(problem).gains
    flows = []
    for size, starts in sizes:
        eigenvalues = np.repeat([0.0, 0.4, 1.0, 2.2], size // 4)
        seeds = [np.random.default_rng([size, seed]) for seed in range(starts)]
        flows.append(
            np.array([tied_flow(gains, eigenvalues, width, scale, decay, times, rng, 40) for rng in seeds])
        )
    value, error = extrapolated(*flows)
    path = trajectory(problem, Schedule(times, decay=decay, width=width, scale=scale))
    ours = np.stack([path.norm, path.overlap, path.trace], axis=1)[1:]
    assert np.abs((ours - value) / error).max() < 4
    assert error.max() < 0.05


def test_an_orthogonal_start_is_the_hierarchy_of_the_paper() -> None:
    """Words S^k S*^j up to length 12, longer ones 0 (arXiv 2609.03858, equation 13), at a short time."""
    x, p = target_nodes(Target.marchenko_pastur(0.5))
    longest, s, G, H, decay = 12, 0.7, 2.0, -2.0, 1.0
    words = [(k, j) for k in range(1, longest + 1) for j in range(longest + 1 - k)]
    values = np.array([s**k * float(p @ x**j) for k, j in words])
    place = {word: i for i, word in enumerate(words)}
    matrix = np.zeros((len(words), len(words)))
    for (k, j), i in place.items():
        matrix[i, i] -= 2 * decay * k
        for other, rate in (((k + 1, j), -8 * G * k), ((k, j + 1), -8 * H * k)):
            if other in place:
                matrix[i, place[other]] += rate
    time, steps = 0.01, 50
    for _ in range(steps):
        term = values.copy()
        for order in range(1, 8):
            term = matrix @ term * (time / steps / order)
            values = values + term
    path = trajectory(Problem(), Schedule([time], width=np.inf, decay=decay))
    known = [values[place[word]] for word in ((2, 0), (1, 1), (1, 0))]
    assert [path.norm[1], path.overlap[1], path.trace[1]] == pytest.approx(known, abs=1e-5)


def test_the_hierarchy_of_the_paper_is_the_flow_for_short_times() -> None:
    """Traces of words in S and S* up to length M from one Gaussian start at d = 60 (equation 13).

    Errors of m by another program: 2e-3, 2e-5, below 5e-6 at tau = .01 for M = 4, 8, 12. At .03, beyond the
    radius of the series, a longer hierarchy does not help: .036, .035, .047.
    """
    d, s, G, H = 60, 0.7, 2.0, -2.0
    x = Target.marchenko_pastur(0.5).quantiles(d)
    W = np.random.default_rng(0).standard_normal((d, d))
    S = s * d * (W @ W.T) / np.sum(W * W)
    for longest, short in ((4, 4e-3), (8, 4e-5), (12, 5e-6)):
        words, matrix = hierarchy(longest, G, H)
        start = np.array([traced(word, S, x) for word in words])
        for time, least, most in ((0.01, 0.0, short), (0.03, 0.01, 0.1)):
            moved = riccati_step(S[None], x, G, H, 0.0, time)[0]
            moment = (expm(time * matrix) @ start)[words.index("ST")]
            assert least <= abs(moment - float(moved.diagonal() @ x) / d) < most


def hierarchy(longest: int, G: float, H: float) -> tuple[list[str], np.ndarray]:
    """Words with a letter S (student), T (target), up to shift and reversal, and what moves their traces."""
    every = ("".join(letters) for n in range(1, longest + 1) for letters in itertools.product("ST", repeat=n))
    words = sorted({least_form(word) for word in every if "S" in word})
    place = {word: i for i, word in enumerate(words)}
    matrix = np.zeros((len(words), len(words)))
    for word, i in place.items():
        for at in (k for k, letter in enumerate(word) if letter == "S"):
            for letters, rate in (("SS", -8 * G), ("TS", -4 * H), ("ST", -4 * H)):
                longer = word[:at] + letters + word[at + 1 :]
                if len(longer) <= longest:
                    matrix[i, place[least_form(longer)]] += rate
    return words, matrix


def least_form(word: str) -> str:
    return min(way[k:] + way[:k] for way in (word, word[::-1]) for k in range(len(word)))


def traced(word: str, S: np.ndarray, x: np.ndarray) -> float:
    """Tr of the word over d."""
    product = np.eye(x.size)
    for letter in word:
        product = product @ S if letter == "S" else product * x
    return float(np.trace(product)) / x.size


def test_a_wide_start_approaches_the_orthogonal_one() -> None:
    problem = Problem()
    wide, orthogonal = (trajectory(problem, Schedule([0.03], width=width)) for width in (1e6, np.inf))
    assert wide.norm[1] == pytest.approx(orthogonal.norm[1], abs=1e-5)


@pytest.mark.parametrize(
    ("given", "slow"), [({}, 1.0), ({"tokens": 2}, 1.0), (SOFTMAX, 0.1), ({"output": "hermite2"}, 1.0)]
)
def test_the_slope_at_the_start_is_the_papers(given: dict[str, Any], slow: float) -> None:
    """`d(m - t t*)/dtau = -8 H s (Q* - t*^2)` (arXiv 2609.03858, equation 17)."""
    problem, step = Problem(**given), 1e-6 / slow
    path = trajectory(problem, Schedule([step, 2 * step]))
    p = path.overlap - path.trace * problem.target.mean
    slope = (4 * p[1] - p[2] - 3 * p[0]) / (2 * step)
    Q, mean = problem.target.second_moment, problem.target.mean
    assert slope == pytest.approx(-8 * path.gains[0, 1] * 0.7 * (Q - mean**2), rel=1e-4)


@pytest.mark.slow
def test_the_end_of_decay_is_a_cut_target() -> None:
    """`(S* - b)_+` with b = gamma/(4 T(T+1)), by quadrature of the target's law alone."""
    problem = Problem(tokens=2)
    path = trajectory(problem, Schedule([10.0], decay=2.0))
    x, p = target_nodes(problem.target, 2000)
    left = np.maximum(x - 2.0 / 24, 0.0)
    assert path.estimation_error[1] == pytest.approx(float(p @ (left - x) ** 2), abs=1e-6)
    assert path.trace[1] == pytest.approx(float(p @ left), abs=1e-6)


@pytest.mark.slow
def test_the_end_of_a_decay_that_cuts_inside_the_bulk() -> None:
    """Modes near the cut are slow (tau = 1.7 is 1e-4 early). The cut is a kink: 96 angles see it to 2e-5."""
    problem = Problem(tokens=2)
    path = trajectory(problem, Schedule([10.0], decay=12.0))
    for angles, error in ((96, 1e-6), (4000, 2e-5)):
        x, p = target_nodes(problem.target, angles)
        expected = float(p @ (np.maximum(x - 0.5, 0.0) - x) ** 2)
        assert path.estimation_error[1] == pytest.approx(expected, abs=error)


@pytest.mark.slow
def test_the_end_of_a_softmax_with_noise_is_the_least_loss() -> None:
    """The published end of the noisy softmax, E = 0.048225, by direct minimisation elsewhere: 0.0482250."""
    path = trajectory(Problem(**SOFTMAX, noise=0.5), Schedule([200.0], decay=0.05, width=0.5, scale=0.3))
    assert path.estimation_error[1] == pytest.approx(0.0482250, abs=1e-6)


@pytest.mark.slow
def test_a_narrow_student_ends_at_the_top_of_the_target() -> None:
    """Width 0.25 below the rank 0.5: E is the second moment of what lies below the 0.75 quantile."""
    problem = Problem()
    path = trajectory(problem, Schedule([32.0], width=0.25))
    u = (np.arange(200_000) + 0.5) / 200_000
    below = problem.target.law.quantile(0.5 + 0.25 * u)
    assert 0.25 * float(np.mean(below**2)) == pytest.approx(0.110320, abs=1e-6)
    assert path.estimation_error[1] == pytest.approx(0.110320, abs=5e-6)
    # The cut falls inside a node: what fewer of them give, by another program.
    for angles, known in ((32, 0.11186), (96, 0.11043)):
        start = start_of(problem, Schedule([32.0], width=0.25), angles)
        end = flow(start, potential_of(problem).gains, 0.0, np.array([0.0, 32.0]))[1]
        assert pytest.approx(known, abs=5.1e-6) == end.E


@pytest.mark.slow
def test_the_end_is_the_minimiser_of_many_samples() -> None:
    """Weight decay lt over n = alpha d^2 samples is the decay 2 lt/alpha."""
    alpha, decay = 1000.0, 1.0
    static = state_evolution(Problem(alpha=alpha, weight_decay=decay * alpha / 2))
    path = trajectory(Problem(), Schedule([20.0], decay=decay))
    # At finite alpha the noise level adds E/alpha to what is seen.
    assert path.estimation_error[1] == pytest.approx(static.estimation_error.value, rel=5 / alpha)
    assert path.trace[1] == pytest.approx(static.trace.value, rel=5 / alpha)


def test_a_null_space_is_forgotten_as_a_power_of_time() -> None:
    """E -> (1 - kappa0)/(8 G tau)^2: E (16 tau)^2 at tau 10, 100, 1000, with limit 1/2."""
    path = trajectory(Problem(), Schedule([10.0, 100.0, 1000.0]))
    assert (path.estimation_error * (16 * path.time) ** 2)[1:] == pytest.approx(
        [0.408, 0.469, 0.490], abs=5e-4
    )


@pytest.mark.parametrize(("width", "factor"), [(np.inf, 16.0), (1.0, 4.0)])
def test_a_full_rank_target_is_learned_at_an_exponential_rate(width: float, factor: float) -> None:
    """16 G x_min from an orthogonal start, 4 G x_min at kappa = 1, by the hard edge of the start."""
    problem = Problem(target=Target.discrete([1.0, 2.0]))
    path = trajectory(problem, Schedule([0.8, 1.0], width=width))
    rate = np.log(path.estimation_error[1] / path.estimation_error[2]) / 0.2
    assert rate == pytest.approx(factor * 2.0, rel=0.01)


TIMES: dict[str, tuple[dict[str, Any], float, float]] = {
    "linear": ({}, 0.02616, 0.07442),
    "two tokens": ({"tokens": 2}, 0.00872, 0.02481),
    "softmax": (SOFTMAX, 0.1629, 0.4343),
    "hermite2": ({"output": "hermite2"}, 0.01074, 0.0220),
    "hermite3": ({"output": "hermite3"}, 0.0041, 0.0067),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_of_recovery(name: str) -> None:
    given, half, most = TIMES[name]
    path = trajectory(Problem(**given), Schedule(np.geomspace(1e-3 * most, 2 * most, 60)))
    for level, known in ((0.5, half), (0.9, most)):
        digits = len(str(known).split(".")[1])
        assert path.recovery_time(level) == pytest.approx(known, abs=0.51 * 10.0**-digits)
    assert path.recovery_time(0.9999) is None
    assert path.plateaus == ()


def test_a_start_of_size_zero_has_no_alignment_and_still_a_time_of_recovery() -> None:
    """Factors of infinite width start at S = 0, where the alignment is 0/0; it is 1 as soon as they move."""
    times = np.geomspace(0.01, 0.5, 5)
    path = trajectory(Problem(), Schedule(times, width=np.inf))
    time = path.recovery_time(0.5)
    assert time is not None
    assert 0 < time <= times[np.flatnonzero(path.alignment[-5:] >= 0.5)[0]]


@pytest.mark.slow
@settings(deadline=None, max_examples=12, derandomize=True)
@given(
    st.sampled_from([{}, {"tokens": 3}, SOFTMAX, {"output": "hermite2"}, {"output": "hermite3"}]),
    st.floats(0.3, 3.0),
    st.floats(0.05, 1.5),
    st.lists(st.floats(0.0, 2.0), min_size=1, max_size=4).filter(lambda values: max(values) > 0.1),
)
def test_the_loss_of_a_flow_never_grows(
    given: dict[str, Any], width: float, scale: float, eigenvalues: list[float]
) -> None:
    # Known defect: in narrow factors, strong targets of a cubic output stop the solver with a ValueError.
    assume(given.get("output") != "hermite3" or max(eigenvalues) < 1.5)
    problem = Problem(target=Target.discrete(eigenvalues), **given)
    path = trajectory(problem, Schedule(np.geomspace(1e-4, 0.3, 20), width=width, scale=scale))
    assert np.diff(path.prediction_error).max() <= 1e-6 * path.prediction_error[0]


def test_tokens_only_rescale_the_time_of_plain_scores() -> None:
    single_token = trajectory(Problem(), Schedule([0.03, 0.3], decay=1.0))
    three = trajectory(Problem(tokens=3), Schedule([0.005, 0.05], decay=6.0))
    assert three.norm == pytest.approx(single_token.norm, abs=1e-8)
    assert three.overlap == pytest.approx(single_token.overlap, abs=1e-8)


def test_the_state_at_time_zero_is_the_start() -> None:
    x, p = target_nodes(Target.marchenko_pastur(0.5))
    (state,) = flow(TiedStart(x, p, 0.7, 2.0), lambda q, m: (2.0, -2.0), 0.0, np.array([0.0]))
    assert (state.t, state.q) == pytest.approx((0.7, 0.7**2 * 1.5), abs=1e-12)


@pytest.mark.parametrize(("exponent", "slope"), [(0.75, 0.77), (1.0, 1.15), (1.5, 1.54)])
def test_modes_of_a_power_law_are_learned_in_order(exponent: float, slope: float) -> None:
    """From an orthogonal start each mode is logistic; E falls as tau^-(2 - 1/gamma) up to logarithms.

    The slopes are those of another program, measured in tau 0.005 to 0.03, where they wander by 0.03.
    """
    target = Target.power_law(exponent, 100_000)
    problem = Problem(target=target)
    x = target.quantiles(100_000)
    modes = x / (1 + (x / 0.01 - 1) * np.exp(-16 * x * 0.01))
    orthogonal_path = trajectory(problem, Schedule([0.01], scale=0.01, width=np.inf))
    assert orthogonal_path.estimation_error[1] == pytest.approx(float(np.mean((modes - x) ** 2)), rel=1e-5)
    times = np.geomspace(0.005, 0.03, 12)
    path = trajectory(problem, Schedule(times, scale=0.01))
    fitted = np.polyfit(np.log(times), np.log(path.estimation_error[1:]), 1)[0]
    assert -fitted == pytest.approx(slope, abs=0.03)
