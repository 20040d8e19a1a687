"""Penalties: plain formulas, gradients by finite differences, the mode of the prior, decay and floor."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attnlaw.core.errors import InputError
from attnlaw.training.penalties import Penalty, frechet_prior, stable_rank, tail_exponent, weighted_alpha

MEASURES = (tail_exponent, weighted_alpha, stable_rank, frechet_prior)
SHAPES = ((5, 5), (4, 9), (9, 4), (2, 2), (4, 3, 2))


def random_weight(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """A Gaussian weight: its singular values differ with probability one."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def naive(weight: torch.Tensor, shape: float = 1.0) -> dict[str, float]:
    """The definitions in loops, from the eigenvalues of W W^T."""
    matrix = weight.detach().numpy().reshape(weight.shape[0], -1)
    values = sorted(np.linalg.eigvalsh(matrix @ matrix.T), reverse=True)[: min(matrix.shape)]
    k = len(values) // 2
    alpha = 1 + k / sum(math.log(values[i] / values[k]) for i in range(k))
    return {
        "tail_exponent": alpha,
        "weighted_alpha": alpha * math.log(values[0]),
        "stable_rank": (matrix**2).sum() / values[0],
        "frechet_prior": (1 + shape) * math.log(values[0]) + values[0] ** -shape,
    }


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("shape", SHAPES)
def test_measures_are_their_formulas(measure, shape):
    weight = random_weight(shape)
    # The eigenvalues of W W^T carry eps times the squared condition number, below 1e4 for these weights.
    assert np.linalg.cond(weight.detach().numpy().reshape(shape[0], -1)) < 1e2
    assert measure(weight).item() == pytest.approx(naive(weight)[measure.__name__], rel=1e-10)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_agree_with_finite_differences(measure, shape):
    assert torch.autograd.gradcheck(measure, random_weight(shape, seed=1))


def test_rank_is_counted_and_not_taken_from_the_shape():
    full = random_weight((6, 4), seed=2).detach()
    padded = torch.zeros(6, 9, dtype=torch.float64)
    padded[:, :4] = full
    twice = torch.cat([full, full], dim=1) / math.sqrt(2)  # the same singular values, then zeros
    for weight in (padded, twice):
        assert tail_exponent(weight).item() == pytest.approx(tail_exponent(full).item(), rel=1e-12)


def test_the_tail_exponent_is_smooth_at_full_rank_and_jumps_where_the_rank_changes():
    push = 1e-6 * random_weight((8, 7), seed=6).detach()
    full = random_weight((8, 7), seed=5).detach().requires_grad_()
    tail_exponent(full).backward()
    first_order = (full.grad * push).sum().item()
    moved = (tail_exponent(full + push) - tail_exponent(full - push)).item() / 2
    assert moved == pytest.approx(first_order, rel=1e-6)  # a central difference errs by the squared step
    low = full.detach()[:, :3] @ full.detach()[:3]  # of rank 3: k is 1, and 3 once all values count
    assert abs(tail_exponent(low + push) - tail_exponent(low)).item() > 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("measure", MEASURES)
def test_weights_of_16_bits_are_measured_as_they_are(measure, dtype):
    weight = random_weight((160, 140), seed=7).detach().to(dtype).requires_grad_()
    measurement = measure(weight)
    exact = weight.detach().double().requires_grad_()
    expected = measure(exact)
    # Float32 values carry 1e-7 times some; the gradient is rounded to 16 bits once.
    assert measurement.item() == pytest.approx(expected.item(), rel=1e-5)
    measurement.backward()
    expected.backward()
    assert weight.grad.dtype == dtype
    gap = (weight.grad.double() - exact.grad).norm() / exact.grad.norm()
    assert gap < torch.finfo(dtype).eps


def test_tail_exponent_of_an_exact_power_law():
    """Quantiles of a Pareto law of density exponent 3 above 1: Hill's alpha over the upper half is near 3."""
    count = 400
    tail = (np.arange(1, count + 1) - 0.5) / count
    values = torch.tensor(tail ** (-1 / 2.0), dtype=torch.float64)
    # The standard error of Hill's estimate is (alpha - 1)/sqrt(k); midpoints of quantiles stay well inside.
    exponent = tail_exponent(torch.diag(values.sqrt())).item()
    assert abs(exponent - 3) < (3 - 1) / math.sqrt(count / 2)


def test_scale_moves_what_it_should():
    weight = random_weight((6, 6), seed=3)
    assert tail_exponent(3 * weight).item() == pytest.approx(tail_exponent(weight).item(), rel=1e-12)
    assert stable_rank(3 * weight).item() == pytest.approx(stable_rank(weight).item(), rel=1e-12)
    moved = weighted_alpha(3 * weight) - weighted_alpha(weight)
    assert moved.item() == pytest.approx(tail_exponent(weight).item() * math.log(9), rel=1e-12)


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0, 5.0])
def test_frechet_prior_is_least_at_its_mode(shape):
    mode = (shape / (1 + shape)) ** (1 / shape)
    scale = torch.tensor(math.sqrt(mode), dtype=torch.float64, requires_grad=True)
    direction = torch.diag(torch.tensor([1.0, 0.3], dtype=torch.float64))
    least = frechet_prior(scale * direction, shape)
    least.backward()
    assert abs(scale.grad.item()) < 1e-12
    for factor in (0.8, 0.99, 1.01, 1.2):
        assert frechet_prior(factor * scale * direction, shape) > least


def test_frechet_prior_is_minus_a_log_density():
    """exp(-prior) times a integrates to 1 over lambda_1 > 0."""
    from scipy.integrate import quad

    shape = 1.7

    def density(x: float) -> float:
        weight = torch.tensor([[math.sqrt(x)]], dtype=torch.float64)
        return shape * math.exp(-frechet_prior(weight, shape))

    mass, error = quad(density, 1e-3, np.inf)  # exp(-0.001**-1.7) is 0: no mass lies below
    assert mass == pytest.approx(1, abs=10 * error)


def layers(count: int) -> list[torch.nn.Linear]:
    torch.manual_seed(0)
    return [torch.nn.Linear(5, 4, dtype=torch.float64) for _ in range(count)]


def test_penalty_is_the_weighted_sum_over_modules():
    modules = layers(3)
    penalty = Penalty(stable_rank, strength=0.3, decay=0.5, every=4)
    expected = sum(stable_rank(module.weight).item() for module in modules)
    for epoch, strength in ((0, 0.3), (3, 0.3), (4, 0.15), (11, 0.075)):
        assert penalty(modules, epoch).item() == pytest.approx(strength * expected, rel=1e-14)


def test_tensors_are_taken_as_they_are():
    attention = torch.nn.MultiheadAttention(8, 2)
    penalty = Penalty(stable_rank, strength=1.0)
    total = penalty([attention.in_proj_weight, attention.out_proj])
    expected = stable_rank(attention.in_proj_weight) + stable_rank(attention.out_proj.weight)
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    with pytest.raises(InputError, match=r"^found a MultiheadAttention, which has no weight; .* or tensors"):
        penalty([attention])


def test_modules_below_the_floor_are_left_alone():
    low, high = layers(2)
    with torch.no_grad():
        torch.nn.init.eye_(high.weight)  # stable rank 4
        low.weight[1:] *= 1e-3  # stable rank just above 1
    Penalty(stable_rank, strength=1.0, floor=2.0)([low, high]).backward()
    assert low.weight.grad is None or not low.weight.grad.any()
    assert high.weight.grad.any()
    off = Penalty(stable_rank, strength=1.0, floor=100.0)([low, high])
    assert off.item() == 0
    (off + high.weight.sum()).backward()  # a loss without an active penalty still trains


@pytest.mark.parametrize("measure", [weighted_alpha, stable_rank, frechet_prior])
def test_descent_on_a_penalty_lowers_it(measure):
    module = torch.nn.Linear(12, 12, dtype=torch.float64)
    with torch.no_grad():
        module.weight.copy_(random_weight((12, 12), seed=4))
    penalty = Penalty(measure, strength=1.0)
    before = penalty([module]).item()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        penalty([module]).backward()
        optimizer.step()
    assert penalty([module]).item() < before


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.zeros(3, 3), "is zero"),
        (torch.full((3, 3), math.nan), "NaN or infinite"),
        (torch.ones(3), "is not a matrix"),
    ],
)
def test_weights_without_a_spectrum_are_refused(measure, weight, message):
    with pytest.raises(InputError, match=message) as caught:
        measure(weight)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("weight", "message"), [(torch.ones(3, 3), "rank 0 or 1"), (torch.eye(4), "all equal")]
)
def test_weights_without_a_tail_are_refused(weight, message):
    with pytest.raises(InputError, match=message):
        weighted_alpha(weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": -1.0}, "strength: found -1"),
        ({"strength": math.nan}, "strength: found nan"),
        ({"strength": 1.0, "decay": 0.0}, "decay: found 0"),
        ({"strength": 1.0, "decay": 1.5}, "decay: found 1.5"),
        ({"strength": 1.0, "every": 0}, "every: found 0"),
    ],
)
def test_bad_penalties_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Penalty(stable_rank, **options)


def test_no_modules_and_a_bad_shape_are_refused():
    with pytest.raises(InputError, match="no modules"):
        Penalty(stable_rank, strength=1.0)([])
    with pytest.raises(InputError, match="shape: found 0, expected a number above 0"):
        frechet_prior(torch.eye(2), shape=0.0)
