"""The answer of `dynamics`: when a student finds the target, what goes wrong, and whether SGD agrees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.command_line import command
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.core.result import Result
from attnlaw.core.words import short_number
from attnlaw.render.describe_rows import ValueLabels, capital, independent_settings, varying_settings
from attnlaw.theory.learn.agreement import DISAGREE, largest_chance_difference
from attnlaw.verbs.learn.answer import failure_lines
from attnlaw.verbs.learn.comparison import has_settings_of

MOST_LINES = 4  # trajectories that get a sentence each
LEVELS = {0.5: "recovery_time", 0.9: "recovery_time_90"}
NOT_THE_CASE = ("times", "spectrum", "statics", "simulate", "seeds", "seed", "sensing", "batch")
MOST_COMMANDS = 3  # besides those for all quantities and for a page
COARSE = 1.2  # ratio of successive times
LEAST = 1e-9  # an error below which SGD is not limited by its learning rate
ABOVE = 0.9  # share of a plateau that a path must exceed at its end to be on the way to it
LONGER = 10  # factor by which the next command extends a trajectory that does not arrive


@dataclass(frozen=True)
class Crossing:
    """When trained students, and the theory, first reach a level of mean alignment."""

    level: float
    theory: float
    trained: Estimate

    @property
    def standard_errors(self) -> float | None:
        """The difference from theory in standard errors, or None if there is no error."""
        return (self.trained.value - self.theory) / self.trained.error if self.trained.error else None


def answer(result: Result) -> Answer:
    """Return the answer for one or several cases, with trained students if there are any."""
    if result.verb.simulation is None:
        return Answer(tuple(_only_trained(result)), {})
    rows = result.finished_rows
    several = rows.height > 1
    lines = list(_several(result, rows)) if several else list(_single(result, rows.row(0, named=True)))
    lines += [*_agreement(result), *_endings(result), *failure_lines(result)]
    return Answer(tuple(lines), _next_commands(result, rows))


def trajectory_of(result: Result, case: int) -> pl.DataFrame:
    """Return the rows of one case of the theory over time."""
    table = result.finished_table("trajectory")
    return table.filter(pl.col("case") == case).sort("time")


def runs_of(result: Result, row: Mapping[str, Any]) -> dict[int, pl.DataFrame]:
    """Return the rows over time of students with the settings of a row (first repetition), by dimension."""
    simulation = result.simulation
    if simulation is None:
        return {}
    fits = has_settings_of(result, simulation, row, left_out=("spectrum", "statics"))
    same = simulation.finished_rows.filter(fits).unique("simulate", keep="first")
    table = simulation.finished_table("runs")
    return {
        int(size): table.filter(pl.col("case") == case).sort("time")
        for size, case in same.sort("simulate").select("simulate", "case").iter_rows()
    }


def reached(times: pl.DataFrame, level: float) -> Estimate | None:
    """Return when the alignment first reaches a level, by interpolation; the error follows from the slope."""
    known = times.drop_nulls("alignment")
    time, value = known["time"].to_numpy(), known["alignment"].to_numpy()
    above = np.flatnonzero(value >= level)
    if not above.size or above[0] == 0:
        return None
    after = int(above[0])
    before = after - 1
    slope = (value[after] - value[before]) / (time[after] - time[before])
    place = float(time[before] + (level - value[before]) / slope)
    error = known["alignment_error"][after]
    return Estimate(place, float(error / slope) if error else None)


def crossings(result: Result, row: Mapping[str, Any], students: pl.DataFrame) -> list[Crossing]:
    """Return when students reach alignment 0.5 and 0.9, and when the theory does on the same grid."""
    theory = trajectory_of(result, row["case"])
    pairs = [(level, reached(theory, level), reached(students, level)) for level in LEVELS]
    return [Crossing(level, a.value, b) for level, a, b in pairs if a is not None and b is not None]


def samples_at(row: Mapping[str, Any], time: float) -> str:
    """Return the number of samples up to a time, in brackets. For a gradient flow, the text is empty."""
    rate = row["learning_rate"]
    return f" ({short_number(time / rate)} d² samples)" if rate else ""


def _single(result: Result, row: Mapping[str, Any]) -> Iterator[Line]:
    times = trajectory_of(result, row["case"])
    yield _arrival(row, times)
    yield from _end(row, times)
    yield from _plateaus(row)
    yield from _spikes(result, row)
    last, plateau = times["estimation_error"][-1], row["plateau_error"]
    # The plateau holds to leading order in the learning rate. A path that is already below has no such end.
    if plateau and plateau > LEAST and last is not None and last >= ABOVE * plateau:
        yield Line(f"With this learning rate the error settles at about {short_number(plateau)}.")


def _arrival(row: Mapping[str, Any], times: pl.DataFrame) -> Line:
    places = {level: row[name] for level, name in LEVELS.items() if row[name] is not None}
    end = times["time"].to_list()[-1]
    if places:
        parts = [f"{level} {_when(row, times, time)}" for level, time in places.items()]
        text = f"The alignment with the target reaches {' and '.join(parts)}."
        if len(places) < len(LEVELS):
            text += f" It does not reach 0.9 by time {short_number(end)}."
        return Line(text)
    lost = times.filter(pl.col("norm").is_null())
    if lost.height:
        return Line(
            f"Training diverges before time {short_number(lost['time'][0])}.",
            AnswerStatus.ERROR,
        )
    if row["alignment"] is None:
        return Line("A target proportional to the identity has no alignment; see the error.")
    return Line(
        f"The alignment with the target does not reach 0.5 by time {short_number(end)}, where it is "
        f"{short_number(row['alignment'])}.",
        AnswerStatus.UNUSUAL,
    )


def _when(row: Mapping[str, Any], times: pl.DataFrame, time: float) -> str:
    """Return when a level is reached: a time, or the two times around it if draws are far apart in time."""
    places: list[float] = times.filter(pl.col("time") > 0)["time"].to_list()
    below = max((place for place in places if place <= time), default=0.0)
    above = min((place for place in places if place >= time), default=time)
    if not any(times["alignment_error"].drop_nulls()) or above <= COARSE * below:
        return f"at time {time:.3g}{samples_at(row, time)}"
    rate = row["learning_rate"]
    samples = f" ({below / rate:.3g} to {above / rate:.3g} d² samples)" if rate else ""
    return f"between time {below:.3g} and {above:.3g}{samples}"


def _end(row: Mapping[str, Any], times: pl.DataFrame) -> Iterator[Line]:
    start, last = times["prediction_error"][0], row["prediction_error"]
    if start is None or last is None or not start:
        return
    share = last / start
    end = times["time"].to_list()[-1]
    yield Line(
        f"At the end, time {short_number(end)}{samples_at(row, end)}, the loss is "
        f"{short_number(100 * share)}% of that at the start.",
        AnswerStatus.UNUSUAL if share > 1 else None,
    )


def _plateaus(row: Mapping[str, Any]) -> Iterator[Line]:
    ends = row["plateaus"] or []
    for low, high in zip(ends[::2], ends[1::2], strict=True):
        yield Line(
            f"Nothing is learned from time {short_number(low)} to {short_number(high)} (plateau).",
            AnswerStatus.UNUSUAL,
        )


def _spikes(result: Result, row: Mapping[str, Any]) -> Iterator[Line]:
    tracks = result.finished_table("tracks").filter(pl.col("case") == row["case"]).sort("time")
    for target in tracks["target"].unique(maintain_order=True):
        track = tracks.filter(pl.col("target") == target)
        seen = track.drop_nulls("location")
        if not seen.height:
            end = track["time"].to_list()[-1]
            yield Line(
                f"The target's spike ({target:g}) is not visible in the spectrum by time {short_number(end)}."
            )
            continue
        first, last = seen.row(0, named=True), seen.row(-1, named=True)
        half = row["recovery_time"]
        order = "" if half is None else ", before the rest" if first["time"] < half else ", after the rest"
        yield Line(
            f"The target's spike ({target:g}) is visible in the spectrum from time "
            f"{short_number(first['time'])} on{order}. At time {short_number(last['time'])} it is at "
            f"{short_number(last['location'])} and the other eigenvalues end at {short_number(last['edge'])}."
        )


def _several(result: Result, rows: pl.DataFrame) -> Iterator[Line]:
    labels = ValueLabels(result.verb, result.rows)
    varied = varying_cases(result, rows)
    count = rows.height
    known = rows.drop_nulls("recovery_time").sort("recovery_time", maintain_order=True)
    if count <= MOST_LINES:
        for row in rows.iter_rows(named=True):
            line = _arrival(row, trajectory_of(result, row["case"]))
            lead = labels.describe({name: row[name] for name in varied})
            text = f"{capital(lead)}: {line.text[:1].lower()}{line.text[1:]}" if lead else line.text
            yield Line(text, line.status)
    elif known.height:
        first, last = (known.row(place, named=True) for place in (0, -1))
        ends = [
            f"time {short_number(row['recovery_time'])} "
            f"({labels.describe({name: row[name] for name in varied})})"
            for row in (first, last)
        ]
        yield Line(f"The alignment reaches 0.5 first at {ends[0]}, and last at {ends[1]}.")
        if known.height < count:
            yield Line(f"In {count - known.height} of {count} cases it does not.", AnswerStatus.UNUSUAL)
    else:
        yield Line(f"In none of {count} cases does the alignment reach 0.5.", AnswerStatus.UNUSUAL)
    costs = rows.drop_nulls("recovery_samples").sort("recovery_samples", maintain_order=True)
    if costs.height > 1 and costs["learning_rate"].n_unique() > 1:
        best = costs.row(0, named=True)
        yield Line(
            f"Learning rate {best['learning_rate']:g} needs the fewest samples: "
            f"{short_number(best['recovery_samples'])} d² until the alignment is 0.5."
        )


def varying_cases(result: Result, rows: pl.DataFrame) -> list[str]:
    """Return the settings that distinguish the cases, without settings that follow from others."""
    names = [name for name in result.verb.setting_columns.values() if name not in NOT_THE_CASE]
    return independent_settings(rows, varying_settings(rows, names), [])


def _agreement(result: Result) -> Iterator[Line]:
    if result.simulation is None or not result.simulation.finished_rows.height:
        return
    compared, seeds = [], min(result.simulation.finished_rows["seeds"].to_list())
    for row in result.finished_rows.iter_rows(named=True):
        for size, students in runs_of(result, row).items():
            compared += [(size, crossing) for crossing in crossings(result, row, students)]
    sizes = " and ".join(map(str, sorted({size for size, _ in compared})))
    count = "1 student" if seeds == 1 else f"{seeds} students"
    who = f"{count} trained by SGD at d = {sizes}"
    measured = [(size, each) for size, each in compared if each.standard_errors is not None]
    if not measured:
        yield _not_compared(compared, who)
        return
    size, worst = max(measured, key=lambda pair: abs(pair[1].standard_errors or 0.0))
    apart = abs(worst.standard_errors or 0.0)
    limit = largest_chance_difference(seeds, len(measured))
    of_size = f" at d = {size}" if len({size for size, _ in measured}) > 1 else ""
    times = f"alignment {worst.level} at time {worst.trained}, theory {short_number(worst.theory)}{of_size}"
    if apart <= DISAGREE:
        yield Line(
            f"{who} agree with theory within {short_number(apart, 2)} standard errors ({times}).",
            AnswerStatus.OK,
        )
    elif apart <= limit:
        yield Line(
            f"{who} are {short_number(apart, 2)} standard errors from theory ({times}). More students "
            "(--seeds) would show whether that is chance."
        )
    else:
        yield Line(
            f"{who} differ from theory by {short_number(apart, 2)} standard errors ({times}). Theory is for "
            "infinite d; differences of order 1/d are expected.",
            AnswerStatus.UNUSUAL,
        )


def _not_compared(compared: Sequence[tuple[int, Crossing]], who: str) -> Line:
    if not compared:
        return Line("The trained students do not reach alignment 0.5, so no times can be compared.")
    crossing = compared[0][1]
    return Line(
        f"{who} reaches alignment {crossing.level} at time {short_number(crossing.trained.value)} (theory "
        f"{short_number(crossing.theory)}). There is no standard error. Use --seeds 2 or more.",
        AnswerStatus.WARNING,
    )


def _endings(result: Result) -> Iterator[Line]:
    for part in filter(None, (result, result.simulation)):
        rows, labels = part.finished_rows, ValueLabels(part.verb, part.rows)
        varied = varying_cases(part, rows) if rows.height else []
        known = rows.drop_nulls("remark")
        for status, remark in known.select("status", "remark").unique(maintain_order=True).iter_rows():
            same = known.filter((pl.col("status") == status) & (pl.col("remark") == remark))
            first = labels.describe({name: same[name][0] for name in varied})
            more = f" and {same.height - 1} more" if same.height > 1 else ""
            lead = f"{first}{more}: " if first else ""
            ending = "" if status in (Outcome.DONE, Outcome.UNSTABLE) else f"{status}: "
            text = f"{lead}{ending}{remark}."
            yield Line(capital(text), AnswerStatus.WARNING)


def _only_trained(result: Result) -> Iterator[Line]:
    table = result.finished_table("runs")
    for row in result.finished_rows.head(MOST_LINES).iter_rows(named=True):
        times = table.filter(pl.col("case") == row["case"]).sort("time")
        places = {level: place for level in LEVELS if (place := reached(times, level)) is not None}
        count = "1 student" if row["seeds"] == 1 else f"{row['seeds']} students"
        who = f"{count} trained by SGD at d = {row['simulate']}"
        if places:
            parts = [f"{level} at time {place}" for level, place in places.items()]
            yield Line(f"The alignment of {who} reaches {' and '.join(parts)}.")
        else:
            yield Line(f"The alignment of {who} does not reach 0.5.", AnswerStatus.UNUSUAL)
    yield from failure_lines(result)


def _next_commands(result: Result, rows: pl.DataFrame) -> dict[str, str]:
    commands: dict[str, str] = {}
    row = rows.row(0, named=True)
    alone: dict[str, Any] = {} if result.simulation is None else {"simulate": None}
    largest, rates = row["largest_rate"], rows["learning_rate"].to_list()
    too_fast = [rate for rate in rates if largest is not None and rate > largest]
    if rows.height == 1 and too_fast:
        commands[command(result, learning_rate=_round_down(largest / 2), **alone)] = "a stable learning rate"
    elif rows.height == 1 and row["recovery_time_90"] is None and row["alignment"] is not None:
        first, last, count = row["times"].split(":")
        longer = f"{first}:{float(last) * LONGER:g}:{count}"
        commands[command(result, times=longer, **alone)] = f"{LONGER} times longer"
    if result.simulation is None and not too_fast:
        rate = max(rates) or _round_down((largest or 0.5) / 5)
        size = _trainable_size(rows)
        if size is not None:
            more = {"learning_rate": rate} if not all(rates) else {}
            commands[command(result, **more, simulate=size)] = "train real students by SGD to compare"
    if rows.height == 1 and not row["spectrum"] and row["attention"] == "tied" and not too_fast:
        purpose = "which eigenvalues are learned first"
        commands[command(result, spectrum=True, **alone)] = purpose
    if rows.height == 1 and not too_fast:
        some = [_round_down((largest or 0.5) * factor) for factor in (0.02, 0.1, 0.5)]
        commands[command(result, learning_rate=some, **alone)] = "what a larger learning rate costs and saves"
    commands = dict(list(commands.items())[:MOST_COMMANDS])
    commands[command(result, "--details")] = "all quantities"
    commands[command(result, "--out", "results")] = "a page with pictures"
    return commands


def _round_down(value: float) -> float:
    """Return a positive number with one significant digit that is at most `value`."""
    place = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.floor(value / place + 1e-9) * place:.1g}")


def _trainable_size(rows: pl.DataFrame) -> int | None:
    """Return a small dimension at which the target's rank is a whole number; None if there is none."""
    if rows["target_eigenvalues"].count() + rows["target_exponent"].count():
        return None
    shares = [share for name in ("target_rank", "width") for share in rows[name].drop_nulls().unique()]
    finite = [share for share in shares if math.isfinite(share)]
    sizes = (
        size
        for size in range(20, 61)
        if all(abs(size * share - round(size * share)) < 1e-9 and size * share >= 1 for share in finite)
    )
    return next(sizes, None)
