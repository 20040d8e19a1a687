"""Audits of checkpoints. An audit measures all matrices, compares them with noise and looks for problems.

QK is the product of a head's query and key matrices, VO that of its value and output matrices. A proxy is the
leading factor of a generalization bound, without constants. It is not a guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class AuditOptions:
    """Options that set what an audit reports."""

    samples: int | None = None  # number of training samples n, for proxy / sqrt(n)
    as_stored: bool = False  # whether to show norms as stored instead of norms as applied
    tolerant: bool = False  # report NaN and infinity as findings, and measure all other matrices
    thresholds: Mapping[str, float] | None = None  # thresholds of the detectors, by name
    no_laws: bool = False  # whether to save the audit without fitted laws
    experts: int | None = None  # measure only this many experts of each layer
