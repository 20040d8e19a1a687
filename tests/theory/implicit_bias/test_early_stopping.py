"""The flow of small factors: closed form against integration, descent and limits; its spiked matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from theory.regression.agree import holds, z_score

from attnlaw.core.errors import InputError
from attnlaw.numerics.draws import mean_of
from attnlaw.theory.implicit_bias.early_stopping import (
    descend,
    flow_at_threshold,
    flow_at_time,
    hard,
    stopping_time,
)


def matrix_flow_at_time(phi: np.ndarray, init: float, time: float) -> np.ndarray:
    """Return W W^T - V V^T at a time of the flow from W = V = init I, for a symmetric target phi (d x d)."""
    values, vectors = np.linalg.eigh(np.asarray(phi, dtype=float))
    return np.asarray((vectors * flow_at_time(values, init, time)) @ vectors.T)


def spike_cost(spikes: np.typing.ArrayLike, noise: float) -> float:
    """Return the squared error |hard(phi) - B|_F^2 for a matrix B in noise, at large dimension d.

    Here phi is B plus symmetric Gaussian noise with off-diagonal variance delta^2/d, and B has the
    eigenvalues `spikes`. The error is `sum 2 delta^2 + 3 delta^4/theta^2` over the spikes theta (not in the
    paper), if all spikes are kept and nothing of the bulk on [-2 delta, 2 delta] is.
    """
    theta, square = np.abs(np.asarray(spikes, dtype=float)), noise**2
    return float(np.sum(2 * square + 3 * square**2 / theta**2))


# a = 0.001, phi = 0.7: beta at four times, to the digits that were derived.
REFERENCE = {1.0: 0.000270319047, 2.0: 0.066213201459, 2.5: 0.442458734510, 3.0: 0.676070081449}


@pytest.mark.parametrize(("time", "beta"), REFERENCE.items())
def test_reference_values(time: float, beta: float) -> None:
    assert float(flow_at_time(0.7, 1e-3, time)) == pytest.approx(beta, abs=1e-11)


@pytest.mark.parametrize(("phi", "a"), [(0.7, 1e-3), (-0.4, 0.05), (1e-3, 0.5), (0.0, 0.1)])
def test_the_closed_form_is_the_integrated_flow(phi: float, a: float) -> None:
    def slope(_: float, state: np.ndarray) -> np.ndarray:
        w, v = state
        pull = 4 * (phi - (w * w - v * v))
        return np.array([pull * w, -pull * v])

    times = np.array([0.3, 1.0, 2.5, 6.0])
    ended = solve_ivp(slope, (0, 6.0), [a, a], method="DOP853", t_eval=times, rtol=1e-12, atol=1e-16)
    # rtol of the integration, over its steps.
    assert flow_at_time(phi, a, times) == pytest.approx(ended.y[0] ** 2 - ended.y[1] ** 2, abs=1e-9)


def test_late_times_and_small_coefficients_stay_finite() -> None:
    assert flow_at_time([0.7, -0.7], 1e-3, 1e4) == pytest.approx([0.7, -0.7], rel=1e-12)
    # Where phi is small against a^2, beta grows as 8 a^2 phi t.
    assert float(flow_at_time(1e-20, 0.1, 1.0)) == pytest.approx(1e-20 * (1 - np.exp(-16 * 0.01)), rel=1e-3)


def test_a_vanishing_start_is_a_hard_threshold() -> None:
    """The transition has the relative width 1/ln(tau/a^2)."""
    phi = np.array([-0.8, -0.3, 0.2, 0.45, 0.55, 0.9])
    misses = [np.abs(flow_at_threshold(phi, 0.5, a) - hard(phi, 0.5)).max() for a in (1e-4, 1e-20, 1e-60)]
    assert misses[0] > misses[1] > misses[2]
    assert misses[2] < 1e-9
    assert float(flow_at_threshold(0.51, 0.5, 1e-8)) / 0.51 == pytest.approx(0.67, abs=0.005)
    assert float(flow_at_threshold(0.5, 0.5, 1e-8)) == pytest.approx(0.25, rel=1e-12)


def test_descent_tends_to_the_flow_with_its_step() -> None:
    phi, time = np.array([0.7, -0.5, 0.3]), 2.5
    misses = [
        np.abs(descend(phi, 1e-2, time, step) - flow_at_time(phi, 1e-2, time)).max() for step in (4e-3, 2e-3)
    ]
    assert misses[0] / misses[1] == pytest.approx(2, rel=0.05)


def test_factors_of_a_matrix_have_the_flow_of_its_eigenvalues() -> None:
    """W, V by descent, extrapolated in the step, whose error is of first order."""
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((8, 8))
    phi = (phi + phi.T) / 8
    a, time = 1e-2, 4.0

    def trained(steps: int) -> np.ndarray:
        W, V = a * np.eye(8), a * np.eye(8)
        for _ in range(steps):
            G = 4 * time / steps * (phi - W @ W.T + V @ V.T)
            W, V = W + G @ W, V - G @ V
        return W @ W.T - V @ V.T

    coarse, fine = trained(2000), trained(4000)
    moved = np.abs(coarse - fine).max()
    assert 2 * fine - coarse == pytest.approx(matrix_flow_at_time(phi, a, time), abs=0.02 * moved)


def test_the_reference_cost_of_spikes() -> None:
    """Spikes to three digits: their rounding moves the cost by 0.1%."""
    assert spike_cost([0.584, 0.438], 0.0941) == pytest.approx(0.037328, rel=1.1e-3)


@pytest.mark.long
def test_spikes_cost_what_noise_leaves_on_them() -> None:
    """In the limit of three sizes. The first 4800/d draws of these streams fail (z 2.90, 1.37, -0.24)."""
    sizes, delta, family = (100, 200, 400), 0.0941, []
    for place, spikes in enumerate(([0.584, 0.438], [0.8], [0.5])):
        measured = []
        for d in sizes:
            rng, costs = np.random.default_rng([place, d]), []
            B = np.diag(np.append(spikes, np.zeros(d - len(spikes))))
            for _ in range(72_000 // d):
                Z = rng.standard_normal((d, d)) * delta / np.sqrt(2 * d)
                values, vectors = np.linalg.eigh(B + Z + Z.T)
                kept = hard(values, 0.3)
                V = vectors[:, kept != 0]
                costs.append(float((((V * kept[kept != 0]) @ V.T - B) ** 2).sum()))
            measured.append(mean_of(costs))
        family.append(z_score(spike_cost(spikes, delta), sizes, measured))
    assert holds(family), family


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: stopping_time(1e-3, 0.1),
            "threshold 0.001 for a start of 0.1, expected a threshold above 0.0272; choose",
        ),
        (lambda: flow_at_time(1.0, 0.0, 1.0), "init: found 0, expected a number above 0"),
    ],
)
def test_bad_input_is_one_line(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
