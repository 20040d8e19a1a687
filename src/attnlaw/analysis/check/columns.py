"""The columns of the tables that a gate reads and writes. Missing values are null."""

from __future__ import annotations

from attnlaw.analysis.columns import FINDINGS as AUDITED
from attnlaw.analysis.columns import LEVELS, LOCATION, VERSION, Text
from attnlaw.core.quantity import Quantity

MODEL = LOCATION[0]
VERDICTS = (
    MODEL,
    Text("rule", "name of the rule, as in the rule file"),
    Text("of", "table of results that the rule checks, such as matrices"),
    Text("asked", "condition that the values must meet, such as < 0.25"),
    Text("level", "how serious a failure of the rule is: off, note, warning or error"),
    Text("outcome", "result of the rule: passed, failed or off"),
    Quantity("selected", "number of rows that the rule checked", kind="int"),
    Quantity("held", "number of checked rows that meet the condition", kind="int"),
    Quantity(
        "value", "value that the rule compared with its limit: the worst row, or one number from all rows"
    ),
    Quantity("failures", "matrices, layers or tensors that fail the rule, worst first", kind="texts"),
    Text("remark", "result of the rule in words"),
    VERSION,
)
VERDICT_VALUES = (
    MODEL,
    Text("rule", "name of the rule, as in the rule file"),
    Text("found", "value that the rule compared with its limit, as text"),
)
FINDINGS = (
    *AUDITED,
    Quantity(
        "known", "whether the baseline already had this finding, so that it does not count", kind="bool"
    ),
    VERSION,
)
QUANTITIES = (
    Text("headline", "result of the check in one sentence"),
    Text(
        "not_checked", "properties that nobody can check from the weights alone, such as the number of heads"
    ),
    Quantity("passed", "whether the model passed the check", kind="bool", in_summary=True),
    Quantity("exit_status", "exit status of the command: 0 if the model passed, 3 if it failed", kind="int"),
    Text("fail_on", "lowest severity that fails the check: warning or error"),
    Quantity("rule_count", "number of rules that were applied", kind="int", in_summary=True),
    Quantity(
        "failed_rules",
        "number of rules that failed, including those that do not fail the check",
        kind="int",
        in_summary=True,
    ),
    *(
        Quantity(
            f"{level}s",
            f"number of {level}s that attnlaw found and that the baseline does not have",
            kind="int",
            in_summary=True,
        )
        for level in reversed(LEVELS)
    ),
    Quantity(
        "known_findings",
        "number of findings that do not count, because the baseline already had them",
        kind="int",
    ),
)


TENSORS = (
    *(column for column in LOCATION if column.name != "head"),
    Text("tensor", "name of the tensor in the file, with an index if the tensor is a stack of matrices"),
    Text("role", "what the tensor is: map (a weight matrix), embedding, gain, vector (a bias) or other"),
    Text("dtype", "data type of the tensor in the file"),
    Quantity("quantised", "whether the tensor is stored in a quantised format", kind="bool"),
    Quantity("not_finite", "number of entries of the tensor that are NaN or infinite", kind="int"),
    Quantity("peak", "largest absolute value in the tensor; null if an entry is NaN or infinite"),
    Quantity("constant", "whether all entries of the tensor are equal", kind="bool"),
    Quantity("zero_rows", "number of rows of the tensor in which every entry is 0", kind="int"),
    Quantity("zero_columns", "number of columns of the tensor in which every entry is 0", kind="int"),
    Quantity(
        "distinct",
        "number of different values among 32 neighbouring entries of a row (median); small if the "
        "tensor was quantised",
    ),
    Quantity(
        "decibels",
        "signal-to-noise ratio of the tensor's quantisation in dB; null without quantisation, or if "
        "attnlaw does not know the format",
    ),
    Text("twin", "name of the first tensor in the file that has exactly the same bits"),
)
