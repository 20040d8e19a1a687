"""Audits of real checkpoints against slower computations of the same numbers, those of version 0.2.0.

Heads in stacks are compared with heads one by one, float32 products with float64 products, and random
references that count their values with all of their values.
"""

from __future__ import annotations

import numpy as np
import pytest
from real_checkpoints import Unavailable, fetch_mpnet, real_checkpoint

from attnlaw.analysis.fit.null import LEVEL, Null, null_of_shape, null_of_spectrum, without_round_off
from attnlaw.analysis.fit.null_draws import CountedSpectra, DrawnSpectra
from attnlaw.checkpoints.open import open_model
from attnlaw.spectra import measure as measuring
from attnlaw.spectra.measure import Selection, measure

pytestmark = pytest.mark.slow

CHECKPOINTS = ("minilm", "rxnfp-pretrained", "whisper-tiny.en", "mpnet")
NUMBERS = ("spectral", "frobenius", "nuclear", "norm_21", "stable_rank", "effective_rank", "condition")


@pytest.fixture(scope="module", params=CHECKPOINTS)
def model(request):
    if request.param != "mpnet":
        return open_model(real_checkpoint(request.param))
    try:
        return open_model(fetch_mpnet())
    except Unavailable as error:
        pytest.skip(f"real checkpoint mpnet: {error}")


@pytest.fixture(scope="module")
def spectra(model):
    return measure(model, Selection(), jobs=2)


def test_norms_ranks_and_conditions_are_those_of_single_heads(model, spectra, monkeypatch):
    monkeypatch.setattr(measuring, "LARGEST_STACK", 0)
    slow = measure(model, Selection(), jobs=2)
    for (location, fast), (_, expected) in zip(spectra.leaves(), slow.leaves(), strict=True):
        if fast is None:
            continue
        for name in NUMBERS:
            assert getattr(fast, name) == pytest.approx(getattr(expected, name), rel=1e-12), (location, name)
        assert fast.numerical_rank == expected.numerical_rank, location
        assert (fast.applied is None) == (expected.applied is None)
        if fast.applied is not None:
            ours, theirs = fast.applied, expected.applied
            assert ours.spectral.value == pytest.approx(theirs.spectral.value, rel=1e-12), location
            assert ours.frobenius == pytest.approx(theirs.frobenius, rel=1e-12), location


def test_sums_of_absolute_entries_are_those_of_float64(model, spectra):
    layer = model.layers[0]
    for kind in ("qk", "vo"):
        heads = getattr(spectra.layers[0].attention, kind)
        for (left, right), spectrum in zip(layer.attention.factors(model, kind), heads, strict=True):
            product = left.astype(np.float64) @ right.astype(np.float64)
            assert spectrum.norm_11 == pytest.approx(np.abs(product).sum(), rel=1e-8)


def test_random_references_are_those_of_all_their_values(spectra):
    changed, crossed, tested = [], [], 0
    exact: dict[Null, Null] = {}
    for location, spectrum in spectra.leaves():
        null = None if spectrum is None else null_of_spectrum(spectrum)
        if null is None or not isinstance(null.sample, CountedSpectra):
            continue
        tested += 1
        reference = exact.setdefault(null, Null(DrawnSpectra(null.sample.values), null.law))
        values = without_round_off(spectrum)
        ours, theirs = null.compare(values), reference.compare(values)
        assert ours.edge == pytest.approx(theirs.edge, rel=1e-4)
        assert ours.scale == pytest.approx(theirs.scale, rel=1e-4)
        assert null.edge_scale == pytest.approx(reference.edge_scale, rel=1e-4)
        assert abs(ours.outliers - theirs.outliers) <= 1
        changed += [location] if ours.outliers != theirs.outliers else []
        crossed += [location] if (ours.p_value <= LEVEL) != (theirs.p_value <= LEVEL) else []
    assert tested
    assert len(changed) <= tested / 100
    assert crossed == []  # matrices that another statistic judges differently


def test_the_level_is_that_of_the_test():
    """1% of Gaussian matrices are rejected at level 0.01, each with draws of its own seed."""
    rng = np.random.default_rng(0)
    rejected = 0
    shapes = [(130, 130, None), (140, 300, None), (48, 48, 8)]
    for trial in range(1000):
        rows, cols, inner = shapes[trial % 3]
        null = null_of_shape(rows, cols, inner, seed=1000 + trial)
        assert isinstance(null.sample, CountedSpectra) == (inner is None)
        if inner is None:
            matrix = rng.standard_normal((rows, cols))
        else:
            matrix = rng.standard_normal((rows, inner)) @ rng.standard_normal((inner, cols))
        values = np.linalg.svd(matrix, compute_uv=False)[:inner]
        rejected += null.compare(values).p_value <= LEVEL
    assert 1 <= rejected <= 20
