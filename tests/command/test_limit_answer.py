"""The first screen of `limit`: what it answers, for which settings, and how sure it is."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command.in_process import invoke

import attnlaw
from attnlaw.core.answer import Answer, AnswerStatus
from attnlaw.verbs.limit import VERB
from attnlaw.verbs.limit.answer import answer
from attnlaw.verbs.views import answer_of


def answered(**settings: Any) -> Answer:
    return answer(attnlaw.limit(**{"draws": 2000, **settings}))


def text_of(shown: Answer) -> str:
    return " ".join(line.text for line in shown.lines)


def test_the_first_width_within_one_percent_is_named() -> None:
    result_answer = answered(width=[16, 64, 256, math.inf])
    assert result_answer.lines[0].status == AnswerStatus.OK
    assert result_answer.lines[0].text.startswith(
        "From width 64 on, the distribution function of the output is within 1% of that of the infinite-width"
    )
    assert re.search(
        r"It differs by at most 0\.\S+% at width 64, and by up to 2\.", result_answer.lines[0].text
    )
    assert "The limit itself is not Gaussian: its kurtosis is 3.1" in text_of(result_answer)


def test_tails_that_agree_later_get_a_line_of_their_own() -> None:
    """The distribution function does not show the tails, so the first line alone would say too much."""
    tails = answered(width=[16, 64, 256, 1024, math.inf], draws=20_000).lines[1]
    assert tails.status is None
    assert tails.text.startswith("The tails agree only from width 1024 on: the kurtosis is 3.5")
    assert "The tails do not agree yet" in text_of(answered(width=[64, math.inf], draws=20_000))
    assert "tails" not in text_of(answered(width=[1024, math.inf], draws=20_000))


def test_a_width_that_is_too_small_gets_the_command_for_one_that_may_do() -> None:
    result_answer = answered(width=16)
    assert result_answer.status is None
    assert result_answer.lines[0].text.startswith(
        "A layer of width 16 visibly differs from its infinite-width limit"
    )
    assert "attnlaw limit --width 64,inf --draws 2000" in result_answer.next_commands
    assert text_of(answered(width=2)).startswith("A layer of width 2 clearly differs")


def test_the_limit_alone_is_described_and_compared_next() -> None:
    result_answer = answered(width=math.inf)
    assert text_of(result_answer).startswith("The limit itself is not Gaussian")
    assert (
        result_answer.next_commands["attnlaw limit --draws 2000"]
        == "how wide a layer must be to be close to this limit"
    )


@pytest.mark.parametrize("settings", [{"mask": "causal"}, {"scaling": "1/n"}, {"tokens": 1}])
def test_a_limit_without_randomness_in_attention_is_gaussian(settings: dict[str, Any]) -> None:
    result_answer = answered(width=math.inf, **settings)
    assert "The limit is Gaussian: its kurtosis is exactly 3." in text_of(result_answer)
    assert ("attention is uniform" in text_of(result_answer)) == ("scaling" in settings)
    assert not any("--gaussian" in command for command in result_answer.next_commands)


def test_several_layers_get_a_sentence_each_and_many_a_summary() -> None:
    few = answered(score=["relu", "softmax"], width=[64, math.inf])
    assert few.lines[0].text.startswith("score relu: A layer of width 64 visibly differs")
    assert "(score relu)" in text_of(few)
    many = answered(heads=[1, 2, 4, 8, 16], width=[256, math.inf], draws=400)
    assert many.lines[0].text.startswith(
        "At the largest width that was computed, the distribution functions of 5 of 5 layers are within 1%"
    )
    assert "The kurtosis of the limit is between 3.0" in text_of(many)


def test_depth_answers_whether_tokens_become_alike() -> None:
    result_answer = answered(depth=6, residual=True, width=math.inf, draws=400)
    assert "Tokens become alike with depth: their mean cosine goes from 0 to 0.89" in text_of(result_answer)
    assert "Tokens become identical (rank collapse)" in text_of(answered(depth=12, width=math.inf, draws=400))


def test_a_missing_divergence_is_a_warning_with_a_remedy() -> None:
    (warning,) = [
        line for line in answered(score="linear", depth=4, width=16, draws=400).lines if line.status
    ]
    assert warning.status == AnswerStatus.WARNING
    assert warning.text.startswith("Width 16: there is no KL divergence to the limit: ")
    assert "use W1 or KS, or more draws" in warning.text


@pytest.mark.parametrize(
    "words",
    [
        ["--width", "16,inf"],
        ["--score", "relu,softmax", "--width", "16,64,inf", "--kernel", "--gaussian"],
        ["--depth", "3", "--residual", "--width", "16,inf", "--mask", "band:1", "--normalise"],
        ["--scaling", "1/n", "--other-scaling", "1/sqrt(n)", "--width", "16,64"],
        ["--head-width", "8", "--width", "32", "--heads", "1,4"],
    ],
)
def test_the_screen_fits_and_its_commands_run(words: list[str]) -> None:
    screen = invoke("limit", *words, "--draws", "100", columns=80).stdout
    lines = screen.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Next"))
    assert all(len(line) <= 80 for line in lines[:start])
    for line in re.sub(r" \\\n\s+", " ", "\n".join(lines[start:])).splitlines():
        if "attnlaw limit" in line:
            command = shlex.split(line[line.index("attnlaw") :].partition("   ")[0])
            cases = [word for word in command[2:] if word not in ("--out", "results")]
            invoke("limit", *cases, "--json")


def test_details_shows_what_the_first_screen_leaves_out() -> None:
    words = ("limit", "--width", "16,inf", "--depth", "2", "--draws", "100")
    short, long = invoke(*words).stdout, invoke(*words, "--details").stdout
    for title in ("Var p", "W1", "residual", "Squared length", "activation identity"):
        assert title in long
        assert title not in short


def test_a_loaded_result_gives_the_same_answer(tmp_path: Path) -> None:
    result = attnlaw.limit(width=[16, math.inf], depth=2, draws=100)
    assert answer_of(attnlaw.load(result.save(tmp_path))) == answer_of(result)


def test_pages_and_notebooks_start_with_the_answer(tmp_path: Path) -> None:
    result = attnlaw.limit(width=[16, math.inf], draws=1000)
    (first, *_) = answer(result).lines
    page = (result.save(tmp_path) / "report.html").read_text(encoding="utf-8")
    assert page.index(first.text) < page.index("Densities")
    assert first.text in result._repr_html_()
    assert VERB.title in page


def test_a_page_does_not_suggest_itself(tmp_path: Path) -> None:
    result = attnlaw.limit(width=[16, math.inf], draws=500)
    assert any("--out" in command for command in answer(result).next_commands)
    page = (result.save(tmp_path / "out") / "report.html").read_text()
    assert "What to do next" in page
    assert "--out results" not in page.partition("<script")[0]


@pytest.mark.parametrize(("value", "error"), [(0.04, 0.02), (0.011, 0.01)])
def test_a_difference_within_the_noise_of_the_draws_is_not_seen(value: float, error: float) -> None:
    result = attnlaw.limit(width=16, draws=2000)
    rows = result.rows.with_columns(ks_to_limit=pl.lit(value), ks_to_limit_error=pl.lit(error))
    noisy = answer(replace(result, rows=rows))
    assert "cannot be distinguished from the noise of the draws" in noisy.lines[0].text
    assert "differs from" not in text_of(noisy)
    assert "attnlaw limit --width 16 --draws 32000" in noisy.next_commands
    seen = rows.with_columns(ks_to_limit_error=pl.lit(value / 3))
    assert "differs from its infinite-width limit" in answer(replace(result, rows=seen)).lines[0].text
