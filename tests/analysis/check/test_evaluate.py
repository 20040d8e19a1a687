"""A rule over rows, against the same rule in plain Python; what is missing, gone or not there fails."""

from __future__ import annotations

import math
import operator
import random
import statistics

import polars as pl
import pytest
from analysis.check.frames import heads, one_rule, table

from attnlaw.analysis.check.evaluate import evaluate

COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
OVER = {
    "max": max,
    "min": min,
    "median": statistics.median,
    "mean": statistics.fmean,
    "sum": math.fsum,
    "count": len,
}
KINDS = ("qk", "vo", "ffn_in")


def naive(rule, rows, old=None):
    """Outcome, rows that hold and rows selected, in plain Python; `old` has values by place."""
    depth = 1 + max(row["layer"] for row in rows)
    layers = range(depth)
    if isinstance(rule["layer"], str):
        start, stop = rule["layer"].split(":")
        layers = layers[int(start) if start else None : int(stop) if stop else None]
    elif rule["layer"] is not None:
        layers = [layers[number] for number in rule["layer"] if -depth <= number < depth]
    chosen = [row for row in rows if row["kind"] in rule["kinds"] and row["layer"] in layers]
    values = []
    for row in chosen:
        value = row["size"]
        if old is not None:
            before = old.get((row["layer"], row["kind"], row["head"]))
            value = None if value is None or not before else value / before - 1
        values.append(None if value is None or math.isnan(value) else value)
    known = [value for value in values if value is not None]
    looked_at = known if rule["missing"] == "skip" else values
    if not looked_at:
        return "failed", 0, 0
    compare, bound = COMPARISONS[rule["operator"]], rule["bound"]
    if rule["over"]:
        held = len(known) == len(looked_at) and compare(OVER[rule["over"]](known), bound)
        return "passed" if held else "failed", len(known), len(looked_at)
    count = sum(compare(value, bound) for value in known)
    share = 1.0 if rule["mostly"] is None else rule["mostly"]
    return "passed" if count / len(looked_at) >= share else "failed", count, len(looked_at)


def drawn(draw: random.Random):
    """Rows with ties, missing values and NaN, the same rows of a baseline, and a rule about them."""
    grid = [0.0, 0.25, 0.5, 1.0, 2.0]
    rows, old = [], {}
    for layer in range(draw.randint(1, 4)):
        for kind in KINDS:
            for head in range(2) if kind != "ffn_in" else [None]:
                size = draw.choice([*grid, *grid, None, math.nan, math.inf])
                rows.append({"layer": layer, "kind": kind, "head": head, "size": size})
                old[layer, kind, head] = draw.choice([*grid, None])
    mode = draw.choice(["every", "mostly", *OVER])
    rule = {
        "kinds": draw.choice([KINDS, ("qk",), ("qk", "vo")]),
        "layer": draw.choice([None, "0:-1", "1:", [0], [-1], [0, -1]]),
        "operator": draw.choice(list(COMPARISONS)),
        "bound": draw.choice([0.0, 0.25, 0.5, 1.0, 3.0]),
        "over": mode if mode in OVER else None,
        "mostly": draw.choice([0.25, 0.5, 0.75, 0.9]) if mode == "mostly" else None,
        "missing": draw.choice(["error", "skip", "skip"]),
        "against": draw.random() < 0.3,
    }
    return rows, old, rule


@pytest.mark.parametrize("seed", range(8))
def test_random_rules_over_random_rows(tmp_path, seed):
    draw = random.Random(seed)
    seen = set()
    for _ in range(40):
        rows, old, spec = drawn(draw)
        keys = {key: spec[key] for key in ("over", "mostly", "missing") if spec[key] is not None}
        where = {"kind": list(spec["kinds"])} | ({} if spec["layer"] is None else {"layer": spec["layer"]})
        if spec["against"]:
            keys["against"] = "baseline"
        rule = one_rule(tmp_path, where=where, **keys, **{"is": f"{spec['operator']} {spec['bound']}"})
        before = None
        if spec["against"]:
            before = heads(old)
        now = heads({(row["layer"], row["kind"], row["head"]): row["size"] for row in rows})
        verdict = evaluate(rule, now, before)
        expected = naive(spec, rows, old if spec["against"] else None)
        assert (verdict.outcome, verdict.held, verdict.selected) == expected, (spec, rows)
        seen.add(verdict.outcome)
    assert seen == {"passed", "failed"}


def test_a_rule_that_selects_no_row_fails(tmp_path):
    rows = heads({(0, "qk", 0): 0.1})
    for keys in ({"where": {"kind": "vo"}}, {"where": {"layer": 7}}, {"over": "count", "where": {"head": 9}}):
        verdict = evaluate(one_rule(tmp_path, **keys), rows)
        assert verdict.outcome == "failed"
        assert str(verdict).startswith("no row matches")
    assert evaluate(one_rule(tmp_path), rows.clear()).outcome == "failed"
    nulls = evaluate(one_rule(tmp_path, missing="skip"), heads({(0, "qk", 0): None}))
    assert (nulls.outcome, str(nulls)[:22]) == ("failed", "all values are missing")


def test_a_number_that_is_none_does_not_hold(tmp_path):
    """To polars NaN is larger than every number: `> 18` would hold."""
    rule = one_rule(tmp_path, **{"is": "> 18"})
    verdict = evaluate(rule, heads({(0, "qk", 0): math.nan, (0, "qk", 1): 20.0}))
    assert (verdict.outcome, verdict.held, verdict.selected) == ("failed", 1, 2)
    assert [str(failure) for failure in verdict.failures] == ["layer 0, QK, head 0: no value"]
    assert evaluate(rule, heads({(0, "qk", 0): math.inf})).outcome == "passed"


def test_the_share_of_mostly_is_reached_by_exactly_that_share(tmp_path):
    rule = one_rule(tmp_path, mostly=0.95)
    for failing, outcome in ((3, "passed"), (4, "failed")):
        sizes = {(0, "qk", head): 1.0 if head < failing else 0.1 for head in range(60)}
        verdict = evaluate(rule, heads(sizes))
        assert (verdict.outcome, verdict.held) == (outcome, 60 - failing)


def test_failures_are_told_worst_first(tmp_path):
    sizes = {(0, "qk", 0): 0.3, (1, "qk", 0): 0.9, (2, "vo", 1): 0.1}
    verdict = evaluate(one_rule(tmp_path), heads(sizes))
    assert [str(failure) for failure in verdict.failures] == [
        "layer 1, QK, head 0: 0.9",
        "layer 0, QK, head 0: 0.3",
    ]
    assert verdict.value == 0.9
    assert str(verdict) == "1 of 3 rows hold, expected size < 0.25; the worst is layer 1, QK, head 0: 0.9"
    above = evaluate(one_rule(tmp_path, **{"is": "> 0.5"}), heads(sizes))
    assert [failure.value for failure in above.failures] == [0.1, 0.3]
    exactly = evaluate(one_rule(tmp_path, **{"is": "== 0.3"}), heads(sizes))
    assert [failure.value for failure in exactly.failures] == [0.9, 0.1]


def test_texts_and_truth_values(tmp_path):
    rows = table("diff_tensors", [{"tensor": "a", "verdict": "rounded"}, {"tensor": "b", "verdict": "dense"}])
    rule = one_rule(tmp_path, of="diff_tensors", column="verdict", **{"is": ["identical", "rounded"]})
    verdict = evaluate(rule, rows)
    assert (verdict.outcome, [str(failure) for failure in verdict.failures]) == ("failed", ["b: dense"])
    assert evaluate(rule, rows.head(1)).outcome == "passed"
    latent = table("diff", [{"layer": 0, "kind": "qk", "latent": flag} for flag in (True, False, False)])
    assert evaluate(one_rule(tmp_path, column="latent", **{"is": "== false"}), latent).held == 2
    share = evaluate(one_rule(tmp_path, column="latent", over="mean", **{"is": "< 0.5"}), latent)
    assert (share.outcome, share.value) == ("passed", pytest.approx(1 / 3))


def test_numbers_of_a_selection_are_numbers_whatever_their_kind(tmp_path):
    rows = heads({(0, "qk", 0): 1.0, (0, "qk", 1): 0.5})
    for where, selected in (({"head": 1}, 1), ({"head": 1.0}, 1), ({"size": 1}, 1), ({"head": [0, 1]}, 2)):
        assert evaluate(one_rule(tmp_path, where=where), rows).selected == selected


def test_a_rule_that_is_off_looks_at_nothing(tmp_path):
    assert evaluate(one_rule(tmp_path, level="off"), pl.DataFrame()).outcome == "off"


def test_rows_that_are_gone_fail_whatever_the_share(tmp_path):
    rule = one_rule(tmp_path, against="baseline", mostly=0.01, where={"kind": ["qk", "vo"]})
    now = heads({(0, "qk", 0): 1.0, (0, "ffn_in", None): 1.0})
    old = heads({(0, "qk", 0): 1.0, (0, "vo", 0): 1.0, (1, "ffn_in", None): 1.0})
    verdict = evaluate(rule, now, old)
    assert (verdict.outcome, verdict.held) == ("failed", 1)
    assert [str(failure) for failure in verdict.failures] == [
        "layer 0, VO, head 0: this model does not have it"
    ]
    assert evaluate(rule, now, old.filter(pl.col("kind") != "vo")).outcome == "passed"


def test_updates_of_several_weights_of_a_layer_are_told_apart_by_their_order(tmp_path):
    rule = one_rule(tmp_path, against="baseline", **{"is": "== 0"})
    rows = [{"layer": 0, "kind": "lora", "size": size} for size in (1.0, 5.0)]
    assert evaluate(rule, table("diff", rows), table("diff", rows)).outcome == "passed"
    assert evaluate(rule, table("diff", rows), table("diff", rows[::-1])).outcome == "failed"
    (gone,) = evaluate(rule, table("diff", rows[:1]), table("diff", rows)).failures
    assert gone.why == "this model does not have it"
