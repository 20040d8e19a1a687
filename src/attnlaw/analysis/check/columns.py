"""The columns of the tables that a gate reads and writes. Missing values are null."""

from __future__ import annotations

from attnlaw.analysis.columns import FINDINGS as AUDITED
from attnlaw.analysis.columns import LEVELS, LOCATION, VERSION, Text
from attnlaw.core.quantity import Quantity

MODEL = LOCATION[0]
VERDICTS = (
    MODEL,
    Text("rule", "name of the rule"),
    Text("of", "table of results whose rows the rule checks"),
    Text("asked", "condition that the rule requires, such as a limit"),
    Text("level", "severity if the rule fails: off, note, warning or error"),
    Text("outcome", "result of the rule: passed, failed or off"),
    Quantity("selected", "number of table rows that the rule checked", kind="int"),
    Quantity("held", "number of checked rows that meet the condition of the rule", kind="int"),
    Quantity("value", "value that the rule compared: from the worst row, or computed from all rows"),
    Quantity("failures", "places in the model that fail the rule, worst first", kind="texts"),
    Text("remark", "result of the rule in words"),
    VERSION,
)
VERDICT_VALUES = (
    MODEL,
    Text("rule", "name of the rule"),
    Text("found", "value that the rule compared, as text"),
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
    Text("not_checked", "properties of the model that its weights alone do not show"),
    Quantity("passed", "whether the model passed the check", kind="bool", in_summary=True),
    Quantity("exit_status", "exit status of the command: 0 if the model passed, 3 if it failed", kind="int"),
    Text("fail_on", "lowest severity that fails the check: warning or error"),
    Quantity("rule_count", "number of rules that were applied", kind="int", in_summary=True),
    Quantity("failed_rules", "number of rules that failed, at any level", kind="int", in_summary=True),
    *(
        Quantity(
            f"{level}s",
            f"number of findings of severity {level} that the baseline does not have",
            kind="int",
            in_summary=True,
        )
        for level in reversed(LEVELS)
    ),
    Quantity("known_findings", "number of findings that the baseline already had", kind="int"),
)


TENSORS = (
    *(column for column in LOCATION if column.name != "head"),
    Text("tensor", "name of the tensor, with a number if the tensor is one matrix of a stack"),
    Text("role", "role of the tensor: map (a weight matrix), embedding, gain, vector (a bias) or other"),
    Text("dtype", "data type of the tensor in the file"),
    Quantity("quantised", "whether the file stores the tensor quantised", kind="bool"),
    Quantity("not_finite", "number of entries of the tensor that are NaN or infinite", kind="int"),
    Quantity("peak", "largest absolute value in the tensor; null if an entry is NaN or infinite"),
    Quantity("constant", "whether all entries of the tensor are equal", kind="bool"),
    Quantity("zero_rows", "number of rows of the tensor in which every entry is 0", kind="int"),
    Quantity("zero_columns", "number of columns of the tensor in which every entry is 0", kind="int"),
    Quantity("distinct", "median number of different values among 32 neighbouring entries of a row"),
    Quantity(
        "decibels",
        "signal-to-noise ratio of the quantisation in dB; null if not quantised or of unknown format",
    ),
    Text("twin", "name of the first tensor in the file that has exactly the same bits"),
)
