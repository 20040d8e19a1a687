"""The law of a tied student: its start in closed form, eigenvalues of a matrix flow, edges, outliers.

It is not in the table of all laws, because its density is evaluated a little off the line and right to 1e-3.
"""

from __future__ import annotations

import numpy as np
import pytest

from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.trajectory import Trajectory, trajectory
from attnlaw.theory.laws.marchenko_pastur import MarchenkoPastur
from attnlaw.theory.laws.riccati import Riccati
from attnlaw.theory.learn.agreement import spectrum_distance
from attnlaw.theory.learn.problem import Problem, Target

SPIKED = Problem(target=Target.marchenko_pastur(0.5).with_spikes(6.0))
ONE = np.array([1.0])


def student(size: int, width: float, time: float, spike: bool) -> tuple[np.ndarray, np.ndarray]:
    """S and the target's eigenvalues of `dW/dtau = -8 (S - S*) W` (linear, T = 1) from a real start, RK4."""
    target = (SPIKED.target if spike else Target.marchenko_pastur(0.5)).quantiles(size)
    wide = round(width * size)
    W = np.random.default_rng(0).standard_normal((size, wide)) * np.sqrt(0.7 / wide)

    def slope(W: np.ndarray) -> np.ndarray:
        return -8 * (W @ (W.T @ W) - target[:, None] * W)

    steps = 40
    h = time / steps
    for _ in range(steps):
        k1 = slope(W)
        k2 = slope(W + h / 2 * k1)
        k3 = slope(W + h / 2 * k2)
        W = W + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(W + h * k3))
    return W @ W.T, target


@pytest.mark.parametrize("width", [0.4, 1.0, 3.0])
def test_the_start_is_marchenko_pastur(width: float) -> None:
    law = Riccati(ONE, ONE, np.zeros(1), 0.7, width)
    known = MarchenkoPastur(width, 0.7 / np.sqrt(width))  # s G G^T/m'
    assert law.intervals[0] == pytest.approx(known.intervals[0], abs=1e-9)
    assert law.mass_of_atoms == pytest.approx(known.mass_of_atoms)
    z = np.array([0.5 + 0.3j, 3.0 + 1e-3j, -1.0 + 0.1j, 0.5 - 0.3j])
    assert law.stieltjes(z) == pytest.approx(known.stieltjes(z), abs=1e-9)
    for w in (0.2, 0.3 / law.top):
        theta, slope = law.branch(w) or (0.0, 0.0)
        after = (law.branch(w + 1e-6) or (0.0, 0.0))[0]
        assert (after - theta) / 1e-6 == pytest.approx(slope, rel=1e-4)


def path_of_width(width: float) -> Trajectory:
    return trajectory(Problem(), Schedule([0.05], width=width))


@pytest.mark.slow
@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_mass_and_eigenvalues(width: float) -> None:
    """Compare the law, including atoms, with the eigenvalues of a flow at d = 200."""
    law = path_of_width(width).spectrum(0.05)
    assert law.nodes()[1].sum() + law.mass_of_atoms == pytest.approx(1.0, abs=2e-3)
    S, _ = student(200, width, 0.05, spike=False)
    eigenvalues = np.linalg.eigvalsh(S)
    eigenvalues[eigenvalues < 1e-9] = 0.0
    assert spectrum_distance(eigenvalues, law) < 0.03


def test_the_transform_is_that_of_a_matrix() -> None:
    """`Tr (z - S)^-1/d` of a real flow at d = 120, whose bias is of order 1/d."""
    eigenvalues = np.linalg.eigvalsh(student(120, 2.0, 0.05, spike=False)[0])
    z = np.array([0.4 + 0.4j, 2.0 + 0.5j, 4.0 + 0.3j])
    resolvent = np.mean(1 / (z[:, None] - eigenvalues), axis=1)
    assert path_of_width(2.0).spectrum(0.05).stieltjes(z) == pytest.approx(resolvent, abs=2 / 120)


def test_the_density_ends_at_the_edges_of_the_real_branch() -> None:
    law = path_of_width(2.0).spectrum(0.05)
    assert isinstance(law, Riccati)
    low, high = law.intervals[0]
    # A hair above the line the density falls off across an edge by more than a factor of ten.
    near = -law.stieltjes(np.array([0.8 * low, 1.2 * low, 0.97 * high, 1.03 * high]) + 1e-4j).imag
    assert near[0] < 0.1 * near[1]
    assert near[3] < 0.1 * near[2]
    assert law.branch(1 / (1.001 * high)) is not None
    assert law.branch(1 / (0.999 * high)) is None


@pytest.mark.parametrize(
    ("time", "location", "overlap", "edge"), [(0.02, 2.9681, 0.7964, 2.288), (0.05, 5.5078, 0.9894, 3.363)]
)
def test_reference_outliers(time: float, location: float, overlap: float, edge: float) -> None:
    path = trajectory(SPIKED, Schedule([time]))
    (seen,) = path.outliers(time)
    assert (seen.target, seen.location, seen.overlap) == pytest.approx((6.0, location, overlap), abs=5e-5)
    assert path.spectrum(time).support[1] == pytest.approx(edge, abs=5e-4)


@pytest.mark.parametrize(("spike", "time"), [(4.5, 0.01399), (5.0, 0.01071), (6.0, 0.00802), (9.0, 0.00496)])
def test_when_a_spike_leaves_the_bulk(spike: float, time: float) -> None:
    problem = Problem(target=Target.marchenko_pastur(0.5).with_spikes(spike))
    path = trajectory(problem, Schedule([time]))
    assert path.outliers(time - 1e-5) == ()
    assert len(path.outliers(time + 1e-5)) == 1


def test_an_outlier_of_a_matrix() -> None:
    """The top eigenvalue and its overlap at d = 200: a spike's own fluctuations are of order 1/sqrt(d)."""
    S, target = student(200, 1.0, 0.05, spike=True)
    values, vectors = np.linalg.eigh(S)
    (seen,) = trajectory(SPIKED, Schedule([0.05])).outliers(0.05)
    assert target[-1] == 6.0
    assert values[-1] == pytest.approx(seen.location, abs=4 * 0.05)
    assert vectors[-1, -1] ** 2 == pytest.approx(seen.overlap, abs=0.01)


def test_an_orthogonal_start_keeps_the_eigenvectors() -> None:
    path = trajectory(SPIKED, Schedule([0.05], width=np.inf))
    law = path.spectrum(0.05)
    assert law.moment(1) == pytest.approx(path.trace[1], abs=1e-9)
    assert law.moment(2) == pytest.approx(path.norm[1], abs=1e-9)
    # A mode is logistic: S = x / (1 + (x/s - 1) exp(-8 G x tau)) with G = 2.
    known = 6.0 / (1 + (6.0 / 0.7 - 1) * np.exp(-16 * 6.0 * 0.05))
    (seen,) = path.outliers(0.05)
    assert (seen.location, seen.overlap) == pytest.approx((known, 1.0), abs=1e-6)
