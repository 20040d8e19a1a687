"""What verbs on several checkpoints share: check where results go, do one model after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar


class Joinable(Protocol):
    """A result that grows: rows of one model, then rows of the next."""

    def __add__(self, other: Self) -> Self: ...

    def as_json(self, as_list: bool) -> Any: ...


Outcome = TypeVar("Outcome", bound=Joinable)
Progress = Callable[[int, int], None]


def require_figures(figures: str | None, out: Path | None) -> None:
    """An `InputError` where charts cannot be written: before the work, not after it."""
    from attnlaw.base.errors import InputError

    if figures is not None and figures not in ("pdf", "svg", "png"):
        raise InputError(f"--figures {figures}: expected pdf, svg or png")
    if figures is not None and out is None:
        raise InputError(f"--figures {figures}: needs --out DIR, the directory they go to")


@contextmanager
def results_in(out: Path | None) -> Iterator[None]:
    """Make the directory of results before the work; take it away again where nothing came into it."""
    from attnlaw.base.files import usable_directory

    if out is None:
        yield
        return
    made = [path for path in (out, *out.parents) if not os.path.lexists(path)]
    usable_directory(out)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for path in made:
                path.rmdir()


def each_model(
    verb: str,
    models: list[str],
    work: Callable[[str, Progress], Outcome],
    show: Callable[[Outcome], None],
    show_together: Callable[[Outcome], None],
    json: bool,
) -> tuple[Outcome | None, bool]:
    """The results of all models joined, shown one by one and together or as JSON; whether a model failed.

    A model that cannot be read is told of in one line; the others are still worked on.
    """
    from attnlaw.base.errors import InputError
    from attnlaw.command.console import print_json, progress, say

    done: Outcome | None = None
    failed = False
    for model in models:
        try:
            with progress(f"{verb} {Path(model).name}") as report:
                one = work(model, report)
        except InputError as error:
            say(f"attnlaw: {error}{_hint(model)}")
            failed = True
            continue
        if not json:
            show(one)
        done = one if done is None else done + one
    if done is not None and json:
        print_json(done.as_json(as_list=len(models) > 1))
    elif done is not None:
        show_together(done)
    return done, failed


def _hint(model: str) -> str:
    """How ids on a hub are written, for a name that may have been meant as one."""
    known = "/" in model or os.path.lexists(model)
    return "" if known else "; an id on a model hub is written owner/name"
