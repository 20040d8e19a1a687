"""The answer of a comparison: what changed, where and how much, what it looks like, and what to do next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlaw.analysis.diff.summary import status_of
from attnlaw.checkpoints.hub import is_hub_id
from attnlaw.core.answer import Answer, Line
from attnlaw.core.estimate import Outcome
from attnlaw.core.tables import short_names
from attnlaw.render.model_names import model_names
from attnlaw.verbs.diff import DiffSettings
from attnlaw.verbs.typed import words_of

if TYPE_CHECKING:
    from attnlaw.core.result import Result

SENTENCE_END = re.compile(r"(?<=\.) ")
MOST_SENTENCES = 8  # a longer answer goes on in --details
# Settings that say how to open the model and the base; a further command needs them, too.
OPENING = ("heads", "map", "adapter", "unscaled")
CHOSEN = ("layers", "only", "applied", "no_match")


def answer(result: Result, details: bool = False) -> Answer:
    """Return the findings about one model, or a line for each. With `details`, the lines may be long."""
    rows = [row for row in result.rows.iter_rows(named=True) if row["status"] != Outcome.FAILED]
    if len(rows) == 1:
        return Answer(_lines(rows[0], details), _next_commands(rows, not details))
    names = short_names(model_names(result))
    given = dict(zip(result.rows["model"], names.values(), strict=False))
    lines = []
    for row in rows:
        known = _sentences(row)
        more = (row["next_step"],) if row["next_step"] else ()
        lines.append(Line(f"{given[row['model']]}: {' '.join(known[:2])}", status_of(row), more))
    return Answer(tuple(lines), _next_commands(rows, not details))


def _lines(row: Mapping[str, Any], details: bool) -> tuple[Line, ...]:
    sentences = _sentences(row)
    count = len(sentences) if details else MOST_SENTENCES
    rest = len(sentences) - count
    more = [f"{rest} more findings: see --details."] if rest > 0 else []
    texts = [*sentences[:count], *more, row["next_step"], row["compared"]]
    first, *others = (text for text in texts if text)
    return (Line(first, status_of(row)), *map(Line, others))


def _sentences(row: Mapping[str, Any]) -> list[str]:
    return SENTENCE_END.split(row["verdict"])


def _next_commands(rows: Sequence[Mapping[str, Any]], again: bool) -> dict[str, str]:
    """Return further commands, and `again` those that show more. There are none for models in memory."""
    base, models = str(rows[0]["base"]), list(dict.fromkeys(str(row["model"]) for row in rows))
    known = all(is_hub_id(model) or Path(model).exists() for model in (base, *models))
    if any(row["name"] is not None for row in rows) or not known:
        return {}
    opening, chosen = (words_of(DiffSettings, rows[0], names) for names in (OPENING, CHOSEN))
    # An audit does not accept NaN.
    sound = list(dict.fromkeys(str(row["model"]) for row in rows if "non-finite" not in row["verdicts"]))
    whose = "the model itself" if len(sound) == 1 else "the models themselves"
    audit = {shlex.join(["attnlaw", "audit", *sound, *opening]): f"norms, ranks and problems of {whose}"}
    audit = audit if sound else {}
    if all(set(row["verdicts"]) <= {"identical"} for row in rows):
        return audit
    words = ["attnlaw", "diff", base, *models, *opening, *chosen]
    more = {
        shlex.join([*words, "--details"]): "every head: sizes, ranks, new directions",
        shlex.join([*words, "--out", "results"]): "an interactive page",
    }
    gate = ["attnlaw", "check", *models, *opening, "--rules", "fine-tune", "--base", base]
    return (more if again else {}) | audit | {shlex.join(gate): "pass or fail"}
