"""A callback of a Hugging Face `Trainer` that monitors the spectra of its model."""

from __future__ import annotations

import os
from typing import Any

from attnlaw.core.errors import require_extra
from attnlaw.core.library_messages import quiet_import
from attnlaw.training.monitor.spectral_monitor import SpectralMonitor
from attnlaw.training.monitor.watchdog import GateFailed


def monitor_trainer(trainer: Any, directory: str | os.PathLike[str], **options: Any) -> Any:
    """Add a callback that monitors the model to a Hugging Face Trainer, and return the callback.

    The callback measures before the first step, and then like a `SpectralMonitor`. It passes the numbers to
    `trainer.log` as `spectra/...`, so that TensorBoard and the loggers in `report_to` get them. If the
    Trainer resumes from a checkpoint, the rows in the directory are continued. With `on_fail="stop"`, a
    failed rule ends the training, and `trainer.train()` returns as usual.

    Args:
        trainer: a `transformers.Trainer`.
        directory: the directory for the rows, which `attnlaw report` reads.
        options: the options of `SpectralMonitor` (`every`, `quantities`, `max_overhead`, ...).

    Returns:
        The callback. The callback's `monitor` is None until training begins. The callback's `failed` is the
        `GateFailed` error if rules ended the training, and None otherwise.
    """
    with require_extra("monitoring a Trainer", "lens"), quiet_import():
        from transformers import TrainerCallback

    class SpectralCallback(TrainerCallback):  # type: ignore[misc]
        monitor: SpectralMonitor | None = None
        failed: GateFailed | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            # Not earlier: a Trainer may create its model again when training begins.
            self.monitor = SpectralMonitor(model, directory, **options)
            self.on_step_end(args, state, control)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.monitor is None:
                return
            try:
                snapshot = self.monitor.step(state.global_step)
            except GateFailed as failed:
                self.failed, snapshot = failed, failed.snapshot
            if self.monitor.stops_at(state.global_step):
                control.should_training_stop |= stop_everywhere(self.failed is not None, args.device)
            if snapshot is not None:
                # Logging clears the flag by which the Trainer would log its own loss at this step.
                log_loss = control.should_log
                trainer.log(snapshot.scalars)
                control.should_log = log_loss

    callback = SpectralCallback()
    trainer.add_callback(callback)
    return callback


def stop_everywhere(stop: bool, device: Any) -> bool:
    """Return the decision of the first process in every process, so that all stop at the same step."""
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return stop
    flag = torch.tensor(int(stop), device=device)
    dist.broadcast(flag, src=0)
    return bool(flag.item())
