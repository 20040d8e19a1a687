"""The answer of `learn`: how much of the target is learned, what limits it, and whether training agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from attnlaw.core.answer import Answer, AnswerStatus, Line
from attnlaw.core.command_line import command
from attnlaw.core.estimate import Estimate, Outcome, format_percent
from attnlaw.core.result import Result
from attnlaw.core.settings import parse_range
from attnlaw.core.words import short_number
from attnlaw.render.describe_rows import ValueLabels, capital, independent_settings, varying_settings
from attnlaw.theory.learn.agreement import DISAGREE, largest_chance_difference
from attnlaw.verbs.learn.comparison import TrainedStudents, relative_error, trained_students

MOST_NAMED = 6  # numbers of samples that a sentence names
MOST_LINES = 4  # curves that get a sentence each
LEAST = 1e-6  # relative error below which the target counts as recovered
NOTHING = 0.98  # relative error from which on practically nothing is learned
HARM = 1.02  # and from which on training is worse than predicting nothing
NOT_THE_CASE = ("thresholds", "spectrum", "simulate", "seeds", "seed", "sensing")


@dataclass(frozen=True)
class Measure:
    """The quantity that shows how good a student is, with its description."""

    column: str
    noun: str
    unit: str


ERROR = Measure("relative_error", "error", " of learning nothing")
# The cross-entropy does not determine the scale of the matrix, so its error says little.
WRONG_KEYS = Measure("wrong_keys", "share of new queries that attend to the wrong key", "")


def answer(result: Result) -> Answer:
    """Return the answer for one or several problems, with trained students if there are any."""
    if result.verb.simulation is None:
        return Answer(tuple(_only_trained(result)), {})
    rows, students = result.finished_rows, trained_students(result)
    measure = measure_of(rows)
    if rows.height == 1:
        lines = [*_single(rows.row(0, named=True), measure)]
    else:
        lines = [*_several(result, rows, measure)]
    lines += [
        *_agreement(result, students, measure),
        *_thresholds(rows),
        *_endings(result, rows),
        *failure_lines(result),
    ]
    return Answer(tuple(lines), _next_commands(result, rows, students))


def measure_of(rows: pl.DataFrame) -> Measure:
    return WRONG_KEYS if rows["wrong_keys"].count() == rows.height else ERROR


def in_words(values: Mapping[str, Any], labels: ValueLabels) -> str:
    """Return settings and their values in words, such as "0.2 d² samples, noise 0.5"."""
    parts = []
    for name, value in values.items():
        if value is not None:
            parts.append(f"{value:g} d² samples" if name == "alpha" else labels.describe({name: value}))
    return ", ".join(parts)


def varying_cases(rows: pl.DataFrame, names: Sequence[str]) -> list[str]:
    """Return the settings that distinguish the cases, without settings that follow from others."""
    varied = varying_settings(rows, names)
    first = [name for name in varied if rows[name].null_count() == 0]
    return independent_settings(rows, [*first, *(name for name in varied if name not in first)], [])


def share(row: Mapping[str, Any], name: str) -> Estimate | None:
    return None if row[name] is None else Estimate(row[name], row.get(f"{name}_error"))


def percent(value: Estimate) -> str:
    """Return a share in percent. If the share is below `LEAST`, the text says only that."""
    return f"less than {LEAST:.4%}" if 0 < value.value < LEAST else format_percent(value)


def _single(row: Mapping[str, Any], measure: Measure) -> Iterator[Line]:
    value = share(row, measure.column)
    samples = f"With {row['alpha']:g} d² samples (α = {row['alpha']:g})"
    if measure is WRONG_KEYS:
        assert value is not None
        yield Line(
            f"{samples}, {percent(value)} of new queries attend most to the wrong key (50% is chance)."
        )
    elif value is None:
        yield Line(f"{samples} the error cannot be resolved.", AnswerStatus.WARNING)
    elif value.value < LEAST:
        yield Line(f"{samples} the student recovers the target.", AnswerStatus.OK)
    elif value.value > HARM:
        yield Line(
            f"{samples} the error is {percent(value)} of learning nothing: training does harm.",
            AnswerStatus.UNUSUAL,
        )
    elif value.value > NOTHING:
        yield Line(
            f"{samples} practically nothing is learned: the error is {percent(value)} of learning nothing.",
            AnswerStatus.UNUSUAL,
        )
    else:
        yield Line(f"{samples} the error is {percent(value)} of learning nothing{_zero_error(row)}.")
    yield from _directions(row)
    if measure is ERROR and value is not None and value.value >= LEAST:
        yield from _causes(row)
    yield from _spike(row)


def _zero_error(row: Mapping[str, Any]) -> str:
    """Return the error E next to that of a zero matrix, or an empty text if it is not known."""
    error, relative = row["estimation_error"], row["relative_error"]
    return (
        f": E is {short_number(error)} instead of {short_number(error / relative)}"
        if error and relative
        else ""
    )


def _directions(row: Mapping[str, Any]) -> Iterator[Line]:
    rank = row["rank_fraction"]
    if rank is None:
        return
    if row["target_exponent"] is not None:
        dimension = row["target_dimension"]
        yield Line(f"The learned matrix uses {rank * dimension:,.0f} of {dimension:,} directions.")
        return
    uses = "all directions" if rank > 1 - 1e-9 else f"{short_number(100 * rank)}% of all directions"
    if row["target_rank"] is None:
        yield Line(f"The learned matrix uses {uses}.")
        return
    target = min(row["target_rank"], 1.0)
    has = "all of them" if target == 1 else f"{short_number(100 * target)}%"
    yield Line(f"The learned matrix uses {uses}; the target has {has}.")


def _causes(row: Mapping[str, Any]) -> Iterator[Line]:
    error, missing, wrong = (
        row[name] for name in ("estimation_error", "underfitting_error", "overfitting_error")
    )
    if None in (error, missing, wrong) or error < 1e-9:
        return
    parts = {
        "the part of the learned matrix that is orthogonal to the target (overfitting)": wrong / error,
        "the part of the target that is not learned yet (underfitting)": missing / error,
    }
    first, second = sorted(parts, key=parts.__getitem__, reverse=True)
    more = "" if parts[first] >= 0.995 else f", {_rounded(parts[second])} is {second}"
    yield Line(f"{_rounded(parts[first])} of this error is {first}{more}.")


def _rounded(part: float) -> str:
    return f"{100 * part:.0f}%"


def _spike(row: Mapping[str, Any]) -> Iterator[Line]:
    spike, seen = row["target_spike"], row["outlier"]
    if spike is None:
        return
    if seen is None:
        yield Line(f"The target's spike ({spike:g}) is not visible in the learned matrix.")
    else:
        yield Line(
            f"The target's spike ({spike:g}) is visible in the learned matrix, at {short_number(seen)}."
        )


def _several(result: Result, rows: pl.DataFrame, measure: Measure) -> Iterator[Line]:
    names = [name for name in result.verb.setting_columns.values() if name not in NOT_THE_CASE]
    # Other settings may follow from these: a Bayes-optimal student has no weight decay.
    varied, labels = varying_cases(rows, names), ValueLabels(result.verb, result.rows)
    known = rows.drop_nulls(measure.column)
    numbers = [name for name in varied if rows[name].dtype.is_numeric() and rows[name].null_count() == 0]
    if numbers and known.height > 1:
        axis = max(numbers, key=lambda name: (known[name].n_unique(), name == "alpha"))
        others = [name for name in varied if name != axis]
        curves = list(known.group_by(others, maintain_order=True)) if others else [((), known)]
        if len(curves) <= MOST_LINES and all(curve.height > 1 for _, curve in curves):
            for values, curve in curves:
                lead = in_words(dict(zip(others, values, strict=True)), labels)
                yield _curve(curve.sort(axis), axis, measure, labels, lead)
            return
    if not known.height:
        return
    ordered = known.sort(measure.column)
    ends = [ordered.row(place, named=True) for place in (0, -1)]
    best, worst = (
        f"{percent(Estimate(row[measure.column]))} ({in_words({name: row[name] for name in varied}, labels)})"
        for row in ends
    )
    unit = f". 100% is the error{measure.unit}" if measure is ERROR else ""
    yield Line(f"The {measure.noun} is between {best} and {worst}{unit}.")


def _curve(rows: pl.DataFrame, axis: str, measure: Measure, labels: ValueLabels, lead: str) -> Line:
    values = rows[measure.column].to_list()
    places = [in_words({axis: value}, labels) for value in rows[axis]]
    shown = [percent(Estimate(value)) for value in values]
    steps = [later - earlier for earlier, later in pairwise(values)]
    subject = f"{capital(lead)}: the {measure.noun}" if lead else f"The {measure.noun}"
    if shown[0] == shown[-1] == max(shown) == min(shown):
        return Line(f"{subject} is {shown[0]}{measure.unit} in all {len(values)} cases.")
    if all(step <= 0 for step in steps) or all(step >= 0 for step in steps):
        verb = "falls" if values[-1] < values[0] else "rises"
        text = (
            f"{subject} {verb} from {shown[0]}{measure.unit} at {places[0]} to {shown[-1]} at {places[-1]}."
        )
        return Line(text)
    low, high = values.index(min(values)), values.index(max(values))
    text = f"{subject} is smallest at {places[low]}: {shown[low]}{measure.unit}."
    more = f" It is largest at {places[high]}: {shown[high]}."
    inside = axis == "alpha" and 0 < high < len(values) - 1
    if inside:
        more += " Up to that point, more samples do harm (double descent); more weight decay prevents this."
    return Line(text + more, AnswerStatus.UNUSUAL if inside else None)


def _agreement(
    result: Result, students: Sequence[TrainedStudents | None], measure: Measure
) -> Iterator[Line]:
    rows = result.finished_rows.to_dicts()
    known = [(row, trained) for row, trained in zip(rows, students, strict=True) if trained is not None]
    if not known:
        return
    # A relative error would hide that the target of a finite student has another size.
    name = "estimation_error" if measure is ERROR else measure.column
    compared = []
    for row, trained in known:
        theory = share(row, name)
        difference = None if theory is None else trained.difference(name, theory)
        if difference is not None:
            compared.append((abs(difference.standard_errors), trained, difference))
    if not compared:
        yield _no_errors(known[0][1], len(known))
        return
    size, trained, worst = max(compared, key=lambda each: each[0])
    who, count = f"The {measure.noun} of {_students(trained)}", len(compared)
    limit = largest_chance_difference(trained.students, count)
    every = f" in all {count} cases" if count > 1 else ""
    side = "above" if worst.standard_errors > 0 else "below"
    apart = f"{short_number(size, 2)} standard errors {side} theory"
    if size <= DISAGREE:
        yield Line(
            f"{who} agrees with theory{every}, within {short_number(size, 2)} standard errors.",
            AnswerStatus.OK,
        )
    elif size <= limit:
        where = " in one case" if count > 1 else ""
        yield Line(
            f"{who} is {apart}{where}. That is more than chance usually gives: train more "
            "students (--seeds), or larger ones, because theory is for infinite d."
        )
    else:
        far = sum(each[0] > limit for each in compared)
        where = f" in {far} of {count} cases, by up to" if count > 1 else ":"
        yield Line(
            f"{who} differs from theory{where} {short_number(size, 2)} standard errors ({worst.trained}, "
            f"theory {short_number(worst.theory.value)}). Theory is for infinite d; differences of order 1/d "
            "are expected.",
            AnswerStatus.UNUSUAL,
        )


def _students(trained: TrainedStudents) -> str:
    sizes = " and ".join(map(str, trained.sizes))
    count = "1 student" if trained.students == 1 else f"{trained.students} students"
    each = " each" if len(trained.sizes) > 1 else ""
    return f"{count}{each} trained at d = {sizes}"


def _no_errors(trained: TrainedStudents, cases: int) -> Line:
    error = trained.relative_error if cases == 1 else None
    known = "" if error is None else f" Its error is {percent(error)} of learning nothing."
    return Line(
        f"Only one student was trained{'' if cases == 1 else ' in each case'}, so there is no standard error."
        f"{known} Use --seeds 2 or more.",
        AnswerStatus.WARNING,
    )


def _thresholds(rows: pl.DataFrame) -> Iterator[Line]:
    needed = rows["threshold_own_recovery"].drop_nulls().unique()
    if needed.len() == 1 and not rows["noise"].max():
        least, most = rows["alpha"].min(), rows["alpha"].max()
        start = (
            f"To recover the target without weight decay, this student needs {short_number(needed[0])} "
            "d² samples"
        )
        if most < needed[0]:
            yield Line(f"{start}: {short_number(needed[0] / most)} times as many.")
        elif least >= needed[0]:
            yield Line(f"{start}. It has enough.", AnswerStatus.OK)
        else:
            yield Line(f"{start}.")
    fitted = rows["threshold_interpolation"].drop_nulls().unique()
    if fitted.len() == 1:
        yield Line(
            f"Up to {short_number(fitted[0])} d² samples this student can fit the noise of all labels. "
            "Near this number, weight decay helps most."
        )


def _endings(result: Result, rows: pl.DataFrame) -> Iterator[Line]:
    labels = ValueLabels(result.verb, result.rows)
    names = [name for name in result.verb.setting_columns.values() if name not in NOT_THE_CASE]
    parts = [(rows, varying_settings(rows, names))]
    if result.simulation is not None:
        trained = result.simulation.finished_rows
        parts.append((trained, varying_settings(trained, [*names, "simulate"])))
    for part, varied in parts:
        known = part.drop_nulls("remark")
        if part.height > 1:
            yield from _recovered(known.filter(pl.col("status") == Outcome.RECOVERED), varied, labels)
            known = known.filter(pl.col("status") != Outcome.RECOVERED)
        for (status, remark), same in known.group_by("status", "remark", maintain_order=True):
            first = in_words({name: same[name][0] for name in varied}, labels)
            more = f" and {same.height - 1} more" if same.height > 1 else ""
            lead = f"{first}{more}: " if first else ""
            exact = status == Outcome.RECOVERED
            said = status == Outcome.DONE or remark.startswith(status)
            text = f"{lead}{remark}." if said else f"{lead}{status}: {remark}."
            yield Line(capital(text), None if exact else AnswerStatus.WARNING)


def _recovered(rows: pl.DataFrame, varied: Sequence[str], labels: ValueLabels) -> Iterator[Line]:
    """Yield who recovers the target so well that rounding hides the error, and with how many samples."""
    others = [name for name in varied if name != "alpha"]
    groups = rows.group_by(others, maintain_order=True) if others else [((), rows)]
    for key, same in groups:
        if not same.height:
            continue
        values = {name: value for name, value in zip(others, key, strict=True) if value is not None}
        if list(values) == ["student"]:
            who = labels.label_of("student", values["student"])
        else:
            named = in_words(values, labels)
            who = f"{named}: the student" if named else "the student"
        alphas = [f"{alpha:g}" for alpha in same["alpha"].unique().sort()]
        if len(alphas) > MOST_NAMED:
            alphas = [f"{len(alphas)} numbers of samples between {alphas[0]}", alphas[-1]]
        places = " and ".join([", ".join(alphas[:-1]), alphas[-1]] if len(alphas) > 1 else alphas)
        text = f"{who} recovers the target at {places} d² samples"
        yield Line(
            f"{capital(text)}: the error is below what can be computed (rounding).",
            AnswerStatus.OK,
        )


def failure_lines(result: Result) -> Iterator[Line]:
    for part in filter(None, (result, result.simulation)):
        lost = len(part) - part.finished_rows.height
        if lost:
            what = "cases" if part is result else "cases with trained students"
            yield Line(f"{lost} of {len(part)} {what} failed and are left out.", AnswerStatus.ERROR)


def _only_trained(result: Result) -> Iterator[Line]:
    names = [quantity.name for quantity in result.verb.quantities if quantity.error]
    for row in result.finished_rows.head(MOST_LINES).to_dicts():
        values = {name: value for name in names if (value := share(row, name)) is not None}
        error = relative_error(values)
        if error is not None:
            count = "1 student" if row["seeds"] == 1 else f"{row['seeds']} students"
            yield Line(
                f"With {row['alpha']:g} d² samples, {count} trained at d = {row['simulate']} have an error "
                f"of {percent(error)} of learning nothing."
            )
    yield from failure_lines(result)


def _next_commands(
    result: Result, rows: pl.DataFrame, students: Sequence[TrainedStudents | None]
) -> dict[str, str]:
    commands: dict[str, str] = {}
    row, trained = rows.row(0, named=True), next(filter(None, students), None)
    # A study trains the students of a case one by one.
    kept = {} if trained is None else {"seeds": trained.students}
    if rows.height == 1 and row["weight_decay"] != 0:  # without it, theory needs many samples
        low, high = (float(f"{row['alpha'] * factor:.2g}") for factor in (0.25, 4))
        curve = parse_range("alpha", f"{low:g}:{high:g}:16")
        commands[command(result, alpha=curve, simulate=None)] = "how the error falls with more samples"
    if trained is None:
        size = _trainable_size(rows)
        if size is not None:
            commands[command(result, simulate=size, seeds=4)] = "train real students to compare"
    elif trained.students == 1:
        commands[command(result, seeds=4)] = "four students and a standard error"
    elif len(trained.sizes) == 1:
        sizes = [trained.largest, 2 * trained.largest]
        commands[command(result, simulate=sizes, **kept)] = "does a difference vanish at a larger dimension?"
    known = rows["threshold_own_recovery"].count() > 0
    if not known and row["output"] != "hardmax" and measure_of(rows) is ERROR:
        commands[command(result, thresholds=True, **kept)] = "how many samples recover the target"
    commands[command(result, "--details", **kept)] = "all numbers"
    commands[command(result, "--out", "results", **kept)] = "a page with pictures"
    return commands


def _trainable_size(rows: pl.DataFrame) -> int | None:
    """Return a small dimension in which the students of all rows can be trained; None if there is none."""
    with_spectrum = rows["target_eigenvalues"].count() + rows["target_exponent"].count()
    if with_spectrum or (rows["student"] == "bayes").any():
        return None
    shares = [*rows["target_rank"].drop_nulls().unique(), *rows["width"].drop_nulls().unique()]
    sizes = (size for size in range(30, 61) if all(_is_whole(size * share) for share in shares))
    return next(sizes, None)


def _is_whole(number: float) -> bool:
    return abs(number - round(number)) < 1e-9 and round(number) >= 1
