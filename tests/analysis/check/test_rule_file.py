"""A rule file: what is wrong with it is one line with the file and the rule, and exit status 2."""

from __future__ import annotations

import pickle
from pathlib import Path

import polars as pl
import pytest
from analysis.check.frames import FINDINGS, TABLES, one_rule, written

from attnlaw.analysis.check.evaluate import evaluate
from attnlaw.analysis.check.rule_file import BadUsage, example_names, read_rules
from attnlaw.analysis.diff.columns import DIFF_TENSORS
from attnlaw.core.errors import BadSetting, as_option

RULE = '[[rule]]\nname = "near"\nof = "diff"\ncolumn = "size"\nis = "< 0.25"\n'


def test_everything_that_a_file_may_say(tmp_path):
    (tmp_path / "base").mkdir()
    rule_file = written(
        tmp_path,
        """
        fail_on = "warning"
        base = "base"
        [findings]
        ignore = ["random-head"]
        levels = { random-head = "error" }
        thresholds = { unbalanced = 2.5 }
        [[rule]]
        name = "near the base"
        of = "diff"
        where = { kind = ["qk", "vo"], layer = "0:-1", head = 3 }
        column = "size"
        is = "< 0.25"
        mostly = 0.95
        against = "baseline"
        level = "note"
        missing = "skip"
        """,
    )
    assert (rule_file.fail_on, rule_file.base) == ("warning", str(tmp_path / "base"))
    assert (rule_file.ignore, dict(rule_file.levels), dict(rule_file.thresholds)) == (
        ("random-head",),
        {"random-head": "error"},
        {"unbalanced": 2.5},
    )
    (rule,) = rule_file.rules
    assert (rule.name, rule.of, rule.column.name, rule.level, rule.missing) == (
        "near the base",
        "diff",
        "size",
        "note",
        "skip",
    )
    assert dict(rule.where) == {"kind": ("qk", "vo"), "head": (3.0,)}
    assert (rule.layers, rule.mostly, rule.against) == ("0:-1", 0.95, "baseline")
    assert str(rule) == "relative change of size since the baseline < 0.25 in at least 95% of rows"


def test_a_base_that_is_not_on_disk_is_an_id_of_a_hub(tmp_path):
    assert written(tmp_path, 'base = "owner/name"').base == "owner/name"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('fail_on = "note"', "fail_on: found 'note', expected one of warning, error"),
        ("base = 3", "base: found 3, expected a path, or owner/name on a model hub"),
        ('[findings]\nignor = ["random-head"]', "unknown key ignor in [findings]; did you mean ignore?"),
        ('[findings]\nignore = ["random-haed"]', "unknown finding random-haed; did you mean random-head?"),
        (
            '[findings]\nignore = "random-head"',
            "ignore: found 'random-head', expected a list with the names of findings",
        ),
        (
            '[findings]\nlevels = { unbalanced = "fatal" }',
            "levels.unbalanced: found 'fatal', expected one of off, note, warning, error",
        ),
        ("[findings]\nthresholds = { unbalancd = 2 }", "unknown finding unbalancd; did you mean unbalanced?"),
        (
            "[findings]\nthresholds = { unbalanced = -1 }",
            "thresholds.unbalanced: found -1, expected a number of at least 0",
        ),
        (
            "[findings]\nthresholds = { non-finite = 1 }",
            "thresholds.non-finite sets a threshold, but this check has none; remove the line",
        ),
        ("rules = []", "unknown key rules; did you mean rule?"),
        ("rule = 3", "rule: found 3, expected tables [[rule]]"),
        (RULE + RULE, "rule 'near': name: found 'near', but another rule has this name; choose another"),
        (
            RULE.replace("near", "unbalanced"),
            "rule 'unbalanced': name: found 'unbalanced', but a finding has this name; choose another",
        ),
        (RULE.replace("near", " "), "rule ' ': name: found ' ', expected a name"),
        (RULE.replace("size", "siez"), "rule 'near': unknown column siez in table diff; did you mean size?"),
        (
            RULE.replace("size", "values"),
            "rule 'near': the column values holds lists; choose a column that has one value in each row",
        ),
        (RULE.replace("column", "colum"), "rule 'near': unknown key colum; did you mean column?"),
        (RULE.replace('is = "< 0.25"\n', ""), "rule 'near': \"is\" is missing"),
        (RULE.replace('name = "near"\n', ""), "rule 1: name is missing"),
        (RULE.replace('"near"', "7"), "rule 1: name: found 7, expected a text"),
        (
            RULE.replace('"diff"', '"dif"'),
            "rule 'near': of: found 'dif', expected one of matrices, layers, fits, summary, tensors, diff, "
            "diff_tensors, steps",
        ),
        (
            RULE.replace('"diff"', '"steps"'),
            "rule 'near': it reads the table steps, which only a training run has; give these rules to "
            "SpectralMonitor(rules=...)",
        ),
        (
            RULE.replace('"diff"', '"fits"'),
            "rule 'near': of: found 'fits', but attnlaw has no such table here; expected one of diff, "
            "diff_tensors, summary",
        ),
        *(
            (
                RULE.replace("< 0.25", bad),
                f"rule 'near': \"is\": found {bad!r}, expected a comparison such as",
            )
            for bad in ("0.25", "<", "=< 1", "< nan", "< a quarter", "")
        ),
        (RULE.replace('"< 0.25"', '["a"]'), "rule 'near': \"is\": found 'a', but size holds numbers"),
        (
            RULE.replace('"< 0.25"', "[]"),
            'rule \'near\': "is": found [], expected a comparison such as "< 0.25", or',
        ),
        (
            RULE.replace("size", "route"),
            "rule 'near': \"is\": found '< 0.25', but route does not hold numbers; expected ==, != or a list",
        ),
        (RULE + 'over = "max"\nmostly = 0.5', "rule 'near': over cannot be combined with mostly; choose one"),
        (
            RULE + 'over = "most"',
            "rule 'near': over: found 'most', expected one of max, min, median, mean, sum, count",
        ),
        (
            RULE.replace("size", "route") + 'over = "max"',
            "rule 'near': over: found 'max', but route holds text and not numbers; write",
        ),
        (RULE + "mostly = 95", "rule 'near': mostly: found 95, expected a number above 0 and of at most 1"),
        (
            RULE + 'against = "first"',
            "rule 'near': against: found 'first', which works only with of = \"steps\"; write \"baseline\"",
        ),
        (
            RULE.replace("size", "latent").replace("< 0.25", "== true") + 'against = "baseline"',
            "rule 'near': against: found 'baseline', but latent does not hold numbers",
        ),
        (
            RULE + "where = 3",
            "rule 'near': where: found 3, expected a table whose keys are columns and "
            "whose values are allowed",
        ),
        (
            RULE + 'where = { kid = "qk" }',
            "rule 'near': unknown column kid in table diff; did you mean kind?",
        ),
        (
            RULE + 'where = { kind = "cros_qk" }',
            "rule 'near': where.kind: found 'cros_qk', did you mean cross_qk?",
        ),
        (RULE + 'where = { head = "0" }', "rule 'near': where.head: found '0', but head holds numbers"),
        (
            RULE + 'where = { layer = "first" }',
            "rule 'near': where.layer: found 'first', expected a number, a list of numbers, or a slice",
        ),
        (
            RULE + 'where = { layer = "0:x" }',
            "rule 'near': where.layer: found '0:x', expected START:STOP, such as 0:4",
        ),
        (RULE + 'where = { layer = "::0" }', "rule 'near': where.layer: found '::0', expected START:STOP"),
        (
            RULE + 'level = "fatal"',
            "rule 'near': level: found 'fatal', expected one of off, note, warning, error",
        ),
        (RULE + 'missing = "pass"', "rule 'near': missing: found 'pass', expected one of error, skip"),
    ],
)
def test_a_mistake_is_one_line_with_the_file_and_the_rule(tmp_path, text, line):
    with pytest.raises(BadSetting) as error:
        written(tmp_path, text)
    said = error.value.message(as_option)
    assert said.startswith(f"{tmp_path / 'rules.toml'}: {line}")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("", "version is missing from the file; write version = 1 in its first line"),
        (
            "version = 2\n",
            "version: found 2, which attnlaw does not read; write version = 1 in the first line",
        ),
        (
            "version = true\n",
            "version: found True, which attnlaw does not read; write version = 1 in the first line",
        ),
        (
            'version = "1"\n',
            "version: found '1', which attnlaw does not read; write version = 1 in the first line",
        ),
    ],
)
def test_a_file_states_its_version(tmp_path, head, line):
    with pytest.raises(BadUsage) as caught:
        written(tmp_path, "", head)
    assert str(caught.value) == f"{tmp_path / 'rules.toml'}: {line}"


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(BadUsage, match=r"none\.toml: no such file; give a rule file, or one of "):
        read_rules(tmp_path / "none.toml", TABLES, FINDINGS)
    with pytest.raises(BadUsage, match="not valid TOML"):
        written(tmp_path, "[[rule")
    with pytest.raises(BadUsage, match="an integer of more than 64 bits"):
        written(tmp_path, f"fail_on = 0x{'f' * 40}")
    (tmp_path / "rules.toml").write_bytes(b"version = 1\n#" + b"x" * 2**20)
    with pytest.raises(BadUsage, match="larger than 1 MB"):
        read_rules(tmp_path / "rules.toml", TABLES, FINDINGS)


def test_a_mistake_keeps_its_line_on_its_way_between_processes(tmp_path):
    with pytest.raises(BadUsage) as error:
        written(tmp_path, "rules = {}")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_conditions(tmp_path):
    assert one_rule(tmp_path, column="route", **{"is": "== gram"}).condition.values == ("gram",)
    assert one_rule(tmp_path, column="latent", **{"is": "!= true"}).condition.values == (True,)
    assert one_rule(tmp_path, column="rank", **{"is": [1, 2]}).condition.values == (1.0, 2.0)
    assert one_rule(tmp_path, **{"is": ">= -1e-3"}).condition.values == (-1e-3,)


def test_the_name_of_an_example_is_the_example_unless_a_file_has_it(tmp_path, monkeypatch):
    assert example_names() == ["export", "fine-tune", "release", "watchdog"]
    monkeypatch.chdir(tmp_path)
    assert read_rules("release", TABLES, FINDINGS).fail_on == "warning"
    Path("release").write_text("version = 1\n")
    assert read_rules("release", TABLES, FINDINGS).fail_on == "error"


def test_a_rule_that_forbids_a_verdict_forbids_what_was_split_from_it(tmp_path):
    """Version 0.2.0 called a moved tensor unrelated. A gate against unrelated weights must still see it."""
    text = (
        'version = 1\n[[rule]]\nname = "kin"\nof = "diff_tensors"\ncolumn = "verdict"\nis = "!= unrelated"\n'
    )
    (tmp_path / "rules.toml").write_text(text)
    (rule,) = read_rules(tmp_path / "rules.toml", {"diff_tensors": DIFF_TENSORS}, {}).rules
    rows = pl.DataFrame({"tensor": list("abc"), "verdict": ["identical", "moved", "dense"]})
    verdict = evaluate(rule, rows)
    assert (verdict.outcome, verdict.selected, verdict.held) == ("failed", 3, 2)
    assert str(rule).startswith("verdict is not unrelated or ")
