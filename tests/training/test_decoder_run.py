"""The training run that ships as a study: its rows, and the theory's picture beside them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnlaw.core.progress import no_progress
from attnlaw.core.result import collect_tables
from attnlaw.training.decoder import SPIKES, TIMES, _values, build_decoder, build_seeded_decoder, theory_rows
from attnlaw.verbs import find_verb


@pytest.mark.slow
def test_spikes_leave_the_theorys_bulk_stronger_first() -> None:
    """At the times of the reference values: 4.5, 5, 6, 9 at .01399, .01071, .00802, .00496."""
    _, spikes = theory_rows()
    left = {row["target"]: row["left_time"] for row in spikes}
    assert list(left) == sorted(SPIKES, reverse=True)
    for spike, known in {4.5: 0.01399, 5.0: 0.01071, 6.0: 0.00802, 9.0: 0.00496}.items():
        assert left[spike] == pytest.approx(TIMES[np.searchsorted(TIMES, known)])
    last = [row["strength"] for row in spikes if row["time"] == max(row["time"] for row in spikes)]
    assert last == sorted(last, reverse=True)
    assert min(row["strength"] for row in spikes) > 1


@pytest.mark.slow
def test_a_short_run_has_all_rows_and_leaves_no_trace() -> None:
    verb = find_verb("decoder")
    (case,) = verb.cases({"steps": 3, "every": 2, "seed": 1})
    before = torch.get_rng_state()
    (run,) = verb.run([case], no_progress)
    assert torch.equal(torch.get_rng_state(), before)
    row = verb.row(case, run)
    assert list(row) == list(verb.schema)
    assert row["held_out_loss"] == pytest.approx(np.log(256), rel=0.1)
    assert run.steps["step"].to_list() == [0, 2, 3]
    values, modes, bulk, densities, _ = collect_tables(verb, [run]).values()
    assert values.group_by("step").len().sort("step").rows() == [(step, 2 * 16 * 32) for step in (0, 2, 3)]
    assert (modes["strength"] > 1).all()
    for table, x in (
        (bulk, "strength"),
        (densities.filter(densities["time"] == densities["time"][0]), "strength"),
    ):
        mass = np.trapezoid(table["density"].to_numpy(), table[x].to_numpy())
        assert mass == pytest.approx(1.0, abs=0.1)  # the theory's peak at zero is cut


def test_values_are_those_of_the_products() -> None:
    model = build_seeded_decoder(0)
    block = model.transformer.h[2].attn.c_attn.weight.detach().double().numpy()
    query, key = block[:, 32:64], block[:, 128 + 32 : 128 + 64]
    strengths = [
        row["strength"]
        for row in _values(model, 0)
        if (row["layer"], row["head"], row["kind"]) == (2, 1, "qk")
    ]
    known = np.linalg.svd(query @ key.T, compute_uv=False)[:32]
    assert np.array(strengths) / strengths[0] == pytest.approx(known / known[0], rel=1e-9)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert torch.equal(build_decoder().transformer.wte.weight, model.transformer.wte.weight)
