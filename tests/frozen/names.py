"""What 0.2.0 calls the values of 0.1.0: the table through which the comparer reads.

A value has a path such as `learn/0/prediction/norm` (the verb, the case, the keys of JSON) or
`matrices.parquet/17/share` (the file, the row, the column). Before rules apply, the JSON of 0.1.0 is laid
out by case, as that of 0.2.0 is: `limit` a case for each (heads, width), `learn --simulate` a second one
beside each, `lens` with a row for each pair of tokens.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from typing import Any

Cases = dict[str, list[Any]]
Rule = tuple[str, tuple[str, ...]]  # a pattern of the old path, and where to look for it in the new output

SAME: Rule = (r"(.*)", (r"\1",))

RULES: dict[str, tuple[Rule, ...]] = {
    "audit": (SAME,),
    "fit": (
        (r"model", (r"settings/model", r"model")),
        (r"not_random/(\w+)", (r"quantities/not_random_\1", r"quantities/\1", r"quantities/\1/value")),
        (r"matrices/(\d+)/alpha/value", (r"tables/fits/\1/alpha/value", r"tables/fits/\1/alpha")),
        (r"matrices/(\d+)/alpha/error", (r"tables/fits/\1/alpha/error", r"tables/fits/\1/alpha_error")),
        (r"matrices/(\d+)/alpha/p_value", (r"tables/fits/\1/alpha_p_value",)),
        (r"matrices/(\d+)/(\w+)", (r"tables/fits/\1/\2/value", r"tables/fits/\1/\2")),
        (r"attnlaw_version", (r"version",)),
    ),
    "learn": (
        (r"problem/target/rank_ratio", (r"settings/target_rank",)),
        (r"problem/target/exponent", (r"settings/target_exponent",)),
        (r"problem/target/dimension", (r"settings/target_dimension",)),
        (r"problem/target/spikes/0", (r"settings/target_spike",)),
        (r"problem/(.*)", (r"settings/\1",)),
        (r"prediction/error/(\w+)", (r"quantities/\1/error",)),
        (r"prediction/spectrum/edges/(\d+)/0", (r"tables/edges/\1/low",)),
        (r"prediction/spectrum/edges/(\d+)/1", (r"tables/edges/\1/high",)),
        (r"prediction/spectrum/outliers/(\d+)/(\w+)", (r"tables/outliers/\1/\2",)),
        (r"prediction/spectrum/(\w+)", (r"quantities/\1/value", r"quantities/\1")),
        (r"prediction/status", (r"status",)),
        (r"prediction/(\w+)", (r"quantities/\1/value", r"quantities/\1")),
        (r"thresholds/(\w+)", (r"quantities/threshold_\1/value", r"quantities/threshold_\1")),
    ),
    "learn.simulate": (
        (r"size", (r"settings/simulate",)),
        (r"(seeds|seed|sensing)", (r"settings/\1",)),
        (r"(\w+)/mean", (r"quantities/\1/value",)),
        (r"(\w+)/standard_error", (r"quantities/\1/error",)),
        (r"status", (r"status",)),
        (r"(\w+)", (r"quantities/\1/value", r"quantities/\1")),
    ),
    "limit": (
        (r"path/(\d+)/depth", (r"tables/path/\1/depth",)),
        (r"path/(\d+)/(\w+)/value", (r"tables/path/\1/\2/value", r"tables/path/\1/\2")),
        (r"path/(\d+)/(\w+)/error", (r"tables/path/\1/\2/error", r"tables/path/\1/\2_error")),
        (r"(\w+)/(value|error)", (r"quantities/\1/\2",)),
        (r"(\w+)", (r"settings/\1", r"quantities/\1/value", r"quantities/\1")),
    ),
    "lens": (
        (r"ids/(\d+)", (r"settings/ids/\1",)),
        (r"singular_values/values/(\d+)", (r"tables/singular_values/\1/value", r"tables/singular_values/\1")),
        (r"singular_values/residual", (r"quantities/singular_values_residual",)),
        (r"pairs/(\d+)/norm", (r"tables/token_map/\1/norm/value", r"tables/token_map/\1/norm")),
        (r"pairs/(\d+)/error", (r"tables/token_map/\1/norm/error", r"tables/token_map/\1/norm_error")),
        (r"pairs/(\d+)/rollout", (r"tables/token_map/\1/rollout",)),
        (r"probes", (r"quantities/probes",)),
        (r"status", (r"status",)),
        (r"(\w+)", (r"quantities/\1/value", r"quantities/\1", r"settings/\1")),
    ),
    "study": ((r"(.*)", (r"\1", r"quantities/\1")),),
    "fits.parquet": ((r"noise_(low|high)", (r"noise_\1", r"noise_level_\1")), SAME),
    "rows/rows.parquet": (
        (r"(\w+)_standard_error", (r"\1_error",)),
        (r"error_of_(\w+)", (r"\1_error",)),
        (r"error", (r"error", r"remark")),
        SAME,
    ),
}

# How 0.1.0 said that something ended, by its first words, and the status of 0.2.0.
OUTCOMES = {
    "converged": "done",
    "exact": "done",
    "fitted": "done",
    "measured": "done",
    "done": "done",
    "recovered": "recovered",
    "residual": "not converged",
    "not converged": "not converged",
    "not fitted": "not fitted",
    "lognormal": "done",  # of a fit: one of its laws was left out, the others stand
    "learned: the law does not fit": "done",
    "reconstruction error": "inexact",
    "failed": "failed",
}

# Differences that are meant: command, path, and why.
REASONS: tuple[tuple[str, str, str], ...] = (
    ("*", "*version", "the version itself"),
    ("*", "*/task_seconds", "a time, not a number of the theory"),
    ("*", "*/task", "a task's key holds the version and the name of its function"),
    ("*", "*_part", "parts are named by their task's key"),
    ("study-atlas", "tables/fits/0/status", "a digest of many statuses; fits.parquet has them one by one"),
    ("learn*", "*/problem/target/kind", "said by target_rank or target_exponent"),
)


def old_cases(verb: str, content: Any) -> Cases:
    """The JSON of 0.1.0 by verb and case."""
    objects = content if isinstance(content, list) else [content]
    return OLD_CASES.get(verb, lambda objects: {verb: objects})(objects)


def new_cases(verb: str, content: Any) -> Cases:
    """The JSON of 0.2.0 by the verb that every case names."""
    cases: Cases = {}
    for case in content if isinstance(content, list) else [content]:
        cases.setdefault(case.get("verb", verb), []).append(case)
    return cases


def _learn_cases(objects: list[Any]) -> Cases:
    trained = [one["simulation"] for one in objects if one["simulation"] is not None]
    theory = [{key: value for key, value in one.items() if key != "simulation"} for one in objects]
    return {"learn": theory, "learn.simulate": trained}


def _limit_cases(objects: list[Any]) -> Cases:
    return {
        "limit": [
            {key: value for key, value in table.items() if key != "rows"} | row
            for table in objects
            for row in table["rows"]
        ]
    }


def _lens_cases(objects: list[Any]) -> Cases:
    return {"lens": [_lens_case(dict(one)) for one in objects]}


def _lens_case(case: dict[str, Any]) -> dict[str, Any]:
    found, rollout = case.pop("token_map"), case.pop("rollout")
    return case | {
        "probes": found["probes"],
        "pairs": [
            {"norm": norm, "error": error, "rollout": weight}
            for rows in zip(found["norms"], found["errors"], rollout, strict=True)
            for norm, error, weight in zip(*rows, strict=True)
        ],
    }


OLD_CASES: dict[str, Callable[[list[Any]], Cases]] = {
    "learn": _learn_cases,
    "limit": _limit_cases,
    "lens": _lens_cases,
}


def places(path: str) -> Iterator[str]:
    """Where the new output may have the value of an old path, the likeliest first.

    >>> list(places("learn/0/prediction/norm"))
    ['learn/0/quantities/norm/value', 'learn/0/quantities/norm']
    """
    source, case, inner = re.fullmatch(r"((?:rows/|tables/)?[^/]+)/(?:(\d+)/)?(.*)", path).groups()  # type: ignore[union-attr]
    before = f"{source}/" + ("" if case is None else f"{case}/")
    for pattern, templates in RULES.get(source, (SAME,)):
        found = re.fullmatch(pattern, inner)
        if found:
            yield from (before + found.expand(template) for template in templates)
            return


def outcome(status: str) -> str:
    """The status of 0.2.0 for that of 0.1.0.

    >>> outcome("recovered: the error is below what the solver resolves")
    'recovered'
    """
    return next((new for words, new in OUTCOMES.items() if status.startswith(words)), status)


def reason(command: str, path: str) -> str | None:
    """Why a difference at this path is meant, None where it is not."""
    for commands, paths, why in REASONS:
        if fnmatch.fnmatchcase(command, commands) and fnmatch.fnmatchcase(path, paths):
            return why
    return None
