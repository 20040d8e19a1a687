"""What a person can act on: rules over what an audit sees of a checkpoint, each a record of `RULES`."""

from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.apply import apply_rules
from attnlaw.analysis.findings.detectors import RULES, Finding, FindingRule
from attnlaw.analysis.findings.evidence import Evidence, Hit, Subject, TensorLocation

__all__ = [
    "LEVELS",
    "RULES",
    "Evidence",
    "Finding",
    "FindingRule",
    "Hit",
    "Subject",
    "TensorLocation",
    "apply_rules",
]
