"""What a person can act on: rules over what an audit sees of a checkpoint, each a record of `RULES`."""

from attnlaw.auditing.findings.evidence import Evidence, Hit, Spot, Subject
from attnlaw.auditing.findings.find import apply_rules, findings
from attnlaw.auditing.findings.rules import LEVELS, RULES, Finding, Rule

__all__ = [
    "LEVELS",
    "RULES",
    "Evidence",
    "Finding",
    "Hit",
    "Rule",
    "Spot",
    "Subject",
    "apply_rules",
    "findings",
]
