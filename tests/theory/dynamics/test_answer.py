"""The answer of `dynamics` in words: each sentence is compared with numbers computed in another way."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import attnlaw
from attnlaw.core.answer import AnswerStatus
from attnlaw.core.errors import InputError
from attnlaw.core.result import Result
from attnlaw.verbs.dynamics import SIMULATE, DynamicsSimulationSettings, check_trainable
from attnlaw.verbs.dynamics.answer import answer, crossings, runs_of
from attnlaw.verbs.dynamics.terminal import show_summary


def lines(result: Result) -> list[str]:
    return [line.text for line in answer(result).lines]


def with_students(result: Result, **more: Any) -> Result:
    rates = result.rows["learning_rate"].unique(maintain_order=True).to_list()
    times = result.rows["times"][0]
    students = SIMULATE(**{"simulate": 20, "seeds": 3, "learning_rate": rates, "times": times} | more)
    return replace(result, simulation=students)


def screen(result: Result, width: int = 80, encoding: str = "utf-8", details: bool = False) -> str:
    """Return the screen of a result, as a terminal of this width shows it."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    console = Console(file=stream, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    show_summary(result, console, details)
    stream.seek(0)
    return stream.read()


def crossing(result: Result, level: float) -> float:
    """Return when the alignment reaches a level, by interpolation of the table."""
    table = result.trajectory
    return float(np.interp(level, table["alignment"], table["time"]))


@pytest.mark.parametrize("settings", [{}, {"scale": 0.3}, {"target_rank": 0.2}, {"student": "direct"}])
def test_the_first_sentence_says_when_the_alignment_reaches_half_and_nine_tenths(
    settings: dict[str, Any],
) -> None:
    result = attnlaw.dynamics(times="0.001:1:400", **settings)
    pattern = r"The alignment with the target reaches 0.5 at time (\S+) and 0.9 at time (\S+)\."
    places = re.fullmatch(pattern, lines(result)[0])
    assert places is not None
    for text, level in zip(places.groups(), (0.5, 0.9), strict=True):
        assert float(text) == pytest.approx(crossing(result, level), rel=0.01)


def test_samples_are_time_over_the_learning_rate() -> None:
    result = attnlaw.dynamics(learning_rate=0.05)
    half = result.recovery_time
    assert f"0.5 at time {half:.3g} ({half / 0.05:.3g} d² samples)" in lines(result)[0]
    assert "samples" not in lines(attnlaw.dynamics())[0]


def test_the_loss_at_the_end_is_compared_with_the_start() -> None:
    result = attnlaw.dynamics(times="0.001:0.05:30")
    loss = result.trajectory["prediction_error"]
    assert (
        f"At the end, time 0.05, the loss is {100 * loss[-1] / loss[0]:.3g}% of that at the start."
        in lines(result)
    )


def test_without_draws_a_time_does_not_depend_on_the_grid() -> None:
    coarse, fine = (attnlaw.dynamics(times=times) for times in ("0.001:1:4", "0.001:1:40"))
    assert lines(coarse)[0] == lines(fine)[0]
    assert coarse.recovery_time == pytest.approx(fine.recovery_time, rel=1e-3)


def test_between_coarse_draws_a_time_is_only_a_range() -> None:
    """The alignment of draws is known at the times alone, which may be far from the place of 0.5."""
    coarse = attnlaw.dynamics(noise=100, learning_rate=0.01, times="0.1:1:3")
    below, above = 10**-1, 10**-0.5
    text = (
        f"0.5 between time {below:.3g} and {above:.3g} ({below / 0.01:.3g} to {above / 0.01:.3g} d² samples)"
    )
    assert text in lines(coarse)[0]


def test_a_plateau_is_named_only_if_the_path_goes_there() -> None:
    """The error of this path falls below the plateau, which is known to leading order only."""
    below = attnlaw.dynamics(noise=100, learning_rate=0.01, times="0.1:1:3")
    assert min(below.trajectory["estimation_error"]) < 0.9 * below.rows["plateau_error"][0]
    assert not any("learning rate" in line for line in lines(below)[1:])
    result = attnlaw.dynamics(noise=0.5, learning_rate=0.05)
    plateau = result.rows["plateau_error"][0]
    assert f"With this learning rate the error settles at about {plateau:.3g}." in lines(result)
    assert result.trajectory["estimation_error"][-1] == pytest.approx(plateau, rel=0.5)


def test_a_level_that_is_not_reached_is_said() -> None:
    short = attnlaw.dynamics(times="0.001:0.01:5")
    first = answer(short).lines[0]
    last = short.trajectory["alignment"][-1]
    assert first.text.endswith(f"does not reach 0.5 by time 0.01, where it is {last:.3g}.")
    assert first.status is AnswerStatus.UNUSUAL
    assert "attnlaw dynamics --times 0.001:0.1:5" in answer(short).next_commands
    between = attnlaw.dynamics(times="0.001:0.05:30")
    assert lines(between)[0].endswith("It does not reach 0.9 by time 0.05.")


def test_a_student_that_runs_away_is_an_error_with_a_smaller_rate_to_try() -> None:
    result = attnlaw.dynamics(learning_rate=3.0)
    first = answer(result).lines[0]
    lost = result.trajectory.filter(pl.col("norm").is_null() | pl.col("norm").is_nan())["time"][0]
    assert (first.status, f"before time {lost:.3g}" in first.text) == (AnswerStatus.ERROR, True)
    (command, *_) = answer(result).next_commands
    rate = float(command.rpartition(" ")[2])
    assert attnlaw.dynamics(learning_rate=rate).status == "done"


def test_plateaus_and_spikes_are_named() -> None:
    result = attnlaw.dynamics(target_spike=8.0, spectrum=True)
    seen = result.tracks.drop_nulls("location")
    (line,) = [text for text in lines(result) if "spike" in text]
    assert f"(8) is visible in the spectrum from time {seen['time'].min():.3g} on, before the rest" in line
    assert f"at {seen['location'][-1]:.3g} and" in line
    flat = attnlaw.dynamics(times="0.001:0.1:20")
    rows = flat.rows.with_columns(plateaus=pl.Series([[0.01, 0.02]]))
    assert "Nothing is learned from time 0.01 to 0.02 (plateau)." in lines(replace(flat, rows=rows))


def test_several_rates_are_compared_by_time_and_by_samples() -> None:
    rates = [0.01, 0.05, 0.2]
    result = attnlaw.dynamics(learning_rate=rates)
    assert [text.partition(":")[0] for text in lines(result)[:3]] == [
        f"Learning rate {rate}" for rate in rates
    ]
    costs = {rate: crossing(attnlaw.dynamics(learning_rate=rate), 0.5) / rate for rate in rates}
    best = min(costs, key=costs.__getitem__)
    assert f"Learning rate {best:g} needs the fewest samples" in lines(result)[-1]
    many = attnlaw.dynamics(target_rank=[0.1, 0.2, 0.3, 0.4, 0.5])
    order = many.rows.sort("recovery_time")["target_rank"]
    assert f"(target rank {order[0]:g}), and last" in lines(many)[0]
    assert lines(many)[0].endswith(f"(target rank {order[-1]:g}).")


def test_students_agree_with_theory_or_do_not() -> None:
    result = with_students(attnlaw.dynamics(learning_rate=0.05))
    (students,) = runs_of(result, result.finished_rows.row(0, named=True)).values()
    mean = np.interp(0.5, students["alignment"], students["time"])
    found = crossings(result, result.finished_rows.row(0, named=True), students)
    assert found[0].trained.value == pytest.approx(mean, rel=1e-6)
    (line,) = [line for line in answer(result).lines if "3 students trained by SGD at d = 20" in line.text]
    worst = max(abs(each.standard_errors) for each in found)
    assert f"{worst:.2g} standard errors" in line.text
    assert (line.status is AnswerStatus.OK) == (worst <= 3)
    tables = dict(result.simulation.tables)
    tables["runs"] = tables["runs"].with_columns(time=pl.col("time") * 3, alignment_error=pl.lit(1e-6))
    slow = answer(replace(result, simulation=replace(result.simulation, tables=tables)))
    assert slow.status is AnswerStatus.UNUSUAL
    assert "differ from theory by" in " ".join(line.text for line in slow.lines)


def test_one_student_and_failed_cases_are_said() -> None:
    alone = with_students(attnlaw.dynamics(learning_rate=0.05), seeds=1)
    assert answer(alone).status is AnswerStatus.WARNING
    several = attnlaw.dynamics(target_rank=[0.2, 0.5])
    first = pl.col("target_rank") == 0.2
    rows = several.rows.with_columns(status=pl.when(first).then(pl.lit("failed")).otherwise("status"))
    failed = answer(replace(several, rows=rows, records=()))
    assert failed.lines[-1].text == "1 of 2 cases failed and are left out."
    assert failed.status is AnswerStatus.ERROR
    assert failed.lines[0].text == lines(several[1])[0]


def test_sgd_without_a_learning_rate_says_what_to_type() -> None:
    with pytest.raises(InputError, match=r"Try: attnlaw dynamics --simulate 20 --learning-rate 0\.05$"):
        check_trainable(DynamicsSimulationSettings(simulate=20))
    check_trainable(DynamicsSimulationSettings(simulate=20, learning_rate=0.05))


@pytest.mark.parametrize("details", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"attention": "untied"},
        {"learning_rate": [0.01, 0.02, 0.05, 0.1, 0.2]},
        {"target_spike": 8.0, "spectrum": True},
        {"learning_rate": 3.0},
    ],
)
def test_a_screen_fits_into_80_columns_and_loses_nothing_in_ascii(
    settings: dict[str, Any], details: bool
) -> None:
    result = attnlaw.dynamics(times="0.001:1:25", **settings)
    shown, plain = screen(result, details=details), screen(result, encoding="ascii", details=details)
    prose = [line for line in shown.splitlines() if "attnlaw dynamics" not in line]
    assert max(map(len, prose)) <= 80
    assert "…" not in shown
    assert plain.isascii()
    assert "?" not in plain
    assert re.findall(r"\d+\.\d+", plain) == re.findall(r"\d+\.\d+", shown)
