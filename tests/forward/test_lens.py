"""The one call: its record, its JSON and its rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forward.tiny_models import save_tiny

from attnlaw.base.files import to_json
from attnlaw.forward import Lens, lens, linearise
from attnlaw.forward.load import load
from attnlaw.forward.trace import trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-decoder"
IDS = [3, 1, 4]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> tuple[Path, Lens]:
    folder = save_tiny("bert", tmp_path_factory.mktemp("bert"))
    return folder, linearise(folder, IDS, top=4)


def test_record_holds_what_its_parts_give(tiny):
    folder, found = tiny
    passed = trace(*load(folder), IDS)
    matrix = passed.operator.dense()
    rebuilt = matrix @ passed.states.ravel(order="F") + passed.operator.offset
    error = np.linalg.norm(rebuilt - passed.output.ravel(order="F")) / np.linalg.norm(passed.output)
    assert found.reconstruction_error < 1e-12
    assert error < 1e-12
    assert found.status == "exact"
    assert (found.family, found.layers, found.ids, found.model) == ("bert", 2, (3, 1, 4), str(folder))
    share = np.linalg.norm(passed.output.ravel(order="F") - matrix @ passed.states.ravel(order="F"))
    assert found.offset_share == pytest.approx(share / np.linalg.norm(passed.output), rel=1e-10)
    expected = np.linalg.svd(matrix, compute_uv=False)[:4]
    np.testing.assert_allclose(found.singular_values.values, expected, rtol=1e-10)
    # The squared norms of all blocks add up to that of T.
    assert (found.token_map.norms**2).sum() == pytest.approx(np.linalg.norm(matrix) ** 2, rel=1e-12)


def test_plain_values_and_rows(tiny):
    _, found = tiny
    plain = found.describe()
    assert to_json(plain)
    assert plain["token_map"]["norms"][1][2] == found.token_map.norms[1, 2]
    assert plain["singular_values"]["values"] == list(found.singular_values.values)
    rows = found.rows()
    assert len(rows) == 9
    assert rows[5] == {
        "output": 1,
        "output_id": 1,
        "input": 2,
        "input_id": 4,
        "norm": found.token_map.norms[1, 2],
        "error": 0.0,
        "share": found.token_map.shares[1, 2],
        "rollout": found.rollout[1, 2],
    }


def test_missing_singular_values_are_null(tiny):
    _, found = tiny
    nothing = replace(found.singular_values, values=None, residual=None)
    assert replace(found, singular_values=nothing).describe()["singular_values"]["values"] is None


def test_a_pass_that_is_not_rebuilt_says_so(tiny, monkeypatch):
    folder, _ = tiny
    monkeypatch.setattr(lens, "TOLERANCE", 0.0)
    assert "do not read the map" in linearise(folder, IDS).status


def test_shipped_decoder():
    found = linearise(EXAMPLE, list(b"law"), top=3)
    assert found.reconstruction_error < 1e-10
    assert not found.token_map.norms[np.triu_indices(3, k=1)].any()
    assert found.singular_values.residual < 1e-12
