"""What verbs on several checkpoints share: check where results go, do one model after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, Self, TypeVar


class Joinable(Protocol):
    """A result that grows: rows of one model, then rows of the next."""

    def __add__(self, other: Self) -> Self: ...


Outcome = TypeVar("Outcome", bound=Joinable)
Progress = Callable[[int, int], None]


def require_output(out: Path | None, figures: str | None) -> None:
    """An `InputError` where results cannot be written: before the work, not after it."""
    from attnlaw.errors import InputError
    from attnlaw.records.files import usable_directory

    if figures is not None and (out is None or figures not in ("pdf", "svg", "png")):
        raise InputError(f"--figures {figures}: expected pdf, svg or png, together with --out DIR")
    if out is not None:
        usable_directory(out)


def each_model(
    verb: str,
    models: list[str],
    work: Callable[[str, Progress], Outcome],
    show: Callable[[Outcome], None],
) -> tuple[Outcome | None, bool]:
    """The results of all models joined, and whether a model failed.

    A model that cannot be read is told of in one line; the others are still worked on.
    """
    from attnlaw.cli.console import messages, progress
    from attnlaw.errors import InputError, printable

    done: Outcome | None = None
    failed = False
    for model in models:
        try:
            with progress(f"{verb} {printable(Path(model).name)}") as report:
                one = work(model, report)
        except InputError as error:
            messages.print(f"attnlaw: {error}", markup=False, soft_wrap=True)
            failed = True
            continue
        show(one)
        done = one if done is None else done + one
    return done, failed
