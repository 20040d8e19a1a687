"""The table of model types in benchmarks/families.py: what opens is right, what does not is told why."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest
from checkpoints.forward_pass import make, require_transformers
from scipy.stats import binomtest

import attnlaw
from attnlaw.checkpoints.families.read_toml import known_families

FILE = Path(__file__).parents[2] / "benchmarks" / "families.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_of_families", FILE)
    assert spec
    assert spec.loader
    module = sys.modules["benchmark_of_families"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLE = loaded()
# Norms without parameters, for parallel blocks, with an offset, behind positions; runs; towers; a head axis;
# linear attention and gates; sinks and turned, alternating experts; a tower beside scaled experts.
FEW = (
    "olmo",
    "cohere",
    "nemotron",
    "codegen",
    "modernbert",
    "videomae",
    "hunyuan_v1_dense",
    "cohere2",
    "smollm3",
    "bloom",
    "clip",
    "xlnet",
    "qwen3_next",
    "gpt_oss",
    "llama4",
)
# Names of architectures in GGUF files, and of fairseq's.
OTHERS = {"qwen2moe", "qwen3moe", "fairseq", "fairseq_wav2vec2"}


def test_every_type_of_a_family_is_in_the_table() -> None:
    assert len(TABLE.TYPES) >= 130
    named = {name for family in known_families() for name in family.model_types} - OTHERS
    assert named <= TABLE.TYPES.keys()


def outcome(name: str) -> None:
    require_transformers("5.22", "these models in float64")
    comparison = TABLE.outcome(name)
    assert comparison.error is not None, comparison.line
    assert comparison.error <= (TABLE.SINGLE if name in TABLE.ROUNDED else TABLE.TOLERANCE)


@pytest.mark.parametrize("name", FEW)
def test_some_types(name: str) -> None:
    outcome(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(TABLE.TYPES.keys() - set(FEW)))
def test_all_other_types(name: str) -> None:
    outcome(name)


def random_by_count(names: Iterable[str], folder: Path) -> None:
    """Fresh models with random gains: matrices that the null test rejects, of all it looked at."""
    count = tested = 0
    for name in names:
        small = TABLE.TYPES[name]
        make(small.kind, **small.sizes).save_pretrained(folder / name)
        null_test = attnlaw.audit(folder / name, jobs=1).summary["not_random"]
        count, tested = count + null_test["rejected"], tested + null_test["tested"]
    assert tested > 100
    assert binomtest(count, tested, 0.01, alternative="greater").pvalue > 1e-3, (count, tested)


def test_fresh_models_of_some_types_with_random_gains_are_random(tmp_path: Path) -> None:
    random_by_count(("olmo", "cohere", "nemotron", "bloom", "smollm3", "clip"), tmp_path)


@pytest.mark.long
def test_fresh_models_of_all_types_with_random_gains_are_random(tmp_path: Path) -> None:
    random_by_count(TABLE.TYPES, tmp_path)


def test_the_command_prints_the_table_and_the_share(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_attention = TABLE.Small("FNetForMaskedLM", TABLE.TEXT)
    monkeypatch.setitem(TABLE.TYPES, "fnet", without_attention)
    assert TABLE.main(["gpt2", "fnet"]) == 0
    first, second, _, last = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == ["gpt2", "opened"]
    assert second.split()[:2] == ["fnet", "refused"]
    assert last.startswith("1 of 2 types open (50%), 0 wrongly; ")


def test_a_type_that_is_read_wrongly_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnlaw.checkpoints.assembly.shapes import Shapes

    # As if the gains of gemma were not stored less 1.
    monkeypatch.setattr(Shapes, "is_among", lambda self, model_types: False)
    assert TABLE.main(["gemma"]) == 1
    assert capsys.readouterr().out.split()[:2] == ["gemma", "WRONG"]
