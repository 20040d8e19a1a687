"""What a reader sees first of a comparison: the answer, each layer that changed, what to do next."""

from __future__ import annotations

import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints.small import bert_weights
from command.in_process import invoke
from rich.console import Console
from rich.text import Text
from safetensors.numpy import load_file, save_file

import attnlaw
from attnlaw.core.answer import AnswerStatus
from attnlaw.verbs.views import answer_of, show

TINY = Path(__file__).parents[3] / "examples" / "tiny-decoder"
QUERY, FFN = "transformer.h.2.attn.c_attn.weight", "transformer.h.3.mlp.c_fc.weight"
State = dict[str, Any]


def tiny() -> State:
    return load_file(TINY / "model.safetensors")


def low_rank(weights: np.ndarray, rank: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows, columns = weights.shape
    update = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    return (weights + 0.01 * update).astype(np.float32)


def exchanged_layers() -> State:
    base = tiny()
    names = {name: name.replace(".h.2.", ".h.9.").replace(".h.3.", ".h.2.") for name in base}
    return {name: base[names[name].replace(".h.9.", ".h.3.")] for name in base}


MODELS = {
    "identical": (tiny, AnswerStatus.OK, "Identical", None),
    "float16": (
        lambda: {name: tensor.astype(np.float16) for name, tensor in tiny().items()},
        AnswerStatus.OK,
        "Rounded to float16: all 52 tensors",
        "another number format",
    ),
    "low-rank": (
        lambda: tiny() | {QUERY: low_rank(tiny()[QUERY], 2)},
        None,
        f"Low-rank update of rank 2, in {QUERY} (18.8%).",
        "merged LoRA adapter",
    ),
    "rescaled": (
        lambda: tiny() | {FFN: 10 * tiny()[FFN]},
        AnswerStatus.WARNING,
        f"{FFN} is 10 times the base.",
        "a scale that was applied twice",
    ),
    "exchanged": (
        exchanged_layers,
        AnswerStatus.WARNING,
        "Layers 2 and 3 are exchanged (28 tensors, bit for bit).",
        "weights are in the wrong place",
    ),
    "nan": (
        lambda: tiny() | {FFN: np.full_like(tiny()[FFN], np.nan)},
        AnswerStatus.ERROR,
        f"The model or the base has NaN or infinite entries in {FFN}.",
        "Do not use this file. Find",
    ),
    "zero": (
        lambda: tiny() | {FFN: np.zeros_like(tiny()[FFN])},
        AnswerStatus.WARNING,
        f"All entries are now zero in {FFN}.",
        "These weights are lost",
    ),
    "other": (
        lambda: {
            name: np.random.default_rng(0).standard_normal(tensor.shape).astype(np.float32)
            for name, tensor in tiny().items()
        },
        AnswerStatus.WARNING,
        "The weights are random and do not resemble the base in all 16 matrices",
        "This looks like another model",
    ),
    "vocabulary": (
        lambda: (
            tiny() | {"transformer.wte.weight": np.pad(tiny()["transformer.wte.weight"], ((0, 8), (0, 0)))}
        ),
        None,
        "transformer.wte.weight has the shape 264 x 128 instead of 256 x 128; the rows that both have are",
        "another vocabulary",
    ),
}


def screen(result: attnlaw.Result, details: bool = False) -> str:
    file = io.StringIO()
    show(result, Console(width=80, file=file, force_terminal=True), details)
    return Text.from_ansi(file.getvalue()).plain


@pytest.mark.parametrize("name", MODELS)
def test_the_answer_says_what_changed_how_good_that_is_and_what_it_looks_like(name: str) -> None:
    make, status, first, likeness = MODELS[name]
    result = attnlaw.diff(str(TINY), make(), jobs=1)
    answer = answer_of(result)
    assert answer is not None
    assert answer.status == answer.lines[0].status == status
    assert answer.lines[0].text.startswith(first)
    texts = [line.text for line in answer.lines]
    assert likeness is None or any(likeness in text for text in texts)
    assert texts[-1].startswith("Compared: all 52 tensors")


@pytest.mark.parametrize("name", MODELS)
def test_screens_fit_80_columns_and_are_the_same_after_loading(name: str, tmp_path: Path) -> None:
    result = attnlaw.diff(str(TINY), MODELS[name][0](), jobs=1)
    result.save(tmp_path)
    loaded = attnlaw.load(tmp_path)
    for details in (False, True):
        text = screen(result, details)
        assert max(map(len, text.splitlines())) <= 80
        assert screen(loaded, details) == text


def test_a_table_shows_the_extremes_of_a_layer() -> None:
    """One tensor times 10 and an update of rank 2 must not disappear in medians."""
    model = tiny() | {FFN: 10 * tiny()[FFN], QUERY: low_rank(tiny()[QUERY], 2)}
    lines = screen(attnlaw.diff(str(TINY), model, jobs=1)).splitlines()
    rows = {line.split()[0]: " ".join(line.split()) for line in lines if line[:1].isdigit()}
    assert rows["2"] == "2 18.8% attn.c_attn.weight 1 low-rank (rank 2), 11 identical"
    assert rows["3"] == "3 900% mlp.c_fc.weight 1 rescaled (times 10), 11 identical"
    assert "Layers 0 and 1: every tensor is identical." in lines


def test_details_add_heads_and_what_their_columns_mean() -> None:
    result = attnlaw.diff(str(TINY), tiny() | {FFN: 10 * tiny()[FFN]}, jobs=1)
    first, details = screen(result), screen(result, details=True)
    for text in ("intruders", "Tensors that changed most", "unchanged"):
        assert text not in first
        assert text in details
    heads = details[details.index("Heads (QK, VO)") :].splitlines()
    assert "10.000" in next(line for line in heads if line.startswith("3 ")).split()


def test_the_same_cause_in_many_layers_is_said_once() -> None:
    base = bert_weights(np.random.default_rng(0), 12, 48)
    parts = {
        layer: [f"bert.encoder.layer.{layer}.attention.self.{part}.weight" for part in ("query", "key")]
        for layer in range(12)
    }
    model = base | {names[0]: base[names[1]] for names in parts.values()}
    model |= {names[1]: base[names[0]] for names in parts.values()}
    result = attnlaw.diff(base, model, heads=4, jobs=1)
    first, rest = result.verdict.split(". ")
    assert first == "Layers 0 to 11: query and key are exchanged (24 tensors)"
    assert rest == "Everything else is identical."


def test_next_commands_are_complete_and_run(tmp_path: Path) -> None:
    model = tmp_path / "a model"
    model.mkdir()
    save_file(tiny() | {FFN: 10 * tiny()[FFN]}, model / "model.safetensors")
    (model / "config.json").write_text((TINY / "config.json").read_text())
    answer = answer_of(attnlaw.diff(str(TINY), str(model), layers="3", jobs=1))
    assert answer is not None
    commands = [shlex.split(command) for command in answer.next_commands]
    assert [command[:2] for command in commands] == [
        ["attnlaw", "diff"],
        ["attnlaw", "diff"],
        ["attnlaw", "audit"],
        ["attnlaw", "check"],
    ]
    assert all("--layers" in command for command in commands[:2])
    for command in (commands[0], commands[2]):
        invoke(*command[1:])


def test_models_in_memory_have_no_next_command() -> None:
    answer = answer_of(attnlaw.diff(tiny(), tiny(), heads=4, jobs=1))
    assert answer is not None
    assert not answer.next_commands


def test_several_models_have_a_line_each_in_the_answer() -> None:
    models = [tiny(), tiny() | {FFN: 10 * tiny()[FFN]}]
    results = [attnlaw.diff(str(TINY), model, name=name) for model, name in zip(models, "ab", strict=True)]
    answer = answer_of(results[0] + results[1])
    assert answer is not None
    assert [line.status for line in answer.lines] == [AnswerStatus.OK, AnswerStatus.WARNING]
    assert [line.text[:3] for line in answer.lines] == ["a: ", "b: "]


def test_a_comparison_of_a_part_says_nothing_about_the_rest() -> None:
    model = tiny() | {QUERY: low_rank(tiny()[QUERY], 2), FFN: 10 * tiny()[FFN]}
    result = attnlaw.diff(str(TINY), model, layers=2, only="qk", jobs=1)
    assert "Everything else that was compared is identical." in result.verdict
    assert "Everything else is identical." not in result.verdict


def test_missing_layers_are_a_warning_with_a_remedy() -> None:
    """Three of four layers are gone. Their tensors have no partner, so they were not compared."""
    whole, config = tiny(), json.loads((TINY / "config.json").read_text())
    first = {name: array for name, array in whole.items() if not re.search(r"\.h\.[123]\.", name)}
    lone = len(whole) - len(first)
    for base, model, lead, step in (
        (whole, first, "Only the base has", "missing from the model"),
        (first, whole, "Only the model has", "base lacks whole layers"),
    ):
        result = attnlaw.diff(base, model, heads=config["n_head"], jobs=1)
        lines = answer_of(result).lines
        assert lines[0].text == f"{lead} 12 matrices and 24 vectors (layers 1 to 3)."
        assert lines[0].status == AnswerStatus.WARNING
        assert any(step in line.text for line in lines)
        assert lines[-1].text.startswith(f"Compared: {len(first)} of {len(whole)} tensors (4 matrices")
        assert f"Only in one of the files: {lone}." in lines[-1].text
