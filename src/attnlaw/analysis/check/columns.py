"""The columns of the tables that a gate reads and writes. Missing values are null."""

from __future__ import annotations

from attnlaw.analysis.columns import FINDINGS as AUDITED
from attnlaw.analysis.columns import LOCATION, VERSION
from attnlaw.core.quantity import Quantity

MODEL = LOCATION[0]
VERDICTS = (
    MODEL,
    Quantity("rule", "name of the rule", kind="text"),
    Quantity("of", "table whose rows the rule judges", kind="text"),
    Quantity("asked", "condition that the rule sets", kind="text"),
    Quantity("level", "how serious a failure is: off, note, warning or error", kind="text"),
    Quantity("outcome", "result of the rule: passed, failed or off", kind="text"),
    Quantity("selected", "number of rows that the rule judges", kind="int"),
    Quantity("held", "number of judged rows that meet the condition", kind="int"),
    Quantity("value", "compared value: of the worst row, or the one number that is computed from all rows"),
    Quantity("failures", "places that fail the rule, the worst first", kind="texts"),
    Quantity("remark", "result of the rule in words", kind="text"),
    VERSION,
)
VERDICT_VALUES = (
    MODEL,
    Quantity("rule", "name of the rule", kind="text"),
    Quantity("found", "compared value as text", kind="text"),
)
FINDINGS = (
    *AUDITED,
    Quantity(
        "known", "whether the baseline has the same finding, which therefore does not count", kind="bool"
    ),
    VERSION,
)
QUANTITIES = (
    Quantity("headline", "result of the gate in one sentence", kind="text"),
    Quantity("not_checked", "properties that weights alone do not show", kind="text"),
    Quantity("passed", "whether the model passed the gate", kind="bool", in_summary=True),
    Quantity("exit_status", "exit status of the command: 0 if the model passed, 3 if it failed", kind="int"),
    Quantity("fail_on", "lowest level that fails the gate: warning or error", kind="text"),
    Quantity("rule_count", "number of rules that were applied", kind="int", in_summary=True),
    Quantity("failed_rules", "number of rules that failed, at any level", kind="int", in_summary=True),
    Quantity("errors", "number of new findings of level error", kind="int", in_summary=True),
    Quantity("warnings", "number of new findings of level warning", kind="int", in_summary=True),
    Quantity("notes", "number of new findings of level note", kind="int", in_summary=True),
    Quantity("known_findings", "number of findings that the baseline has, too", kind="int"),
)


TENSORS = (
    *(column for column in LOCATION if column.name != "head"),
    Quantity("tensor", "name of the tensor, with a number if it is one matrix of a stack", kind="text"),
    Quantity(
        "role",
        "what the model uses the tensor for: map (a weight matrix), embedding, gain, vector (a bias) or "
        "other",
        kind="text",
    ),
    Quantity("dtype", "data type in the file", kind="text"),
    Quantity("quantised", "whether the file stores the tensor quantised", kind="bool"),
    Quantity("not_finite", "number of entries that are NaN or infinite", kind="int"),
    Quantity("peak", "largest magnitude of an entry; null if an entry is not finite"),
    Quantity("constant", "whether all entries are equal", kind="bool"),
    Quantity("zero_rows", "number of rows that are 0", kind="int"),
    Quantity("zero_columns", "number of columns that are 0", kind="int"),
    Quantity("distinct", "number of different values among 32 neighbours in a row (median)"),
    Quantity(
        "decibels",
        "signal over rounding error in dB; null if the tensor is not quantised or attnlaw does not know "
        "the code",
    ),
    Quantity("twin", "first tensor with the same bits", kind="text"),
)
