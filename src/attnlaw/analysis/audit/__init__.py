"""Audits of checkpoints: spectra of all matrices, null tests, proxies of generalization bounds, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class AuditOptions:
    """What an audit is asked for beside the matrices.

    `samples` adds proxy / sqrt(samples). `as_stored`: tables and maps show norms of the stored matrices, not
    as applied. `tolerant`: NaN and infinity are findings, and what can be measured without them is.
    `thresholds` are of findings, by rule. `no_laws`: no laws are fitted when the audit is saved.
    """

    samples: int | None = None
    as_stored: bool = False
    tolerant: bool = False
    thresholds: Mapping[str, float] | None = None
    no_laws: bool = False
