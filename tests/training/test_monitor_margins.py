"""Margins as a quantity of the monitor: values, spacing and cost, what is told, an undisturbed training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from attnlaw.analysis.forward.margins import measure_margins
from attnlaw.core.errors import InputError
from attnlaw.report import write_report
from attnlaw.training import SpectralMonitor

INPUTS = torch.randn(40, 5, 16, generator=torch.manual_seed(1))


class Clock:
    """One clock for a module and its copies."""

    now = 0.0

    def __deepcopy__(self, memo: Any) -> Clock:
        return self

    def __call__(self) -> float:
        return self.now


class Classifier(torch.nn.Module):
    """A small classifier; reading its state dict and running it take the seconds they are told."""

    def __init__(self, spectra: float = 0.0, pass_: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.5, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, 3)
        self.clock, self.spectra, self.pass_ = Clock(), spectra, pass_

    def state_dict(self, *args: Any, **options: Any) -> Any:
        self.clock.now += self.spectra
        return super().state_dict(*args, **options)

    def forward(self, x: Any) -> Any:
        self.clock.now += self.pass_
        return self.head(self.encoder(x).mean(dim=1))


def watch(model: Classifier, folder: Path, **options: Any) -> SpectralMonitor:
    chosen = {"every": 2, "quantities": ["stable_rank"], "max_overhead": 1e9, "clock": model.clock}
    return SpectralMonitor(model, folder, **{**chosen, "margins": (INPUTS, 4), **options})


def train(model: Classifier, monitor: SpectralMonitor | None, steps: int) -> None:
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        if monitor is not None:
            monitor.step(step)
        model(INPUTS[:8]).logsumexp(dim=1).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.clock.now += 1.0


def test_values_are_those_of_the_function_at_due_steps(tmp_path: Path) -> None:
    model = Classifier()
    monitor = watch(model, tmp_path)
    train(model, monitor, 7)
    expected = measure_margins(model, INPUTS)
    row = monitor.measure(7).row  # on demand it is always there
    assert row["margins_mean_log"] == pytest.approx(expected.mean_log.value, rel=1e-12)
    assert row["margins_mean_log_error"] == pytest.approx(expected.mean_log.error, rel=1e-12)
    assert row["margins_median"] == pytest.approx(expected.median.value, rel=1e-12)
    rows = pl.read_parquet(tmp_path / "steps.parquet")
    known = rows.filter(pl.col("margins_mean_log").is_not_null())
    assert rows["step"].to_list() == [0, 2, 4, 6, 7]
    assert known["step"].to_list() == [0, 4, 7]
    page = write_report([tmp_path]).read_text(encoding="utf-8")
    assert "mean over the given inputs of log D, for the relative margin D" in page


def test_training_is_the_same_to_the_bit(tmp_path: Path) -> None:
    alone, watched = Classifier(), Classifier()
    train(alone, None, 6)
    train(watched, watch(watched, tmp_path), 6)
    assert watched.training
    for parameter, other in zip(alone.parameters(), watched.parameters(), strict=True):
        assert torch.equal(parameter, other)


@pytest.mark.slow
def test_dear_margins_wait_and_spectra_do_not(tmp_path: Path) -> None:
    """Forwards of margins take 8 seconds (one tries the model, one measures), spectra none.

    A quarter of the time: the n-th measurement can be afforded once 8 n + 2 <= T / 4, T = 32 n + 8.
    """
    model = Classifier(pass_=4.0)
    monitor = watch(model, tmp_path, max_overhead=0.25)
    for step in range(111):
        monitor.step(step)
        model.clock.now += 1.0
    rows = pl.read_parquet(tmp_path / "steps.parquet")
    assert rows["step"].to_list() == [0, *range(32, 111, 2)]
    assert rows.filter(pl.col("margins_mean_log").is_not_null())["step"].to_list() == [0, 72, 104]


def test_a_model_that_diverged_has_no_margins_and_says_so(tmp_path: Path) -> None:
    model = Classifier()
    monitor = watch(model, tmp_path)
    with torch.no_grad():
        model.head.bias[0] = torch.inf
    row = monitor.step(0).row
    assert row.get("margins_mean_log") is None
    assert "no margins: Classifier: the logits of input 0 (from 0) are not finite" in row["remark"]
    assert row["status"] == "done"


@pytest.mark.parametrize(
    ("margins", "message"),
    [
        (INPUTS, "margins: found 'Tensor', expected inputs and a number of steps, such as"),
        ((INPUTS, 3), "margins: found 3, expected a multiple of the monitor's every 2"),
        ((INPUTS, 0), "margins: found 0, expected a whole number of at least 1"),
        ((INPUTS[:5], 4), "inputs: found 5, expected at least 12; give more, ideally 200"),
    ],
)
def test_mistakes_show_before_training(tmp_path: Path, margins: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        watch(Classifier(), tmp_path, margins=margins)
