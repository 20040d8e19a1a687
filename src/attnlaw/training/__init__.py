"""For training loops in PyTorch: spectra while a model trains, and penalties that move their tails."""

from attnlaw.training.monitor import SpectralMonitor
from attnlaw.training.trainer_callback import monitor_trainer

__all__ = ["SpectralMonitor", "monitor_trainer"]
