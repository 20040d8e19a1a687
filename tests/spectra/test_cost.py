"""Counts of operations against counts by hand, and the expected time of a measurement."""

from __future__ import annotations

import logging

import pytest

from attnlaw.checkpoints.open import open_model
from attnlaw.spectra.cost import matrix_operations, operations_per_second, product_operations
from attnlaw.spectra.measure import Selection, expected_seconds, log_expected_time


def test_counts_by_hand() -> None:
    # A Gram matrix of side 2 over 5 columns, and 4.4 * 2^3 for its eigenvalues.
    assert matrix_operations(2, 5, False) == matrix_operations(5, 2, False) == 2 * 2 * 5 + 4.4 * 8
    assert matrix_operations(2, 5, False, single=True) == 0.55 * (2 * 2 * 5 + 4.4 * 8)
    # Six products with 64 columns, forty with 17 at 4.6 times the price; each is two products of 2 n m.
    assert matrix_operations(100, 200, True) == 4 * 100 * 200 * (6 * 64 + 4.6 * 40 * 17)
    # All entries of a 2 x 5 product through 3, and two triangular factors, twice.
    assert product_operations(2, 3, 5) == 2 * 2 * 3 * 5 + 2 * 4 * 9 * (2 + 5)
    # Of a large one 32 columns are formed.
    assert product_operations(200, 3, 500, every=False) == 2 * 200 * 3 * 32 + 2 * 4 * 9 * (200 + 500)


def test_expected_time_of_the_shipped_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 heads of size 32 in width 128, for QK and VO; feed-forward 128 x 512 and back; one layer or four."""
    monkeypatch.setattr("attnlaw.spectra.measure.operations_per_second", lambda: 1e9)
    model = open_model("examples/tiny-decoder")
    layer = 2 * 4 * product_operations(128, 32, 128) + 2 * matrix_operations(128, 512, False)
    assert expected_seconds(model, Selection(layers=range(1)), jobs=1) == pytest.approx(layer / 1e9)
    assert expected_seconds(model, Selection(), jobs=2) == pytest.approx(4 * layer / 1e9 / 2)


def test_a_long_measurement_is_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seconds up to two minutes, minutes above; what takes no longer than a breath is not spoken of."""
    model = open_model("examples/tiny-decoder")
    with caplog.at_level(logging.INFO, "attnlaw"):
        for seconds in (19.0, 61.0, 600.0):
            monkeypatch.setattr("attnlaw.spectra.measure.expected_seconds", lambda *_, s=seconds: s)
            log_expected_time(model, Selection())
    assert [line.split(" (")[0] for line in caplog.messages] == [
        "expected time: about 61 s",
        "expected time: about 10 min",
    ]


def test_the_rate_is_measured() -> None:
    assert operations_per_second() > 1e7
