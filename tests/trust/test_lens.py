"""Configs that attack the lens, through the real command line: one line, or nothing changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from trust.command import GIGABYTE, LENS, Outcome, run

MODEL = Path(__file__).parents[2] / "examples" / "tiny-decoder"


def lens(folder: Path, changes: dict[str, Any]) -> Outcome:
    shutil.copy(MODEL / "model.safetensors", folder)
    config = json.loads((MODEL / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return run("lens", ".", "--ids", "1,2,3", "--json", folder=folder, interpreter=LENS)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return lens(tmp_path_factory.mktemp("good"), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"num_labels": 10**9},
        {"num_labels": "x", "id2label": [1]},
        {"return_dict": False, "reorder_and_upcast_attn": True, "experts_implementation": "x"}
        | {"attribute_map": {"x": "_attn_implementation_internal"}, "x": "sdpa"},
    ],
    ids=lambda changes: ", ".join(changes),
)
def test_what_the_lens_does_not_use_changes_nothing(
    changes: dict[str, Any], good: Outcome, tmp_path: Path
) -> None:
    outcome = lens(tmp_path, changes)
    assert (outcome.status, outcome.errors, outcome.deeds) == (0, "", ())
    assert json.loads(outcome.output) == json.loads(good.output)
    assert outcome.memory < GIGABYTE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"attn_pdrop": "x"},
            "transformers cannot build a GPT2Model from this file (",
        ),  # then why: transformers' words
        ({"num_hidden_layers": 10**9}, "it describes 1000000000 layers, but the weights have 4"),
    ],
    ids=["type", "depth under another name"],
)
def test_each_ends_in_one_line(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    outcome = lens(tmp_path, changes)
    (line,) = outcome.errors.splitlines()
    assert outcome.status == 1
    assert line.startswith("attnlaw: ")
    assert line.isprintable()
    assert says in line
    assert "restore the model's config.json" in line
    assert outcome.memory < GIGABYTE
