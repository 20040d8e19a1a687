"""The columns of the tables that a gate reads and writes. Missing values are null."""

from __future__ import annotations

from attnlaw.analysis.columns import FINDINGS as AUDITED
from attnlaw.analysis.columns import LOCATION, VERSION
from attnlaw.core.quantity import Quantity

MODEL = LOCATION[0]
VERDICTS = (
    MODEL,
    Quantity("rule", "its name", kind="text"),
    Quantity("of", "the table that it is about", kind="text"),
    Quantity("asked", "what it asks for", kind="text"),
    Quantity("level", "off, note, warning or error", kind="text"),
    Quantity("outcome", "passed, failed or off", kind="text"),
    Quantity("selected", "rows that it is about", kind="int"),
    Quantity("held", "rows that hold", kind="int"),
    Quantity("value", "of the worst row, or the one number of all rows"),
    Quantity("failures", "where it does not hold, worst first", kind="texts"),
    Quantity("remark", "what it came to", kind="text"),
    VERSION,
)
VERDICT_VALUES = (
    MODEL,
    Quantity("rule", "its name", kind="text"),
    Quantity("found", "the value that was compared, as it is printed", kind="text"),
)
FINDINGS = (
    *AUDITED,
    Quantity("known", "whether the baseline has it, too: it does not count", kind="bool"),
    VERSION,
)
QUANTITIES = (
    Quantity("headline", "the answer in one sentence", kind="text"),
    Quantity("not_checked", "what cannot be checked from weights alone", kind="text"),
    Quantity("passed", "whether the gate let the model through", kind="bool", in_summary=True),
    Quantity("exit_status", "0 passed, 3 failed", kind="int"),
    Quantity("fail_on", "the least level that the gate fails at", kind="text"),
    Quantity("rule_count", "rules that were judged", kind="int", in_summary=True),
    Quantity("failed_rules", "rules that do not hold, of whatever level", kind="int", in_summary=True),
    Quantity("errors", "findings of level error that were not known", kind="int", in_summary=True),
    Quantity("warnings", "findings of level warning that were not known", kind="int", in_summary=True),
    Quantity("notes", "findings of level note that were not known", kind="int", in_summary=True),
    Quantity("known_findings", "findings that the baseline has, too", kind="int"),
)


TENSORS = (
    *(column for column in LOCATION if column.name != "head"),
    Quantity("tensor", "its name, of a stack of matrices with the number of one", kind="text"),
    Quantity("role", "map, embedding, gain, vector (a bias) or other", kind="text"),
    Quantity("dtype", "as the file says", kind="text"),
    Quantity("quantised", "whether the file's own code rounds it", kind="bool"),
    Quantity("not_finite", "entries that are NaN or infinite", kind="int"),
    Quantity("peak", "the largest magnitude; null where entries are not finite"),
    Quantity("constant", "whether all entries are one value", kind="bool"),
    Quantity("zero_rows", "rows that are 0", kind="int"),
    Quantity("zero_columns", "columns that are 0", kind="int"),
    Quantity("distinct", "different values in the median block of 32 along its rows"),
    Quantity("decibels", "signal over the rounding of its code, where it is known"),
    Quantity("twin", "the first tensor with the same bits", kind="text"),
)
