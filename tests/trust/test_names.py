"""Names from strangers: nothing but printable characters on the terminal, nothing but text in the report."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import torch
from checkpoints.spoiled import CONFIG, bert_state
from safetensors.torch import save_file
from trust.command import Outcome, run

SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\n\u202e\u2028"
MARKUP = "[bold red][link=evil]"
NAME = f"model {ESCAPES}{MARKUP}{SCRIPT.replace('/', '|')}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("names")


@pytest.fixture(scope="module")
def outcome(place: Path) -> Outcome:
    """A good model, saved with figures, in which every name that can be chosen attacks."""
    folder = place / NAME
    folder.mkdir()
    prefix = f"{ESCAPES}{MARKUP}{SCRIPT}."
    state = {prefix + name: value for name, value in bert_state(layers=1).items()}
    state[f"{prefix}encoder.layer.0.{ESCAPES}{SCRIPT}.weight"] = torch.ones(2, 2)
    save_file(state, folder / "model.safetensors")
    config = CONFIG | {"num_hidden_layers": 1, "model_type": f"{SCRIPT}{ESCAPES}{MARKUP}"}
    config["hidden_act"] = f"gelu{ESCAPES}{SCRIPT}"
    (folder / "config.json").write_text(json.dumps(config))
    return run("audit", folder, "--out", place / "out", "--jobs", "1", folder=place, memory=None)


def test_it_is_audited(outcome: Outcome) -> None:
    assert outcome.status == 0, outcome.errors
    assert outcome.deeds == ()


def test_the_terminal_sees_printable_characters_only(outcome: Outcome) -> None:
    for line in (outcome.output + outcome.errors).split("\n"):
        assert line.isprintable(), line
    assert "\\x1b]0;owned" in outcome.output  # written out, not swallowed
    assert MARKUP in outcome.output.replace("\n", "")


def test_the_report_holds_text_only(outcome: Outcome, place: Path) -> None:
    page = (place / "out" / "report.html").read_text(encoding="utf-8")
    assert "alert(1)" in page
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    assert "\x1b" not in page


def test_the_rows_are_printable(outcome: Outcome, place: Path) -> None:
    rows = pl.read_parquet(place / "out" / "matrices.parquet")
    names = [*rows["model"], *rows["family"], *(name for names in rows["tensors"] for name in names)]
    assert all(name.isprintable() for name in names)


@pytest.mark.slow
def test_a_report_of_several_runs_escapes_too(outcome: Outcome, place: Path) -> None:
    again = run("report", place / "out", place / "out", "--out", place / "both", folder=place, memory=None)
    assert again.status == 0, again.errors
    (page,) = (place / "both").glob("*.html")
    assert "<script>alert(1)" not in page.read_text(encoding="utf-8")
    assert all(line.isprintable() for line in (again.output + again.errors).split("\n"))
