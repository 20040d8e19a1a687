"""What the gate says of real checkpoints: sound ones pass in every format, and damaged ones are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from analysis.findings.planted import KINDS
from real_checkpoints import NAMES, real_checkpoint

import attnlaw
from attnlaw.analysis.audit.audit import model_findings
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.tensors import InMemoryTensors

pytestmark = pytest.mark.slow

# Warnings on sound models: one that was decoded from 4 bits is coarse, and the gate passes it.
WARNED = {"smollm2": {"coarse-grid"}}


@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", [*NAMES, "tiny-decoder"])
def test_sound_models_pass_in_every_format(name: str, stored: type) -> None:
    model = open_model(Path("examples") / name if name == "tiny-decoder" else real_checkpoint(name))
    arrays = {tensor: np.asarray(model.tensors.read(tensor)) for tensor in model.tensors.shapes}
    copied = {
        tensor: array.astype(stored) if array.dtype.kind in "fV" else array
        for tensor, array in arrays.items()
    }
    findings = model_findings(replace(model, tensors=InMemoryTensors(copied)))
    assert {finding.rule for finding in findings if finding.level == "error"} == set()
    warned = [finding.rule for finding in findings if finding.level == "warning"]
    assert sorted(warned) == sorted(WARNED.get(name, ()))


@pytest.mark.parametrize("kind", KINDS)
def test_planted_damage_is_found_as_the_table_says(kind: str, tmp_path: Path) -> None:
    real_checkpoint("rxnfp-pretrained")
    gate = attnlaw.check(KINDS[kind].write(tmp_path / "damaged"), jobs=1)
    rules = set(gate.findings["rule"])
    assert set(KINDS[kind].rules) <= rules
    if not KINDS[kind].rules:
        assert rules == set()
    page = Path("docs/theory/trust.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    (found,) = [cells[1] for cells in rows if kind in cells[0].removeprefix("| ").split("; ")]
    assert all(f"`{rule}`" in found for rule in KINDS[kind].rules)
    assert ("not found" in found) == (not rules)
