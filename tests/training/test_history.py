"""What a monitor tells of heads since a run began: imbalance, means, modes beyond the bulk, their order."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from attnlaw.core.quantity import column_kinds
from attnlaw.core.tables import to_schema
from attnlaw.training import SpectralMonitor
from attnlaw.training.monitor.columns import STEP_MODES
from attnlaw.training.monitor.history import ModeTracker, stronger_first, top_singular_vectors

SIZE, HEADS = 32, 2
Key = tuple[str]
A: Key = ("a",)


class Encoder(torch.nn.Module):
    """One layer without biases, whose scores alone are trained: a loss of the product of its factors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(SIZE, HEADS, 64, batch_first=True, bias=False)
        self.encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    @property
    def weight(self) -> torch.nn.Parameter:
        return self.encoder.layers[0].self_attn.in_proj_weight

    def factors(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """W_Q and W_K of each head, N x d."""
        query, key, _ = self.weight.chunk(3)
        return [(q.T, k.T) for q, k in zip(query.chunk(HEADS), key.chunk(HEADS), strict=True)]


def target(values: list[float]) -> torch.Tensor:
    """A matrix of these singular values."""
    rng = np.random.default_rng(7)
    u, v = (np.linalg.qr(rng.standard_normal((SIZE, len(values))))[0] for _ in range(2))
    return torch.tensor(u @ np.diag(values) @ v.T, dtype=torch.float32)


def trained(model: Encoder, monitor: SpectralMonitor, steps: range, rate: float, decay: float) -> None:
    """Plain gradient descent of |M - M*|^2/2 for every head, with weight decay on the factors."""
    goal = target([6.0, 4.0, 2.5])
    for step in steps:
        loss = sum(0.5 * (q @ k.T - goal).square().sum() for q, k in model.factors())
        loss = loss + 0.5 * decay * model.weight[: 2 * SIZE].square().sum()
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            model.weight.sub_(rate * model.weight.grad)
        monitor.step(step)


def monitored(model: Encoder, folder: Path, every: int = 4) -> SpectralMonitor:
    options = {"quantities": ("outliers", "factor_imbalance", "means", "modes"), "max_overhead": 1e9}
    return SpectralMonitor(model, folder, every=every, name="toy", **options)


def rows(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(folder / f"{name}.parquet").filter(pl.col("kind") == "qk")


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_gradient_descent_keeps_the_difference_of_the_factors_but_for_decay(
    decay: float, tmp_path: Path
) -> None:
    """`|A^T A - B^T B|` falls as (1 - rate decay)^(2n), up to rate^2 times the residual, a step."""
    model, rate, steps = Encoder(), 0.001, 400
    monitor = monitored(model, tmp_path, every=steps)
    monitor.step(0)
    trained(model, monitor, range(1, steps + 1), rate, decay)
    matrices = rows(tmp_path, "step_matrices").filter(pl.col("step") == steps)
    expected = (1 - rate * decay) ** (2 * steps)
    assert matrices["factor_difference_kept"].to_list() == pytest.approx([expected] * HEADS, rel=0.02)
    # Over the sizes of the factors, which grow: the audit's number falls in any case.
    assert matrices["factor_imbalance_kept"].max() < 0.9 * expected
    row = pl.read_parquet(tmp_path / "steps.parquet").filter(pl.col("step") == steps)
    assert row["factor_difference_kept_qk"][0] == matrices["factor_difference_kept"].median()
    for (q, k), place in zip(model.factors(), matrices.iter_rows(named=True), strict=True):
        with torch.no_grad():
            difference, product = (q.T @ q - k.T @ k).norm().item(), (q @ k.T).double()
        assert place["factor_difference"] == pytest.approx(difference, rel=1e-4)
        assert place["mean"] == pytest.approx(product.trace().item() / SIZE**0.5, rel=1e-4)
        assert place["frobenius"] == pytest.approx(product.norm().item() / SIZE**0.5, rel=1e-4)


@pytest.mark.slow
def test_modes_leave_in_the_order_of_their_strength(tmp_path: Path) -> None:
    model = Encoder()
    monitor = monitored(model, tmp_path)
    monitor.step(0)
    trained(model, monitor, range(1, 201), rate=0.008, decay=0.0)
    modes = rows(tmp_path, "step_modes")
    assert modes.drop("case").schema == to_schema(column_kinds(STEP_MODES))
    counts = dict(rows(tmp_path, "step_matrices").group_by("step").agg(pl.col("outliers").sum()).iter_rows())
    assert dict(modes.group_by("step").len().iter_rows()).items() <= counts.items()
    last = modes.filter(pl.col("step") == 200)
    assert last.height == 3 * HEADS
    for _, head in last.group_by("head"):
        ordered = head.sort("value", descending=True)
        assert ordered["value"].to_list() == pytest.approx([6.0, 4.0, 2.5], rel=0.05)
        assert ordered["mode"].to_list() == [0, 1, 2]
        assert ordered["left_step"].is_sorted()
        assert (head["value"] > head["edge"]).all()
    row = pl.read_parquet(tmp_path / "steps.parquet").filter(pl.col("step") == 200)
    assert row["stronger_first_qk"][0] == 1.0
    assert row["stronger_first_p_qk"][0] == pytest.approx(1 / 36, abs=4 * (1 / 36 / 999) ** 0.5)
    assert row["stronger_first_vo"][0] is None


@pytest.mark.slow
def test_a_resumed_run_keeps_its_start_and_its_modes(tmp_path: Path) -> None:
    whole, parts = Encoder(), Encoder()
    for folder, model, pieces in ((tmp_path / "w", whole, [48]), (tmp_path / "p", parts, [24, 48])):
        first = monitored(model, folder)
        first.step(0)
        start = 1
        for end in pieces:
            trained(model, monitored(model, folder) if start > 1 else first, range(start, end + 1), 0.008, 0)
            start = end + 1
    for name in ("step_matrices", "step_modes"):
        table, other = (rows(tmp_path / part, name) for part in ("w", "p"))
        assert table.equals(other)


def test_modes_are_followed_by_their_directions_not_their_ranks() -> None:
    tracker, eye = ModeTracker(), np.eye(6)
    tracker.follow(0, {A: (np.empty(0), eye[:, :0], eye[:, :0])})
    tracker.follow(10, {A: (np.array([3.0]), eye[:, :1], eye[:, :1])})
    # Another direction is the larger one now, the first has turned a little.
    turned = np.stack([eye[1], (0.9 * eye[0] + 0.436 * eye[2])], axis=1)
    modes = tracker.follow(20, {A: (np.array([5.0, 3.5]), turned, turned)})[A]
    assert [(mode.number, mode.left_step) for mode in modes] == [(1, 20), (0, 10)]
    # Back in the bulk, then out again: another mode.
    tracker.follow(30, {A: (np.array([5.0]), turned[:, :1], turned[:, :1])})
    again = tracker.follow(40, {A: (np.array([5.0, 3.5]), turned, turned)})[A]
    assert [(mode.number, mode.left_step) for mode in again] == [(1, 20), (2, 40)]


def test_what_stands_out_at_the_start_left_at_no_known_step() -> None:
    eye = np.eye(3)
    modes = ModeTracker().follow(0, {A: (np.array([2.0]), eye[:, :1], eye[:, :1])})
    assert modes[A][0].left_step is None


def test_directions_are_those_of_the_product() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((9, 4)), rng.standard_normal((4, 7))
    values, u, v = top_singular_vectors(left, right, 2)
    assert left @ right @ v == pytest.approx(u * values)
    assert values == pytest.approx(np.linalg.svd(left @ right, compute_uv=False)[:2])


def test_the_order_by_counting_every_shuffle() -> None:
    heads = [([5.0, 4.0, 3.0, 1.0], [10, 30, 20, 40]), ([2.0, 1.0, 0.5], [20, 10, 40])]
    order = stronger_first(heads)

    def score(steps: tuple[tuple[int, ...], ...]) -> int:
        return sum(
            int(np.sign(head_steps[j] - head_steps[i]))
            for (sizes, _), head_steps in zip(heads, steps, strict=True)
            for i, j in itertools.combinations(range(len(sizes)), 2)
        )

    assert order is not None
    assert order.pairs == 9
    observed = score(tuple(tuple(steps) for _, steps in heads))
    assert order.tau == pytest.approx(observed / 9)
    every = [score(both) for both in itertools.product(*(itertools.permutations(s) for _, s in heads))]
    exact = float(np.mean(np.array(every) >= observed))
    assert order.p_value == pytest.approx(exact, abs=4 * (exact / 999) ** 0.5)
    assert stronger_first([([1.0, 2.0], [5, 5]), ([3.0], [1])]) is None
