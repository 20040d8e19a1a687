"""Entrywise errors in the lens: against scores cut by hand, on every screen, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median, median_high

import numpy as np
import polars as pl
import pytest
from command.in_process import invoke

import attnlaw
from attnlaw.analysis.forward.load import load_base_model
from attnlaw.analysis.forward.trace import trace_forward

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny-decoder"
TEXT = "the cat sat on the mat"
WORDS = ("lens", EXAMPLE, "--text", TEXT, "--only", "entrywise")


@pytest.fixture(scope="module", name="lens")
def _lens() -> attnlaw.Lens:
    return attnlaw.lens(EXAMPLE, text=TEXT, only="entrywise", entrywise=(1, 4, 16)).record


def test_every_head_against_its_scores_cut_by_hand(lens: attnlaw.Lens) -> None:
    """From queries and keys, not from the network's probabilities; truncated by projection."""
    passed = trace_forward(*load_base_model(EXAMPLE), list(TEXT.encode()))
    places = [
        (layer, head)
        for layer, layer_scores in enumerate(passed.scores)
        for head in range(layer_scores.heads)
    ]
    assert [(head.layer, head.head) for head in lens.entrywise] == places
    assert (lens.heads, lens.token_map, lens.spectrum) == (None, None, None)
    for head in lens.entrywise:
        scores = passed.scores[head.layer]
        A = scores.attention(scores.logits(head.head))
        vectors = np.linalg.eigh(A.T @ A)[1][:, ::-1]
        missed = [A - A @ vectors[:, :rank] @ vectors[:, :rank].T for rank in range(len(A) + 1)]
        worst = [np.abs(residual).max() for residual in missed]
        assert [error.rank for error in head.errors] == [1, 4, 16]
        assert [error.largest for error in head.errors] == pytest.approx(
            [worst[r] for r in (1, 4, 16)], rel=1e-6
        )
        assert head.errors[1].rms == pytest.approx(np.sqrt(np.mean(missed[4] ** 2)), rel=1e-6)
        assert head.rank_within == next(rank for rank, error in enumerate(worst) if error <= 0.01)
    ranks = [head.rank_within for head in lens.entrywise]
    assert (lens.median_rank_within, lens.largest_rank_within) == (median_high(ranks), max(ranks))


def test_the_answer_comes_first(lens: attnlaw.Lens) -> None:
    blocks = invoke(*WORDS, "--entrywise", "1,4,16").stdout.split("\n\n")
    head = max(lens.entrywise, key=lambda candidate: candidate.rank_within)
    assert " ".join(blocks[1].split()) == (
        "The text is split into 22 tokens, which are single letters. "
        f"Rank {lens.median_rank_within} of 22 keeps every attention weight within 0.01 in half of the "
        f"heads; all heads need rank {head.rank_within} (head {head.layer}.{head.head} the most)."
    )
    titles, *lines = blocks[2].splitlines()[1:]
    assert titles.split() == ["rank", "head", "head"]  # below "median" and "worst"
    assert [line.split()[0] for line in lines] == ["1", "4", "16"]
    largest = [head_entry.errors[1].largest for head_entry in lens.entrywise]
    assert lines[1].split()[1:] == [f"{median(largest):.3g}", f"{max(largest):.3g}"]


def test_rows_page_and_figure(lens: attnlaw.Lens, tmp_path: Path) -> None:
    out = tmp_path / "out"
    output = json.loads(
        invoke(*WORDS, "--entrywise", "1,4,16", "--json", "--out", out, "--figures", "svg").stdout
    )
    rows = output["tables"]["entrywise"]
    assert len(rows) == 48
    first = lens.entrywise[0]
    assert rows[0] == {
        "layer": 0,
        "head": 0,
        "rank": 1,
        "rank_within": first.rank_within,
        **{name: getattr(first.errors[0], name) for name in ("largest", "tail", "rms", "coherence")},
    }
    assert output["quantities"]["largest_rank_within"] == lens.largest_rank_within
    assert pl.read_parquet(out / "entrywise.parquet").height == 48
    page = (out / "report.html").read_text()
    assert f"<dt>rank for error 0.01, all heads</dt><dd>{lens.largest_rank_within}</dd>" in page
    assert "None of the rules describes" not in page  # heads were not looked at
    drawn = (out / "figures" / "entrywise.svg").read_text()
    assert all(f">{name}<" in drawn for name in ("largest error of a weight", "suggested error", "rms", "16"))


def test_one_rank_has_no_figure_and_full_rank_no_error(tmp_path: Path) -> None:
    invoke(*WORDS, "--entrywise", "22", "--out", tmp_path, "--figures", "svg")
    assert not (tmp_path / "figures" / "entrywise.svg").exists()
    rows = pl.read_parquet(tmp_path / "entrywise.parquet")
    assert rows["largest"].max() < 1e-12
    assert rows["coherence"].to_list() == [None] * 16


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("--entrywise", "1,23"),
            "--entrywise 23: expected ranks from 1 to 22, the number of tokens in the input",
        ),
        (
            ("--entrywise", "0"),
            "--entrywise 0: expected ranks from 1 to 22, the number of tokens in the input",
        ),
        (
            ("--entrywise", "1.5"),
            "--entrywise 1.5: expected whole numbers separated by commas, such as 1,2,3",
        ),
        ((), "--only entrywise: needs ranks; add --entrywise 1,4,16"),
    ],
)
def test_bad_ranks_are_one_line(arguments: tuple[str, ...], line: str) -> None:
    assert invoke(*WORDS, *arguments, status=2).stderr == f"attnlaw: {line}\n"
