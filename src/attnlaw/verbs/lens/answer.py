"""The answer of a lens in words: what stands out among the heads, and which input shaped the output."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.analysis.forward.inputs import input_words
from attnlaw.analysis.forward.remarks import REMARK_KINDS
from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.estimate import Outcome
from attnlaw.core.tables import unique_short_names
from attnlaw.core.words import count_of
from attnlaw.render.describe_rows import capital
from attnlaw.verbs.typed import words_of

if TYPE_CHECKING:
    from attnlaw import LensResult

MAX_CASES = 8  # cases with lines of their own
LONGEST_COMMAND = 400  # letters; a longer command is not repeated
# Kinds of remarks whose absence is worth a sentence.
NOTABLE_IF_ABSENT = ("one-column", "one-offset", "sharp")


def answer(result: LensResult) -> Answer:
    """Return the most notable results for this input, and the commands to try next."""
    cases = [case for case in result if case.row()["status"] != Outcome.FAILED]
    if len(cases) == 1:
        return Answer(tuple(case_lines(cases[0])), next_commands(result))
    names = unique_short_names(case.row()["model"] for case in cases)
    lines = [
        Line(f"{name}: {line.text}", line.status, line.details)
        for name, case in zip(names[:MAX_CASES], cases, strict=False)
        for line in case_lines(case)
    ]
    if len(cases) > MAX_CASES:
        lines.append(Line(f"{len(cases) - MAX_CASES} more cases are in the rows below."))
    return Answer(tuple(lines), next_commands(result))


def case_lines(result: LensResult) -> list[Line]:
    """Return the lines about one case: whether its numbers are reliable, its heads, tokens and ranks."""
    row = result.row()
    lines = [] if row["remark"] is None else [Line(f"{capital(row['remark'])}.", AnswerStatus.WARNING)]
    if row["text"]:
        lines.append(Line(_splitting_sentence(result)))
    if row["head_count"] == 0:
        lines.append(Line("The input has one token, which can only attend to itself: no head was measured."))
    elif row["head_count"] is not None:
        lines += _head_lines(result.head_findings, row["head_count"])
    if "token_map" in result.tables:
        lines.append(Line(_token_sentence(result.token_map)))
    if row["median_rank_within"] is not None:
        lines.append(Line(rank_sentence(result)))
    return lines


def next_commands(result: LensResult) -> dict[str, str]:
    """Return the same command with more options. The command does not repeat a text that is too long."""
    row, models = result.row(0), list(dict.fromkeys(result.rows["model"]))
    options = words_of(result.verb.settings, row, ("only", "entrywise"))
    command = shlex.join(["attnlaw", "lens", *models, *input_words(row), *options])
    if len(command) > LONGEST_COMMAND:
        return {shlex.join(["attnlaw", "audit", *models]): "check the weights themselves, without an input"}
    by_token = "" if row["only"] in ("heads", "entrywise") else ", and a line for each token"
    return {
        f"{command} --details": f"all numbers{by_token}",
        f"{command} --out results": "maps of heads and tokens in results/report.html",
    }


def page_commands(row: dict[str, Any]) -> dict[str, str]:
    """Return commands to try after the page was read."""
    model = shlex.quote(row["model"])
    return {
        f"attnlaw audit {model}": "check the weights themselves, without an input",
        f"attnlaw lens {model} --text '...'": "compare with another input",
    }


def _head_lines(remarks: pl.DataFrame, head_count: int) -> list[Line]:
    lines = []
    for kind in REMARK_KINDS:
        sentences = remarks.filter(pl.col("rule") == kind.name)["sentence"].to_list()
        if len(sentences) == 1:
            lines.append(Line(f"{capital(sentences[0])}."))
        elif sentences:
            clearest, _, evidence = sentences[0].partition(": ")
            head = " ".join(clearest.split()[:2])
            more = f" {capital(head)} is the clearest: {evidence}." if evidence else ""
            lines.append(Line(f"{len(sentences)} of {head_count} heads {kind.several}.{more}"))
    known = set(remarks["rule"])
    absent = [
        kind.singular for kind in REMARK_KINDS if kind.name in NOTABLE_IF_ABSENT and kind.name not in known
    ]
    if absent:
        words = " or ".join(filter(None, [", ".join(absent[:-1]), absent[-1]]))  # a, b or c
        lines.append(Line(f"No head {words}."))
    return lines


def _token_sentence(tokens: pl.DataFrame) -> str:
    """Return which token shaped the last output most, or all of them if the model is not causal."""
    last = tokens["output"].max()
    labels = dict(tokens.select("input", "input_token").iter_rows())
    causal = is_causal(tokens)
    if causal:
        subject, rows = f'The last token, "{labels[last]}", is shaped most by', tokens.filter(output=last)
    else:
        subject, rows = "On average, an output token is shaped most by", tokens
    means = rows.group_by("input", maintain_order=True).agg(pl.col("share", "rollout").mean())
    exact, rollout = (
        means.sort(name, descending=True, maintain_order=True).row(0, named=True)
        for name in ("share", "rollout")
    )
    place = "itself" if causal and exact["input"] == last else _place(exact["input"], labels)
    other = "the same token" if exact["input"] == rollout["input"] else _place(rollout["input"], labels)
    return (
        f"{subject} {place} ({exact['share']:.0%}, through the whole network). Attention weights alone "
        f"(rollout) point to {other} ({rollout['rollout']:.0%}). Trust the result for the whole network: "
        "rollout leaves out values and feed-forward blocks."
    )


def _splitting_sentence(result: LensResult) -> str:
    tokens = result.input_tokens["token"].to_list()
    letters = ", which are single letters" if all(len(token or "") == 1 for token in tokens) else ""
    return f"The text is split into {count_of(len(tokens), 'token')}{letters}."


def is_causal(tokens: pl.DataFrame) -> bool:
    """Return whether, in a token map, no token depends on a later one."""
    return not tokens.filter(pl.col("input") > pl.col("output"), pl.col("norm") > 0).height


def rank_sentence(result: LensResult) -> str:
    row, ranks = result.row(), result.entrywise
    worst = ranks.sort("rank_within", descending=True, maintain_order=True).row(0, named=True)
    return (
        f"Rank {row['median_rank_within']} of {row['tokens']} keeps every attention weight within 0.01 in "
        f"half of the heads; all heads need rank {worst['rank_within']} (head "
        f"{worst['layer']}.{worst['head']} the most)."
    )


def _place(position: int, labels: dict[int, str | None]) -> str:
    return f'token {position}, "{labels[position]}"'
