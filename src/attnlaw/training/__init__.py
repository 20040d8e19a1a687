"""Tools for training loops in PyTorch: a monitor of spectra, a callback for Hugging Face, and penalties."""

from __future__ import annotations

from attnlaw.training.callback import monitor_trainer
from attnlaw.training.monitor.spectral_monitor import SpectralMonitor
from attnlaw.training.monitor.watchdog import GateFailed

__all__ = ["GateFailed", "SpectralMonitor", "monitor_trainer"]
