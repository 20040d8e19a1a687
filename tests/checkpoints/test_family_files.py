"""A family is one TOML file, found by itself; which of two that fit is taken does not hang on file names."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoints.test_map import MINE, tensors
from safetensors.numpy import save_file

from attnlaw import audit
from attnlaw.checkpoints import families
from attnlaw.checkpoints.assembly.match import match_family
from attnlaw.checkpoints.config import Config
from attnlaw.checkpoints.families.read_toml import families_in, known_families
from attnlaw.checkpoints.open import open_model
from attnlaw.checkpoints.tensors import InMemoryTensors
from attnlaw.core.errors import InputError

SHIPPED = families.FOLDER
TOY = MINE.replace('name = "mine"', 'name = "toy"\nmodel_types = ["toy_lm"]')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder of families, which is read instead of it."""
    copy = tmp_path / "families"
    shutil.copytree(families.FOLDER, copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    monkeypatch.setattr(families, "FOLDER", copy)
    return copy


def test_a_family_is_one_file_beside_the_others(folder: Path, tmp_path: Path) -> None:
    (folder / "toy.toml").write_text(TOY)
    state = tensors()
    model = tmp_path / "model"
    model.mkdir()
    save_file(state, model / "model.safetensors")
    config = {"model_type": "toy_lm", "n_heads": 2, "hidden_act": "relu"}
    (model / "config.json").write_text(json.dumps(config))
    audit_result = audit(model, jobs=1)
    assert (
        audit_result.summary["family"],
        audit_result.summary["layers"],
        audit_result.summary["heads"],
    ) == ("toy_lm", 2, 2)
    assert audit_result.summary["warnings"] == []
    of_head = audit_result.matrices.filter(kind="qk", layer=1, head=1)["spectral_norm"].item()
    fused = state["net.tower.1.mix.qkv"]
    query, key = fused[:, 4:8], fused[:, 12:16]
    assert of_head == pytest.approx(np.linalg.norm(query @ key.T, 2), rel=1e-12)


def test_it_is_matched_by_its_names_alone_and_counted_among_the_known(folder: Path) -> None:
    known = len({family.name for family in families_in(SHIPPED)})
    (folder / "toy.toml").write_text(TOY)
    assert open_model(tensors(), heads=2).family == "toy"
    with pytest.raises(
        InputError, match=f"any of the {known + 1} known families; describe them in a file, and pass --map"
    ):
        open_model({"unknown": np.eye(2)})


def test_a_damaged_file_is_named(folder: Path) -> None:
    (folder / "toy.toml").write_text(TOY.replace("= false", '= "no"'))
    with pytest.raises(InputError, match=r"toy\.toml: stored_out_in: found 'no', expected true or false$"):
        open_model(tensors(), heads=2)


def test_priorities_leave_nothing_to_file_names(tmp_path: Path) -> None:
    priorities = [family.priority for family in known_families()]
    assert len(set(priorities)) == len(priorities)
    assert min(priorities) > 0  # a new family, of priority 0, changes nothing that was read before
    files = sorted(families.FOLDER.glob("*.toml"), reverse=True)
    for number, file in enumerate(files):
        shutil.copy(file, tmp_path / f"{number:03d}.toml")
    assert families_in(tmp_path) == known_families()


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_equals_the_highest_priority_is_taken(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        text = MINE.replace('name = "mine"', f'name = "{name}"\npriority = {int(name == first)}')
        (tmp_path / f"{name}.toml").write_text(text)
    monkeypatch.setattr(families, "FOLDER", tmp_path)
    assert open_model(tensors(), heads=2).family == first


def named(layers: str, *names: str) -> dict[str, np.ndarray]:
    return {f"{layers}0.{name}": np.eye(4) for name in names}


PROJECTED = [f"self_attn.{part}_proj.weight" for part in ("q", "k", "v", "out")]
FUSED = ("self_attn.in_proj_weight", "self_attn.out_proj.weight")
LLAMA_CPP = [f"{part}.weight" for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down")]
# Names that several families have, and whose they are taken for without a config.json, in turn.
SHARED = {
    "a decoder": (
        named("decoder.layers.", *PROJECTED, "fc1.weight", "fc2.weight"),
        ["opt", "whisper", "bart", "mbart", "blenderbot_small", "led", "biogpt", "xglm", "fairseq"],
    ),
    "an encoder": (
        named("encoder.layers.", *PROJECTED, "fc1.weight", "fc2.weight"),
        [
            *("whisper", "bart", "mbart", "blenderbot_small", "biogpt", "xglm"),
            *("fairseq", "fairseq_wav2vec2", "clip_tower"),
        ],
    ),
    "gpt2": (
        named("h.", "attn.c_attn.weight", "attn.c_proj.weight"),
        ["gpt2", "openai_gpt", "nanogpt", "gpt_bigcode"],
    ),
    "llama.cpp": (named("blk.", *LLAMA_CPP), ["llama.cpp of bert", "llama.cpp"]),
    "torch": (
        named("layers.", *FUSED),
        ["torch.nn.Transformer", "torch.nn.Transformer", "torch.nn.MultiheadAttention"],
    ),
}


@pytest.mark.parametrize("case", SHARED)
def test_names_that_several_families_have(case: str) -> None:
    state, expected = SHARED[case]
    left, taken = list(known_families()), []
    while len(taken) < len(expected):
        family = match_family(InMemoryTensors(state), Config(), left).family
        taken.append(family.name + " of bert" * (family.model_types == ("bert",)))
        left.remove(family)
    assert taken == expected
    with pytest.raises(InputError, match="does not know this architecture"):
        match_family(InMemoryTensors(state), Config(), left)


def test_importing_reads_no_family_and_no_reader() -> None:
    code = (
        "import sys, attnlaw.checkpoints\n"
        "from attnlaw.checkpoints.families.read_toml import families_in\n"
        "assert families_in.cache_info().currsize == 0\n"
        "assert not [name for name in sys.modules if name.endswith('_file')], sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_key_has_a_description() -> None:
    """The page on checkpoints shows these descriptions."""
    for record in (families.Family, families.LayerTable):
        described = re.findall(r"^        (\w+): \S", record.__doc__ or "", re.MULTILINE)
        assert described == [key.name for key in dataclasses.fields(record)]


def test_the_page_names_every_type() -> None:
    path = Path(__file__).parents[2] / "docs" / "hooks" / "checkpoints.py"
    spec = importlib.util.spec_from_file_location("hook", path)
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    words = re.split(r"[|,\s]+", hook.types_table())
    # llama.cpp writes two types without their underscore.
    types = {name for family in known_families() for name in family.model_types} - {"qwen2moe", "qwen3moe"}
    assert types <= set(words)
    assert {"bert", "whisper", "qwen3_5_text"} <= types
