"""The main verb: a checkpoint in, an `Audit` out (rows, proxies, files, report)."""

from attnlaw.auditing.result import Audit
from attnlaw.auditing.run import audit

__all__ = ["Audit", "audit"]
