"""The training run of the shipped decoder, cut short: it is monitored from its first to its last step."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from attnlaw import audit
from attnlaw.training import SpectralMonitor
from attnlaw.training.decoder import build_decoder

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.slow
def test_the_example_measures_its_first_and_its_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("train_tiny")
    text = np.random.default_rng(0).integers(0, 256, 2000).astype(np.uint8)
    torch.manual_seed(0)
    model = build_decoder()
    monitor = SpectralMonitor(model, tmp_path / "spectra", every=example.MEASURE_EVERY)
    curve = example.train(model, text, text[: 129 * 2].reshape(2, 129), steps=2, seed=0, monitor=monitor)
    rows = pl.read_parquet(tmp_path / "spectra" / "steps.parquet")
    assert rows["step"].to_list() == [0, curve[-1]["step"]] == [0, 2]
    model.save_pretrained(tmp_path / "saved")
    proxy = audit(tmp_path / "saved").summary["proxies"]["spectrum_adaptive"]["log10"]
    assert rows["log10_spectrum_adaptive"][-1] == proxy != rows["log10_spectrum_adaptive"][0]
