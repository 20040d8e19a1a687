"""`attnlaw audit MODEL --out DIR --workers N | --dask ADDRESS | --slurm ...`: one model on many workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from attnlaw.base.declare import Verb
from attnlaw.base.errors import BadSetting
from attnlaw.base.settings import again, setting, settings
from attnlaw.base.workers import Workers
from attnlaw.command.perform import Shown

if TYPE_CHECKING:
    from attnlaw.study.places import Place

PANEL = "Many workers"
STORED_IN = "store"  # in the directory of the results
LONG = 20.0  # seconds after which the time left is told in a line


@settings
class AuditShown(Shown):
    """How an audit is shown, and where its matrices are measured: here, or by workers that see the files."""

    workers: int | None = again(Workers, "jobs", needs="out", panel=PANEL)
    dask: str | None = again(Workers, "dask", needs="out", panel=PANEL)
    slurm: str | None = again(Workers, "slurm", needs="out", panel=PANEL)
    force: bool = setting(False, "Measure everything anew, also what DIR/store holds.", panel=PANEL)

    def check(self) -> None:
        super().check()
        place = self.place
        if self.force and place is None:
            raise BadSetting("force", "needs {workers}, {dask} or {slurm}")

    @property
    def place(self) -> Place | None:
        """Where the workers are, checked; None without any, for which no study is imported."""
        if self.workers is None and self.dask is None and self.slurm is None:
            return None
        from attnlaw.study.places import Place

        return Place(jobs=self.workers, dask=self.dask, slurm=self.slurm)

    def results(
        self, verb: Verb[Any, Any], cases: Sequence[Any], progress: Callable[..., None]
    ) -> Iterator[Any]:
        place = self.place
        if place is None or self.out is None:
            yield from super().results(verb, cases, progress)
            return
        from attnlaw.command.console import say
        from attnlaw.command.study import time_told
        from attnlaw.study.spread import Stopped, spread

        said, began = False, monotonic()

        def told(done: int, total: int, left: float | None) -> None:
            nonlocal said
            if not said and left is not None and min(left, monotonic() - began) > LONG:
                said = True
                say(f"about {time_told(left)} left")
            progress(done, total, left)

        store = Path(self.out) / STORED_IN
        try:
            yield from spread(verb, cases, store, place, force=self.force, told=told, announce=say)
        except Stopped:
            say("all finished matrices are kept; the same command goes on")
            raise KeyboardInterrupt from None
