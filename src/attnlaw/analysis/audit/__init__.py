"""Audits of checkpoints: spectra of all matrices, null tests, proxies of generalization bounds, findings.

QK and VO are the products of a head's query and key matrices, and of its value and output matrices. A proxy
is the leading factor of a bound, without constants. It is not a guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class AuditOptions:
    """What to report about the matrices of a model.

    Args:
        samples: number of training samples n. If given, the audit also reports proxy / sqrt(n).
        tolerant: report NaN and infinity as findings and measure all other matrices, instead of raising an
            error.
    """

    samples: int | None = None
    as_stored: bool = False  # show norms of the stored matrices instead of norms as applied
    tolerant: bool = False
    thresholds: Mapping[str, float] | None = None  # thresholds of findings, by rule
    no_laws: bool = False  # do not fit laws when the audit is saved
