"""For training loops in PyTorch: spectra while a model trains, and penalties that move their tails.

The names below are imported when first used: a report that reads the rows of a run needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnlaw.core.lazy import lazy_attribute

if TYPE_CHECKING:
    from attnlaw.training.callback import monitor_trainer
    from attnlaw.training.monitor.spectral_monitor import SpectralMonitor
    from attnlaw.training.watchdog import GateFailed

__all__ = ["GateFailed", "SpectralMonitor", "monitor_trainer"]
_PUBLIC = {
    "GateFailed": "attnlaw.training.watchdog",
    "SpectralMonitor": "attnlaw.training.monitor.spectral_monitor",
    "monitor_trainer": "attnlaw.training.callback",
}


def __getattr__(name: str) -> Any:
    return lazy_attribute(__name__, _PUBLIC, name)
