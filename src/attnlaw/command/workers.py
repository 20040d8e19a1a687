"""The options `--workers N`, `--dask ADDRESS` and `--slurm ...`: compute one audit on many workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from attnlaw.core.errors import BadSetting
from attnlaw.core.progress import is_early
from attnlaw.core.settings import OptionPanel, setting, setting_like, settings_dataclass
from attnlaw.core.verb import Verb, attempt
from attnlaw.render.output_options import OutputOptions, Records
from attnlaw.render.terminal.console import format_duration, print_message
from attnlaw.verbs.workers import Workers

if TYPE_CHECKING:
    from attnlaw.study.backends import Backend

KEPT = "all finished {} are kept; run the same command to continue"
LONG = 20.0  # seconds after which a line states the time left


@settings_dataclass
class WorkerOptions(OutputOptions):
    """Options for the output, and for the workers that share the computation.

    Every worker must be able to read the files of the model.
    """

    workers: int | None = setting_like(Workers, "jobs", requires="out", panel=OptionPanel.WORKERS)
    dask: str | None = setting_like(Workers, "dask", requires="out", panel=OptionPanel.WORKERS)
    slurm: str | None = setting_like(Workers, "slurm", requires="out", panel=OptionPanel.WORKERS)
    force: bool = setting(
        False,
        "Measure everything again, even if DIR/store has results of an earlier run.",
        panel=OptionPanel.WORKERS,
    )

    def check(self) -> None:
        super().check()
        if self.backend is None and self.force:
            raise BadSetting("force", "needs {workers}, {dask} or {slurm}")

    @property
    def backend(self) -> Backend | None:
        """The workers that the user chose, or None. Imports the study package only if needed."""
        if self.workers is None and self.dask is None and self.slurm is None:
            return None
        from attnlaw.study.backends import Backend

        return Backend(jobs=self.workers, dask=self.dask, slurm=self.slurm)

    def run_cases(self, verb: Verb[Any, Any], cases: Sequence[Any], progress: Callable[..., None]) -> Records:
        place = self.backend
        keeper = None if verb.split is None else verb.split.keeper
        if verb.split is None or self.out is None or (place is None and keeper is None):
            yield from super().run_cases(verb, cases, progress)
            return
        if place is None and keeper is not None:
            for case in cases:  # in this process, which keeps finished parts until the results are saved
                yield attempt(keeper.run, case, Path(self.out), progress)
            return
        from attnlaw.study.split_case import SplitStopped, run_split

        said, began = False, monotonic()

        def report_progress(done: int, total: int, left: float | None) -> None:
            nonlocal said
            if not (said or left is None or is_early(done, total)) and min(left, monotonic() - began) > LONG:
                said = True
                print_message(f"about {format_duration(left)} left")
            progress(done, total, left)

        store = Path(self.out) / "store"
        try:
            yield from run_split(
                verb, cases, store, place, force=self.force, progress=report_progress, announce=print_message
            )
        except SplitStopped:
            print_message(KEPT.format(verb.split.part_noun))
            raise KeyboardInterrupt from None

    @contextmanager
    def interruptible(self, verb: Verb[Any, Any]) -> Iterator[None]:
        """If the block is interrupted, print what is kept. Remove these parts once results are saved."""
        split = verb.split
        if self.out is None or split is None or split.keeper is None:
            yield
            return
        folder = Path(self.out)
        try:
            yield
        except KeyboardInterrupt:
            if split.keeper.has_parts(folder):
                print_message(KEPT.format(split.part_noun))
            raise
        split.keeper.remove(folder)
