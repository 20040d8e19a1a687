"""Margins, condition and amplification of real models: published values."""

from __future__ import annotations

import codecs
import contextlib
import io
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from analysis.forward.reactions import reactions
from checkpoints.forward_pass import require_transformers
from real_checkpoints import real_checkpoint

from attnlaw.analysis.forward.amplification import amplification
from attnlaw.analysis.forward.condition import condition
from attnlaw.analysis.forward.load import load_classifier
from attnlaw.analysis.forward.margins import measure_margins
from attnlaw.analysis.forward.scales import log10_worst_case
from attnlaw.checkpoints.open import open_model
from attnlaw.spectra.measure import Selection, measure

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny-decoder"


def windows() -> list[list[int]]:
    """35 windows of 24 bytes of Python's `this`, end to end."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    text = codecs.decode(this.s, "rot13").encode()
    return [list(text[24 * i : 24 * i + 24]) for i in range(35)]


@pytest.mark.slow
def test_the_shipped_decoder():
    margins = measure_margins(EXAMPLE, windows())
    assert margins.spread == pytest.approx(1.152306312, rel=1e-9)
    assert margins.median.value == pytest.approx(0.006517495, rel=1e-6)
    assert margins.mean_log.value == pytest.approx(-5.292800, abs=1e-6)
    assert margins.mean_log.error == pytest.approx(0.28, abs=0.0051)
    assert "not been validated for causal language models" in margins.remark
    where = condition(EXAMPLE, windows())
    assert where.worst_place == "lm_head"
    assert where.total == pytest.approx(8861.65, abs=0.01)
    rows = amplification(EXAMPLE, windows()[:12], tolerance=1e-9).rows
    # Residuals are below 1e-5 there, so the rounding of the published values is what is left.
    assert max(row.residual for row in rows) < 1e-5
    np.testing.assert_allclose([row.median for row in rows], [610.22, 32.11, 29.13, 28.26], atol=0.0051)
    assert measure_margins(EXAMPLE, windows(), positions="sample").rows[0].position in range(12, 24)


def test_the_shipped_decoder_before_training():
    require_transformers("5.22", "these fresh weights at seed 0")
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config.from_pretrained(EXAMPLE))
    assert measure_margins(model, windows()).median.value == pytest.approx(0.0420, abs=5.1e-5)
    assert condition(model, windows()).total == pytest.approx(534, abs=0.51)


@pytest.mark.long
def test_all_windows_of_the_shipped_decoder():
    rows = amplification(EXAMPLE, windows(), tolerance=1e-9).rows
    assert max(row.residual for row in rows) < 1e-5
    np.testing.assert_allclose([row.median for row in rows], [576.85, 28.40, 26.51, 26.49], atol=0.0051)


@pytest.mark.long
def test_rxnfp_on_reactions():
    folder = real_checkpoint("rxnfp-10k")
    inputs = reactions(folder)
    assert (len(inputs), sum(map(len, inputs))) == (32, 1451)
    margins = measure_margins(folder, inputs)
    assert margins.classes == 50
    assert margins.spread == pytest.approx(8.898759810, rel=1e-9)
    assert margins.median.value == pytest.approx(3.687666, abs=1e-6)
    assert (margins.mean_log.value, margins.mean_log.error) == pytest.approx((0.911016, 0.2412), abs=6e-5)
    assert margins.mean == pytest.approx(3.810324, abs=1e-6)
    assert margins.confidence == pytest.approx(0.9894, abs=5e-5)
    values = [row.distance for row in margins.rows]
    assert (*values[:2], min(values)) == pytest.approx((3.5971, 2.8233, 0.0108), abs=5.1e-5)
    assert values.index(min(values)) + 1 == 9  # reactions are counted from 1
    assert np.median([row.margin for row in margins.rows]) == pytest.approx(11.583467, abs=1e-6)
    smooth = measure_margins(folder, inputs, margin="smooth")
    assert smooth.median.value == pytest.approx(9.122643, abs=1e-6)


@pytest.mark.long
def test_where_rxnfp_could_lose_its_margins():
    folder = real_checkpoint("rxnfp-10k")
    where = condition(folder, reactions(folder))
    assert (len(where.rows), where.total) == (74, pytest.approx(183.5793, abs=1e-4))
    assert where.worst_place == "layer 11"
    layers = [3.0, 4.5, 6.6, 7.8, 9.3, 13.9, 15.7, 16.4, 19.8, 23.7, 26.7, 35.6]
    np.testing.assert_allclose(where.by_layer, layers, atol=0.051)
    kinds = [10.0, 18.1, 19.0, 17.0, 78.7, 36.7, 1.5, 3.7]
    np.testing.assert_allclose(list(where.by_kind.values()), kinds, atol=0.051)


@pytest.mark.long
def test_rxnfp_amplifies_little():
    folder = real_checkpoint("rxnfp-10k")
    growth = amplification(folder, reactions(folder))
    published = [0.175, 0.215, 0.310, 0.373, 0.364, 0.533, 0.712, 0.760, 0.848, 0.950, 0.929, 0.981]
    np.testing.assert_allclose([row.median for row in growth.rows], published, atol=0.00051)
    largest = [row.max for row in growth.rows]
    assert min(largest) == pytest.approx(6.7, abs=0.051)
    assert max(largest) == pytest.approx(39, abs=0.51)


@pytest.mark.long
def test_the_worst_case_of_rxnfp_is_far_from_what_its_tokens_do():
    """All tokens of the last block, for four reactions at three blocks; published to 0.3 %."""
    folder = real_checkpoint("rxnfp-10k")
    model = load_classifier(folder)[1]
    blocks = [model.bert.encoder.layer[layer] for layer in (0, 6, 11)]
    inputs = [reactions(folder)[number - 1] for number in (1, 4, 9, 15)]  # counted from 1
    growth = amplification(model, inputs, "tokens", blocks=blocks)
    published = [[2.03, 2.85, 8.40, 3.02], [9.40, 12.0, 32.2, 11.4], [5.62, 5.85, 12.4, 9.01]]
    for row, expected in zip(growth.rows, published, strict=True):
        np.testing.assert_allclose(row.values, expected, rtol=0.003 + 0.005 / 2.03)
    worst = log10_worst_case(measure(open_model(folder), Selection()))
    published_worst = [37.35, 34.11, 30.95, 27.64, 24.43, 21.16, 18.15, 15.19, 12.21, 9.31, 6.28, 3.23]
    np.testing.assert_allclose(worst, published_worst, atol=0.0051)
    for row, beyond, (low, high) in zip(growth.rows[::2], worst[::11], [(36, 37.1), (2, 2.5)], strict=True):
        orders = beyond - np.log10(row.values)
        assert low < orders.min() <= orders.max() < high
