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

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.lazy import resolve
from attnlaw.core.output_options import OutputOptions
from attnlaw.core.settings import SettingField, setting_fields
from attnlaw.core.verb import Verb

# Verbs with tables of their own: a module of this room with `show` (one result), and `show_together` and
# `save` where these are its own, too.
TERMINAL_MODULES = {
    "audit": "attnlaw.verbs.audit.terminal",
    "check": "attnlaw.verbs.check.terminal",
    "diff": "attnlaw.verbs.diff.terminal",
    "fit": "attnlaw.verbs.fit.terminal",
    "dynamics": "attnlaw.verbs.dynamics.terminal",
    "dynamics.simulate": "attnlaw.verbs.dynamics.terminal",
    "init": "attnlaw.verbs.init.terminal",
    "lens": "attnlaw.verbs.lens.terminal",
    "margins": "attnlaw.verbs.margins.terminal",
}
CaseResults = list[tuple[Any, Any]]  # settings and result of each case that came to its end


# Verbs with options of their own for what is shown.
OPTIONS_CLASSES = {
    "audit": "attnlaw.command.workers:WorkerOptions",
    "check": "attnlaw.verbs.check.options:CheckOptions",
}


def output_options(verb: str) -> type[OutputOptions]:
    """The options by which a verb's results are shown."""
    options_class: type[OutputOptions] = resolve(OPTIONS_CLASSES.get(verb, OutputOptions))
    return options_class


def parse_words(known: Mapping[str, SettingField], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given on the command line as values: lists where several values make several cases."""
    values = {}
    for name, words in given.items():
        parsed_values = known[name].parse_words(words)
        values[name] = (
            parsed_values if known[name].rule.sweepable or isinstance(words, list) else parsed_values[0]
        )
    return values


def run_command(verb: Verb[Any, Any], typed_words: Mapping[str, Any]) -> int:
    """Run the cases of what was given, show them, write them; the exit status."""
    options_class = output_options(verb.name)
    options = setting_fields(options_class)
    shown = options_class.parse(
        parse_words(options, {k: word for k, word in typed_words.items() if k in options}), verb.name
    )
    if (status := shown.short_circuit()) is not None:
        return status
    asked = _requested_cases(
        verb, {name: words for name, words in typed_words.items() if name not in options}
    )
    from attnlaw.render.terminal.console import print_message

    with _output_directory(shown.out), _library_messages():
        tell = cache(print_message)  # an error that many cases meet is one line
        ready = [(each_verb, _runnable_cases(each_verb, cases, tell)) for each_verb, cases in asked]
        done = [(each_verb, _run_cases(each_verb, cases, shown, tell)) for each_verb, cases in ready]
        kept = [(each_verb, pairs) for each_verb, pairs in done if pairs]
        if kept:
            _show(kept, shown.json, several=len(asked) > 1 or len(asked[0][1]) > 1)
            _write(kept, shown)
        status = shown.finish([result for _, pairs in kept for _, result in pairs])
    whole = all(len(cases) == len(pairs) for (_, cases), (_, pairs) in zip(asked, done, strict=True))
    return status if whole else 1


def _requested_cases(
    verb: Verb[Any, Any], words: Mapping[str, Any]
) -> list[tuple[Verb[Any, Any], list[Any]]]:
    """The verb with its cases and, where its own settings were given, the verb beside it."""
    known = setting_fields(verb.settings)
    verb_words = {name: word for name, word in words.items() if name in known}
    tables = {
        name: list(field.rule.default_sweep) for name, field in known.items() if field.rule.default_sweep
    }
    values = tables | parse_words(known, verb_words)
    asked = [(verb, verb.cases({name: values[name] for name in known if name in values}))]
    if verb.simulation is None or len(verb_words) == len(words):
        return asked
    more = setting_fields(verb.simulation.settings)
    needed = [name for name, field in more.items() if field.default is MISSING]
    for name in words:
        if name not in known and not set(needed) <= set(words):
            raise BadSetting(name, f"needs {{{needed[0]}}}")
    common = {name: word for name, word in words.items() if name in more}
    return [*asked, (verb.simulation, verb.simulation.cases(parse_words(more, common)))]


def _runnable_cases(verb: Verb[Any, Any], cases: list[Any], print_once: Callable[[str], None]) -> list[Any]:
    """The cases that can work; why the others cannot is told before anything runs."""
    ready = []
    for case in cases:
        try:
            if verb.precheck is not None:
                verb.precheck(case)
        except BadSetting:
            raise
        except InputError as error:
            print_once(f"attnlaw: {error}")
        else:
            ready.append(case)
    return ready


def _run_cases(
    verb: Verb[Any, Any], cases: list[Any], options: OutputOptions, print_once: Callable[[str], None]
) -> CaseResults:
    """The results of the cases; the error that one ends in is told, and the others go on."""
    from attnlaw.render.terminal.console import output, progress

    tables = None if options.json else _terminal_module(verb)
    done: CaseResults = []
    with progress(verb.name) as report:
        for case, result in zip(cases, options.run_cases(verb, cases, report), strict=True):
            if isinstance(result, BadSetting) and len(cases) == 1:
                raise result
            if isinstance(result, InputError):
                print_once(f"attnlaw: {result}")
                continue
            if tables is not None:
                tables.show(result, output)
            done.append((case, result))
    return done


def _terminal_module(verb: Verb[Any, Any]) -> Any:
    """The module of the tables that a verb has of its own; None where it has none."""
    return import_module(TERMINAL_MODULES[verb.name]) if verb.name in TERMINAL_MODULES else None


def _show(done: Sequence[tuple[Verb[Any, Any], CaseResults]], json: bool, several: bool) -> None:
    from attnlaw.render.terminal.console import output, print_json

    verb, first_pairs = done[0]
    if json:
        objects = [each_verb.json(case, result) for each_verb, pairs in done for case, result in pairs]
        print_json(objects if several else objects[0])
    elif (tables := _terminal_module(verb)) is not None:
        if hasattr(tables, "show_together"):
            tables.show_together([result for _, result in first_pairs], output)
    else:
        from attnlaw.render.terminal.view import show

        show(done, output)


def _write(done: Sequence[tuple[Verb[Any, Any], CaseResults]], options: OutputOptions) -> None:
    from attnlaw.render.terminal.console import print_message

    verb, pairs = done[0]
    if options.out is not None:
        folder, tables = Path(options.out), _terminal_module(verb)
        if hasattr(tables, "save"):
            tables.save(pairs, folder, options.figures)
        else:
            from attnlaw.report.write import save

            save(done, folder, options.figures)
        figures = folder / "figures"
        drawn = f", and {figures}" if figures.is_dir() else "; no figures: its rows allow none"
        more = "" if options.figures is None else drawn
        print_message(f"wrote {folder / 'report.html'} and the rows beside it{more}")
    if options.figure is not None:
        from attnlaw.report.write import save_first_figure

        save_first_figure(done, Path(options.figure))
        print_message(f"wrote {options.figure}")


@contextmanager
def _output_directory(out: str | None) -> Iterator[None]:
    """Make the directory of results before the work; take it away again where nothing came into it."""
    from attnlaw.core.files import writable_directory

    if out is None:
        yield
        return
    folder = Path(out)
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    writable_directory(folder)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for path in made:
                path.rmdir()


class _MessageHandler(logging.Handler):
    """Lines of the library, on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        from attnlaw.render.terminal.console import print_message

        print_message(record.getMessage())


@contextmanager
def _library_messages() -> Iterator[None]:
    """Show what the library has to tell while it works, such as how long that will take."""
    log, handler = logging.getLogger("attnlaw"), _MessageHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
