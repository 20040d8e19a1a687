"""What a command does with a verb: the cases of its words, their results, and where these go."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from attnlaw.base.charts import ENDINGS
from attnlaw.base.declare import Verb, named
from attnlaw.base.errors import BadSetting, InputError
from attnlaw.base.settings import Declared, Settings, declared, setting, settings

# Verbs with tables of their own: a module of this room with `show` (one result), and `show_together` and
# `save` where these are its own, too.
TABLES = {
    "audit": "attnlaw.command.audit_table",
    "check": "attnlaw.command.check_table",
    "diff": "attnlaw.command.diff_table",
    "fit": "attnlaw.command.fit_table",
    "dynamics": "attnlaw.command.dynamics_table",
    "dynamics.simulate": "attnlaw.command.dynamics_table",
    "init": "attnlaw.command.init_table",
    "lens": "attnlaw.command.lens_table",
    "margins": "attnlaw.command.margins_table",
}
OUTPUT = "Output"
Done = list[tuple[Any, Any]]  # settings and result of each case that came to its end


@settings
class Shown(Settings):
    """How results are shown, the same for every verb."""

    json: bool = setting(False, "Print JSON and nothing else.", panel=OUTPUT)
    out: str | None = setting(None, "Write rows (parquet) and report.html.", metavar="DIR", panel=OUTPUT)
    figures: str | None = setting(
        None,
        "With --out: every chart for a two-column paper, too.",
        choices=ENDINGS,
        needs="out",
        panel=OUTPUT,
    )
    figure: str | None = setting(
        None, "Draw the first chart (.pdf, .svg, .png).", metavar="FILE", panel=OUTPUT
    )

    def check(self) -> None:
        require_named(self.out)
        if self.figure is not None and Path(self.figure).suffix[1:] not in ENDINGS:
            raise BadSetting("figure", f"expected a name that ends in .{', .'.join(ENDINGS)}", self.figure)

    def results(
        self, verb: Verb[Any, Any], cases: Sequence[Any], progress: Callable[..., None]
    ) -> Iterator[Any]:
        """The results of cases, each as it comes, or the `InputError` that it met."""
        return verb.run(cases, progress)

    def instead(self) -> int | None:
        """What an option asks for in place of the verb's work; its exit status, None where none does."""
        return None

    def finish(self, results: Sequence[Any]) -> int:
        """What is left to do with the results of all cases; the exit status."""
        return 0


# Verbs with options of their own for what is shown.
SHOWN = {
    "audit": "attnlaw.command.audit_options:AuditShown",
    "check": "attnlaw.command.check_options:CheckShown",
}


def shown_by(verb: str) -> type[Shown]:
    """The options by which a verb's results are shown."""
    own: type[Shown] = named(SHOWN.get(verb, Shown))
    return own


def require_named(*directories: str | None) -> None:
    """A `BadSetting` for a directory without a name, as of a shell variable that is not set."""
    if "" in directories:
        raise BadSetting("out", "found an empty name; give a directory (. is the one you are in)")


def read_words(known: Mapping[str, Declared], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given on the command line as values: lists where several values make several cases."""
    values = {}
    for name, words in given.items():
        found = known[name].from_words(words)
        values[name] = found if known[name].rule.many or isinstance(words, list) else found[0]
    return values


def perform(verb: Verb[Any, Any], given: Mapping[str, Any]) -> int:
    """Run the cases of what was given, show them, write them; the exit status."""
    own = shown_by(verb.name)
    options = declared(own)
    shown = own.of(read_words(options, {k: word for k, word in given.items() if k in options}), verb.name)
    if (status := shown.instead()) is not None:
        return status
    asked = _asked(verb, {name: words for name, words in given.items() if name not in options})
    from attnlaw.command.console import say

    with _results_in(shown.out), _telling():
        tell = cache(say)  # an error that many cases meet is one line
        ready = [(one, _ready(one, cases, tell)) for one, cases in asked]
        done = [(one, _work(one, cases, shown, tell)) for one, cases in ready]
        kept = [(one, own) for one, own in done if own]
        if kept:
            _show(kept, shown.json, several=len(asked) > 1 or len(asked[0][1]) > 1)
            _write(kept, shown)
        status = shown.finish([found for _, pairs in kept for _, found in pairs])
    whole = all(len(cases) == len(pairs) for (_, cases), (_, pairs) in zip(asked, done, strict=True))
    return status if whole else 1


def _asked(verb: Verb[Any, Any], words: Mapping[str, Any]) -> list[tuple[Verb[Any, Any], list[Any]]]:
    """The verb with its cases and, where its own settings were given, the verb beside it."""
    known = declared(verb.settings)
    own = {name: word for name, word in words.items() if name in known}
    tables = {name: list(one.rule.cases) for name, one in known.items() if one.rule.cases}
    values = tables | read_words(known, own)
    asked = [(verb, verb.cases({name: values[name] for name in known if name in values}))]
    if verb.beside is None or len(own) == len(words):
        return asked
    more = declared(verb.beside.settings)
    needed = [name for name, one in more.items() if one.default is MISSING]
    for name in words:
        if name not in known and not set(needed) <= set(words):
            raise BadSetting(name, f"needs {{{needed[0]}}}")
    common = {name: word for name, word in words.items() if name in more}
    return [*asked, (verb.beside, verb.beside.cases(read_words(more, common)))]


def _ready(verb: Verb[Any, Any], cases: list[Any], tell: Callable[[str], None]) -> list[Any]:
    """The cases that can work; why the others cannot is told before anything runs."""
    ready = []
    for case in cases:
        try:
            if verb.refuse is not None:
                verb.refuse(case)
        except BadSetting:
            raise
        except InputError as error:
            tell(f"attnlaw: {error}")
        else:
            ready.append(case)
    return ready


def _work(verb: Verb[Any, Any], cases: list[Any], shown: Shown, tell: Callable[[str], None]) -> Done:
    """The results of the cases; the error that one ends in is told, and the others go on."""
    from attnlaw.command.console import output, progress

    own = None if shown.json else _tables(verb)
    done: Done = []
    with progress(verb.name) as report:
        for case, found in zip(cases, shown.results(verb, cases, report), strict=True):
            if isinstance(found, BadSetting) and len(cases) == 1:
                raise found
            if isinstance(found, InputError):
                tell(f"attnlaw: {found}")
                continue
            if own is not None:
                own.show(found, output)
            done.append((case, found))
    return done


def _tables(verb: Verb[Any, Any]) -> Any:
    """The module of the tables that a verb has of its own; None where it has none."""
    return import_module(TABLES[verb.name]) if verb.name in TABLES else None


def _show(done: Sequence[tuple[Verb[Any, Any], Done]], json: bool, several: bool) -> None:
    from attnlaw.command.console import output, print_json

    verb, own = done[0]
    if json:
        objects = [one.json(case, found) for one, pairs in done for case, found in pairs]
        print_json(objects if several else objects[0])
    elif (tables := _tables(verb)) is not None:
        if hasattr(tables, "show_together"):
            tables.show_together([found for _, found in own], output)
    else:
        from attnlaw.command.tables import show

        show(done, output)


def _write(done: Sequence[tuple[Verb[Any, Any], Done]], shown: Shown) -> None:
    from attnlaw.command.console import say

    verb, own = done[0]
    if shown.out is not None:
        folder, tables = Path(shown.out), _tables(verb)
        if hasattr(tables, "save"):
            tables.save(own, folder, shown.figures)
        else:
            from attnlaw.report.write import save

            save(done, folder, shown.figures)
        figures = folder / "figures"
        drawn = f", and {figures}" if figures.is_dir() else "; no figures: its rows allow none"
        more = "" if shown.figures is None else drawn
        say(f"wrote {folder / 'report.html'} and the rows beside it{more}")
    if shown.figure is not None:
        from attnlaw.report.write import draw

        draw(done, Path(shown.figure))
        say(f"wrote {shown.figure}")


@contextmanager
def _results_in(out: str | None) -> Iterator[None]:
    """Make the directory of results before the work; take it away again where nothing came into it."""
    from attnlaw.base.files import usable_directory

    if out is None:
        yield
        return
    folder = Path(out)
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    usable_directory(folder)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for path in made:
                path.rmdir()


class _Say(logging.Handler):
    """Lines of the library, on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        from attnlaw.command.console import say

        say(record.getMessage())


@contextmanager
def _telling() -> Iterator[None]:
    """Show what the library has to tell while it works, such as how long that will take."""
    log, handler = logging.getLogger("attnlaw"), _Say()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
