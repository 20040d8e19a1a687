"""Findings: what a person can act on in a checkpoint, such as NaN, copied layers or untrained heads.

Each `Detector` of the table `DETECTORS` looks at an audited model (a `Subject`) and reports findings.
"""

from attnlaw.analysis.columns import LEVELS
from attnlaw.analysis.findings.apply import run_detectors
from attnlaw.analysis.findings.detectors import DETECTORS, Detector, Finding
from attnlaw.analysis.findings.evidence import Evidence, Hit, Subject, TensorLocation

__all__ = [
    "DETECTORS",
    "LEVELS",
    "Detector",
    "Evidence",
    "Finding",
    "Hit",
    "Subject",
    "TensorLocation",
    "run_detectors",
]
