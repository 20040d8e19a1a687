"""What 0.2.0 calls the values of 0.1.0: the table through which the comparer reads.

A value has a path such as `learn/0/prediction/norm` (the verb, the case, the keys of JSON) or
`matrices.parquet/17/share` (the file, the row, the column). Before rules apply, the JSON of 0.1.0 is laid
out by case, as that of 0.2.0 is: `limit` a case for each (heads, width), `learn --simulate` a second one
beside each, and its edges and outliers as lists of numbers, `lens` with a row for each pair of tokens. Its
statuses are cut in two, status and remark.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from typing import Any

Cases = dict[str, list[Any]]
# A pattern of an old path, and where to look for it: in the same file and case, or from the root after a "/".
Rule = tuple[str, tuple[str, ...]]

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
        (r"prediction/spectrum/(edges|outlier_\w+)/(\d+)", (r"quantities/\1/\2",)),
        (r"prediction/spectrum/(\w+)", (r"quantities/\1/value", r"quantities/\1")),
        (r"prediction/(status|remark)", (r"\1",)),
        (r"prediction/(\w+)", (r"quantities/\1/value", r"quantities/\1")),
        (r"thresholds/(\w+)", (r"quantities/threshold_\1/value", r"quantities/threshold_\1")),
    ),
    "learn.simulate": (
        (r"size", (r"settings/simulate",)),
        (r"(seeds|seed|sensing)", (r"settings/\1",)),
        (r"(\w+)/mean", (r"quantities/\1/value",)),
        (r"(\w+)/standard_error", (r"quantities/\1/error",)),
        (r"(status|remark)", (r"\1",)),
        (r"(\w+)", (r"quantities/\1/value", r"quantities/\1")),
    ),
    "limit": (
        (r"path/(\d+)/(\w+)/(value|error)", (r"quantities/path_\2/\3/\1",)),
        (r"(\w+)/(value|error)", (r"quantities/\1/\2",)),
        (r"(\w+)", (r"settings/\1", r"quantities/\1/value", r"quantities/\1")),
    ),
    "lens": (
        (r"ids/(\d+)", (r"settings/ids/\1",)),
        (r"singular_values/values/(\d+)", (r"quantities/singular_values/\1",)),
        (r"singular_values/residual", (r"quantities/singular_values_residual",)),
        (r"pairs/(\d+)/norm", (r"tables/token_map/\1/norm/value", r"tables/token_map/\1/norm")),
        (r"pairs/(\d+)/error", (r"tables/token_map/\1/norm/error", r"tables/token_map/\1/norm_error")),
        (r"pairs/(\d+)/rollout", (r"tables/token_map/\1/rollout",)),
        (r"probes", (r"quantities/probes",)),
        (r"(?:singular_values/)?(status|remark)", (r"\1",)),
        (r"(\w+)", (r"quantities/\1/value", r"quantities/\1", r"settings/\1")),
    ),
    "lens.json:lens": (
        (r"singular_values/values/(\d+)", (r"/rows.parquet/0/singular_values/\1",)),
        (r"singular_values/residual", (r"/rows.parquet/0/singular_values_residual",)),
        (r"(?:singular_values/)?(status|remark)", (r"/rows.parquet/0/\1",)),
        (r"pairs/(\d+)/(norm|rollout)", (r"/token_map.parquet/\1/\2",)),
        (r"pairs/(\d+)/error", (r"/token_map.parquet/\1/norm_error",)),
        (r"(.*)", (r"/rows.parquet/0/\1",)),
    ),
    "study": ((r"(.*)", (r"\1", r"quantities/\1")),),
    "fits.parquet": ((r"noise_(low|high)", (r"noise_\1", r"noise_level_\1")), SAME),
    "rows/rows.parquet": (
        (r"(\w+)_standard_error", (r"\1_error",)),
        (r"error_of_(\w+)", (r"\1_error",)),
        SAME,
    ),
    "count": ((r"lens\.json:lens", (r"/count/rows.parquet",)), SAME),
    "wrote": (
        (r"lens_map\.html", (r"report.html",)),
        (r"lens_map\.png", (r"figures/lens_map.png",)),
        SAME,
    ),
}

# The first words of a status of 0.1.0, up to its colon, and the status of 0.2.0; what follows is its remark.
OUTCOMES = {
    "converged": "done",
    "exact": "done",
    "fitted": "done",
    "done": "done",
    "recovered": "recovered",
    "not fitted": "not fitted",
}
# The laws whose names began the status of a fit that stands, where something is missing of them.
LAWS = ("power-law", "lognormal", "heavy-tailed", "learned")

# Differences that are meant: command, path, and why.
REASONS: tuple[tuple[str, str, str], ...] = (
    ("*", "*version", "the version itself"),
    ("*", "*/task_seconds", "a time, not a number of the theory"),
    ("*", "*/task", "a task's key holds the version and the name of its function"),
    ("*", "*_part", "parts are named by their task's key"),
    ("study-atlas", "tables/fits/0/status", "a digest of many statuses; fits.parquet has them one by one"),
    ("audit-approximate", "*", "estimated from 8192 rows on, not from 4096: all values are found faster"),
    ("audit-*", "wrote/figures/shares.*", "shares that are all the same are told, not drawn"),
    ("*", "*/meaning", "proxies do not rank models, and the words say so"),
    ("audit-map", "*/warnings/*", "norms that a map leaves out are told first"),
    *(
        (command, path, "the learned law may be cut by width, too, and holds lower ranks")
        for command, before in (
            ("fit*", "*"),
            *((audit, "fits.parquet/*") for audit in ("audit-*", "report-audit")),
            ("study-atlas", "tables/fits/*"),
        )
        for path in (
            f"{before}{ending}"
            for ending in (
                *("noise_*", "threshold*", "target_rank*", "*learned*", "remark", "status"),
                *("law", "_count", "/laws/*"),
            )
        )
    ),
    *(
        (command, curves, "the learned law may be cut by width, too, and holds lower ranks")
        for command in ("fit*", "audit-*", "report-audit", "study-atlas")
        for curves in ("curves.parquet/*", "tables/curves/*")
    ),
    ("learn*", "*/residual", "what is left at round-off"),
    ("study-learn-*", "*/residual", "what is left at round-off"),
    ("study-learn-spectrum", "tables/predicted_spectra/*", "digests of points that lie as near as the edges"),
    ("limit*", "*/path/*/depth", "the place in the list"),
    ("limit-gram", "*/tokens", "as many as the matrix has rows"),
    ("limit-embeddings", "*/tokens", "as many as ids"),
    ("learn*", "*/problem/target/kind", "said by target_rank or target_exponent"),
)

# What is equal to so much of itself: commands, paths, how much, and why not in every bit.
TOGETHER = "cases are solved together, and iterations end within 1e-11 of each other"
NEAR: tuple[tuple[str, str, float, str], ...] = (
    ("learn*", "*", 1e-11, TOGETHER),
    ("study-learn-*", "*", 1e-11, TOGETHER),
    (
        "study-learn-scaling",
        "*",
        1e-10,
        "integrals over part of a discrete law's interval are right to 1e-11",
    ),
    # Its equation misses by 5e-16, the round-off of terms of order one, within 4e-9 of the root.
    ("study-learn-phase-diagram", "*/15/*", 1e-8, "an error of 4e-7, known to the round-off of larger terms"),
)

# Values that 0.1.0 left null and 0.2.0 states: command, path, and why.
STATED: tuple[tuple[str, str, str], ...] = (
    ("study-atlas", "rows/*/not_random_*", "an audit says in its row what its summary said"),
    ("study-atlas", "rows/*/remark", "one of the warnings"),
    ("learn-curve-simulate", "learn.simulate/0/remark", "printed beside the JSON before"),
    ("study-learn-*", "rows/*/thresholds", "a training states the settings that it shares with its theory"),
    ("study-learn-*", "rows/*/spectrum", "a training states the settings that it shares with its theory"),
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
    for one in theory:
        one["prediction"] = one["prediction"] | {"spectrum": _as_lists(one["prediction"]["spectrum"])}
    return {"learn": theory} | ({"learn.simulate": trained} if trained else {})


def _as_lists(spectrum: dict[str, Any]) -> dict[str, Any]:
    return {
        "atom_at_zero": spectrum["atom_at_zero"],
        "edges": [end for pair in spectrum["edges"] for end in pair],
        **{
            f"outlier_{name}s": [one[name] for one in spectrum["outliers"]]
            for name in ("target", "location", "overlap")
        },
    }


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

    >>> list(places("learn/0/prediction/norm")), list(places("lens.json:lens/0/layers"))
    (['learn/0/quantities/norm/value', 'learn/0/quantities/norm'], ['rows.parquet/0/layers'])
    """
    source, case, inner = re.fullmatch(r"((?:rows/|tables/)?[^/]+)/(?:(\d+)/)?(.*)", path).groups()  # type: ignore[union-attr]
    before = f"{source}/" + ("" if case is None else f"{case}/")
    rules = RULES.get(source) or RULES.get(source.rpartition(":")[2], (SAME,))
    for pattern, templates in rules:
        found = re.fullmatch(pattern, inner)
        if found:
            for place in map(found.expand, templates):
                yield place[1:] if place.startswith("/") else before + place
            return


def told(values: dict[str, Any]) -> dict[str, Any]:
    """The old values with every status cut in two, as 0.2.0 says it.

    >>> told({"learn/0/status": "recovered: clean labels give the target itself"})
    {'learn/0/status': 'recovered', 'learn/0/remark': 'clean labels give the target itself'}
    >>> told({"fit/0/status": "lognormal: its limit; learned: the law does not fit: withheld"})
    {'fit/0/status': 'done', 'fit/0/remark': 'lognormal: its limit; learned: does not fit: withheld'}
    """
    found: dict[str, Any] = {}
    for path, value in values.items():
        found |= _ending(path, value) if path.endswith("/status") else {path: value}
    return found


def _ending(path: str, status: str) -> dict[str, Any]:
    first, _, rest = status.partition(": ")
    remark = path.removesuffix("status") + "remark"
    if first in OUTCOMES:
        return {path: OUTCOMES[first], remark: rest or None}
    if first in LAWS:
        return {path: "done", remark: status.replace("the law does not fit", "does not fit")}
    return {path: status}


def reason(command: str, path: str, is_null: bool) -> str | None:
    """Why a difference at this path is meant, None where it is not; `is_null` where 0.1.0 had no value."""
    for commands, paths, why in (*REASONS, *STATED) if is_null else REASONS:
        if fnmatch.fnmatchcase(command, commands) and fnmatch.fnmatchcase(path, paths):
            return why
    return None


def near(command: str, path: str, old: Any, new: Any) -> str | None:
    """Why two numbers may differ by as much as they do, None where they may not.

    >>> near("learn", "E", 1.0, 1.0 + 1e-13) is None, near("audit", "E", 1.0, 1.0 + 1e-13) is None
    (False, True)
    """
    if not isinstance(old, float) or not isinstance(new, float):
        return None
    for commands, paths, most, why in NEAR:
        is_meant = fnmatch.fnmatchcase(command, commands) and fnmatch.fnmatchcase(path, paths)
        if is_meant and abs(new - old) <= most * abs(old):
            return why
    return None
