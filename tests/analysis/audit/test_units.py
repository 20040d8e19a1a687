"""An audit in units equals the audit of one process to the bit: rows, spectra, findings, summary, fits."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from analysis.findings.damages import DAMAGES, Weights
from safetensors.numpy import save_file

import attnlaw
from attnlaw.analysis.findings.apply import group_findings
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import InputError
from attnlaw.core.files import to_parquet
from attnlaw.study import run_split as spread
from attnlaw.verbs.audit import VERB, AuditSettings

LAYER = 2


def equal(audit: attnlaw.Result, other: attnlaw.Result) -> bool:
    """Every table to the bit, and the summary."""
    tables, others = audit.tables, other.tables
    assert tables.keys() == others.keys()
    for name, table in tables.items():
        assert to_parquet(table) == to_parquet(others[name]), name
    assert json.dumps(audit.summary) == json.dumps(other.summary)
    return True


def in_units(store: Path, **given: Any) -> attnlaw.Result:
    """The audit of one case whose units were sent, packed and put together again."""
    case = AuditSettings(**given)
    (record,) = spread(VERB, [case], store)
    if isinstance(record, InputError):
        raise record
    return attnlaw.Result.collect(VERB, [(case, record)])


@pytest.fixture(scope="module", name="tiny")
def _tiny(request: pytest.FixtureRequest) -> Path:
    return request.config.rootpath / "examples" / "tiny-decoder"


def saved(model: Model, like: Path, folder: Path) -> Path:
    """A model as a checkpoint, with the config of another."""
    tensors = {name: np.ascontiguousarray(model.tensors.read(name)) for name in model.tensors.shapes}
    save_file(tensors, folder / "model.safetensors")
    shutil.copy(like / "config.json", folder)
    return folder


def test_a_model_in_units_is_the_model(tiny: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"model": str(tiny), "samples": 1000, "name": "tiny"}
    audit = in_units(tmp_path, **given)
    assert equal(audit, attnlaw.audit(**given))
    assert equal(audit.for_saving(), attnlaw.audit(**given).for_saving())
    before = {path: path.stat().st_ino for path in tmp_path.glob("parts/*/*")}
    assert len(before) == 16
    # A choice of matrices, and another name, need nothing that was not measured.
    chosen: dict[str, Any] = {"model": str(tiny), "layers": "1:3", "only": "vo,ffn", "as_stored": True}
    assert equal(in_units(tmp_path, **chosen), attnlaw.audit(**chosen))
    assert {path: path.stat().st_ino for path in tmp_path.glob("parts/*/*")} == before


@pytest.mark.parametrize(
    "name", ["a duplicated layer", "a copied head", "transposed Q", "query x 1000", "an int4 layer"]
)
def test_findings_are_those_of_one_process(name: str, tiny: Path, tmp_path: Path) -> None:
    model = saved(DAMAGES[name](open_model(tiny), LAYER), tiny, tmp_path)
    audit = in_units(tmp_path / "store", model=str(model))
    assert {group.rule for group in group_findings(audit.findings.iter_rows(named=True))} & {
        *DAMAGES[name].rules
    }
    assert equal(audit, attnlaw.audit(model))


@pytest.mark.slow
def test_approximate_spectra_with_their_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer in bfloat16 with a gate and fewer keys than queries; matrices count as large here."""
    monkeypatch.setattr("attnlaw.spectra.measure.LARGE", 160)
    rng = np.random.default_rng(0)
    shapes = {"q": (320, 320), "k": (160, 320), "v": (160, 320), "o": (320, 320)}
    named = {f"self_attn.{name}_proj": shape for name, shape in shapes.items()}
    named |= {"mlp.gate_proj": (400, 320), "mlp.up_proj": (400, 320), "mlp.down_proj": (320, 400)}
    tensors = {
        f"model.layers.0.{name}.weight": rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for name, shape in named.items()
    }
    for norm in ("input", "post_attention"):
        gain = rng.uniform(0.5, 2.0, 320).astype(ml_dtypes.bfloat16)
        tensors[f"model.layers.0.{norm}_layernorm.weight"] = gain
    save_file(tensors, tmp_path / "model.safetensors")
    config = {"model_type": "llama", "hidden_size": 320, "num_attention_heads": 4, "num_hidden_layers": 1}
    more = {"num_key_value_heads": 2, "hidden_act": "silu"}
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    given: dict[str, Any] = {"model": str(tmp_path), "approximate": True}
    audit = in_units(tmp_path / "store", **given)
    assert audit.matrices.filter(route="lanczos").height == 3
    assert audit.matrices["nuclear_norm_error"].count() == 3
    assert equal(audit, attnlaw.audit(**given))


def test_an_adapter_by_itself(tmp_path: Path) -> None:
    """Several of its matrices stand at the same place: their numbers tell them apart."""
    rng = np.random.default_rng(1)
    tensors = {}
    for layer in range(2):
        for name in ("q_proj", "v_proj"):
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{at}.lora_A.weight"] = rng.standard_normal((3, 16)).astype(np.float32)
            tensors[f"{at}.lora_B.weight"] = rng.standard_normal((24, 3)).astype(np.float32)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 3, "lora_alpha": 6}))
    audit = in_units(tmp_path / "store", model=str(tmp_path))
    assert audit.matrices.height == 4
    assert equal(audit, attnlaw.audit(tmp_path))


@pytest.mark.slow
def test_a_checkpoint_that_was_replaced_is_measured_anew(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    model = saved(open_model(tiny), tiny, folder)
    first = in_units(tmp_path / "store", model=str(model))
    weights = Weights(open_model(tiny))
    weights.change(weights.model.layers[0].attention.query, lambda matrix: 2 * matrix)
    saved(weights.changed, tiny, folder)
    os.utime(folder / "model.safetensors", (1, 1))  # its size is the same
    second = in_units(tmp_path / "store", model=str(model))
    assert not second.matrices.equals(first.matrices)
    assert equal(second, attnlaw.audit(model))


def test_damaged_weights_are_one_line(tiny: Path, tmp_path: Path) -> None:
    model = saved(DAMAGES["a NaN"](open_model(tiny), LAYER), tiny, tmp_path)
    with pytest.raises(InputError, match=r"c_attn\.weight has 1 NaN .* part 9 of 16, and all finished parts"):
        in_units(tmp_path / "store", model=str(model))


def test_what_workers_cannot_open(tmp_path: Path) -> None:
    block = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": np.eye(4)}
    with pytest.raises(InputError, match="cannot send a dict to workers; save it to a file"):
        in_units(tmp_path, model=block, heads=2)
    with pytest.raises(InputError, match="no such file"):
        in_units(tmp_path, model=str(tmp_path / "nowhere"))
