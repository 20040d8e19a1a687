"""The monitor inside a Hugging Face `Trainer`: its numbers go wherever the Trainer reports to."""

from __future__ import annotations

import os
from typing import Any

from attnlaw.core.errors import require_extra
from attnlaw.training.monitor.spectral_monitor import SpectralMonitor
from attnlaw.training.monitor.watchdog import GateFailed


def monitor_trainer(trainer: Any, directory: str | os.PathLike[str], **options: Any) -> Any:
    """Add a callback that monitors the Trainer's model into `directory`; the callback, which is added.

    `options` are those of `SpectralMonitor` (`every`, `quantities`, `max_overhead`, ...). It measures before
    the first step and then as the monitor does, and passes the numbers to `trainer.log` as `spectra/...`, so
    that TensorBoard, or whatever `report_to` names, receives them. A Trainer that resumes from a checkpoint
    resumes the rows too. The callback's `monitor` is None until training begins. Rules that do not hold, with
    `on_fail="stop"`, end the training as any callback does: `trainer.train()` returns, and the callback's
    `failed` is the `GateFailed` of that step.
    """
    with require_extra("monitoring a Trainer", "lens"):
        from transformers import TrainerCallback

    class SpectralCallback(TrainerCallback):  # type: ignore[misc]
        monitor: SpectralMonitor | None = None
        failed: GateFailed | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            # Only now: a Trainer may make its model anew when training begins.
            self.monitor = SpectralMonitor(model, directory, **options)
            self.on_step_end(args, state, control)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.monitor is None:
                return
            try:
                taken = self.monitor.step(state.global_step)
            except GateFailed as failed:
                self.failed, taken = failed, failed.snapshot
            if self.monitor.stops_at(state.global_step) and stop_everywhere(
                self.failed is not None, args.device
            ):
                control.should_training_stop = True
            if taken is not None:
                # Logging clears the flag by which the Trainer would log its own loss at this step.
                log_loss = control.should_log
                trainer.log(taken.scalars)
                control.should_log = log_loss

    callback = SpectralCallback()
    trainer.add_callback(callback)
    return callback


def stop_everywhere(stop: bool, device: Any) -> bool:
    """Whether the first process stops: all others stop with it, at the same step."""
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return stop
    flag = torch.tensor(int(stop), device=device)
    dist.broadcast(flag, src=0)
    return bool(flag.item())
