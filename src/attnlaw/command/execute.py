"""Run a verb for the command line: parse its words, compute its cases, show the result, and write it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, replace
from functools import cache
from pathlib import Path
from typing import Any

from attnlaw.command.workers import WorkerOptions
from attnlaw.core.errors import BadSetting, InputError, as_option
from attnlaw.core.files import figures_directory
from attnlaw.core.result import Result
from attnlaw.core.settings import SettingField, setting_fields
from attnlaw.core.verb import Verb
from attnlaw.render.charts.paper import save_figure
from attnlaw.render.output_options import Failure, OutputOptions
from attnlaw.render.terminal.console import output, print_json, print_message, progress
from attnlaw.render.terminal.screen import typed_options
from attnlaw.verbs.typed import option_words as option_words_of
from attnlaw.verbs.views import figure_to_plot, find_part, result_directory, show_end

Fail = Callable[[Any, InputError], None]  # a function that is called with a case and its error


def output_options(verb: Verb[Any, Any]) -> type[OutputOptions]:
    """Return the class of a verb's output options: for workers, special to the verb, or common."""
    if verb.split is not None:
        return WorkerOptions
    part = find_part(verb, "options")
    return OutputOptions if part is None else part.Options


def parse_words(known: Mapping[str, SettingField], given: Mapping[str, Any]) -> dict[str, Any]:
    """Parse command-line arguments into values of settings. Settings with several values get lists."""
    values = {}
    for name, words in given.items():
        several = known[name].parse_words(words)
        values[name] = several if known[name].rule.sweepable or isinstance(words, list) else several[0]
    return values


def run_command(verb: Verb[Any, Any], typed_words: Mapping[str, Any]) -> int:
    """Run a verb with command-line arguments, show the result and save it. Return the exit status."""
    options_class = output_options(verb)
    known = setting_fields(options_class)
    option_words = {name: words for name, words in typed_words.items() if name in known}
    options = options_class.parse(parse_words(known, option_words), verb.name)
    if (status := options.short_circuit()) is not None:
        return status
    verb_words = {name: words for name, words in typed_words.items() if name not in known}
    requested = _requested_cases(verb, verb_words)
    directory = _output_directory(options.out, verb, options.figures)
    with directory, _library_messages(), options.interruptible(verb):
        failures: list[Failure] = []
        print_once = cache(print_message)  # print an error that many cases share only once

        def fail(case: Any, error: InputError) -> None:
            print_once(f"attnlaw: {error}")
            failures.append((case, error))

        runnable = [(part, _runnable_cases(part, cases, fail)) for part, cases in requested]
        results = [_run_cases(part, cases, options, fail) for part, cases in runnable]
        finished = [result for result in results if len(result)]
        if finished:
            result = replace(finished[0], simulation=finished[1] if len(finished) > 1 else None)
            if options.json:
                objects = result.to_json()
                print_json(objects if len(requested) > 1 or len(requested[0][1]) > 1 else objects[0])
            else:
                with typed_options(map(as_option, option_words), verb.name, _unrecorded_options(requested)):
                    show_end(result, output, options.details)
            _write(result, options)
            status = options.finish(result, failures)
        else:
            options.finish(results[0], failures)
    is_whole = all(len(cases) == len(result) for (_, cases), result in zip(requested, results, strict=True))
    return (status or 0) if is_whole else 1


def _unrecorded_options(requested: Sequence[tuple[Verb[Any, Any], Sequence[Any]]]) -> list[str]:
    ((verb, cases), *_) = requested
    known = setting_fields(verb.settings)
    hidden = {name: field for name, field in known.items() if name not in verb.setting_columns}
    return [
        word
        for name, field in hidden.items()
        for word in option_words_of(field, getattr(cases[0], name))
        if cases and not field.rule.positional
    ]


def _requested_cases(verb: Verb[Any, Any], words: dict[str, Any]) -> list[tuple[Verb[Any, Any], list[Any]]]:
    """Return the verb with its cases. If settings of its simulation are given, the simulation follows."""
    known = setting_fields(verb.settings)
    verb_words = {name: word for name, word in words.items() if name in known}
    sweeps = {name: list(field.rule.default_sweep) for name, field in known.items()}
    parsed = parse_words(known, verb_words)
    chosen = {name: parsed.get(name, sweep) for name, sweep in sweeps.items() if sweep or name in parsed}
    requested = [(verb, verb.cases(chosen))]
    if verb.simulation is None or len(verb_words) == len(words):
        return requested
    more = setting_fields(verb.simulation.settings)
    needed = [name for name, field in more.items() if field.default is MISSING]
    for name in words:
        if name not in known and not set(needed) <= set(words):
            raise BadSetting(name, f"needs {{{needed[0]}}}")
    common = {name: word for name, word in words.items() if name in more}
    return [*requested, (verb.simulation, verb.simulation.cases(parse_words(more, common)))]


def _runnable_cases(verb: Verb[Any, Any], cases: list[Any], fail: Fail) -> list[Any]:
    """Return the cases that pass the verb's precheck. Call `fail` with each of the others."""
    runnable = []
    for case in cases:
        try:
            if verb.precheck is not None:
                verb.precheck(case)
        except BadSetting:
            raise
        except InputError as error:
            fail(case, error)
        else:
            runnable.append(case)
    return runnable


def _run_cases(verb: Verb[Any, Any], cases: list[Any], options: OutputOptions, fail: Fail) -> Result:
    """Compute the cases, and show each at once if the verb has a special terminal view."""
    terminal = None if options.json else find_part(verb, "terminal")
    show_case = getattr(terminal, "show_case", lambda *_: None)
    pairs, shown = [], [Result.collect(verb, [])]
    with progress(verb.name) as report:
        for case, record in zip(cases, options.run_cases(verb, cases, report), strict=True):
            if isinstance(record, BadSetting) and len(cases) == 1:
                raise record
            if isinstance(record, InputError):
                fail(case, record)
            elif terminal is None:
                pairs.append((case, record))
            else:
                shown.append(Result.collect(verb, [(case, record)]))
                show_case(shown[-1], output, options.details)
        return Result.collect(verb, pairs) if terminal is None else Result.concat(shown)


def _write(result: Result, options: OutputOptions) -> None:
    if options.out is not None:
        with progress(f"write {options.out}") as report:
            folder = result.save(options.out, options.figures, report)
        figures = folder / "figures"
        drawn = f", and {figures}" if figures.is_dir() else ", but no figures"
        more = "" if options.figures is None else drawn
        print_message(f"wrote {folder / 'report.html'} and its tables{more}")
    if options.figure is not None:
        save_figure(figure_to_plot(result), Path(options.figure))
        print_message(f"wrote {options.figure}")


@contextmanager
def _output_directory(out: str | None, verb: Verb[Any, Any], figures: str | None) -> Iterator[None]:
    """Create the directory for results before the block. Remove it after the block if it is empty."""
    if out is None:
        yield
        return
    folder = Path(out)
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    result_directory(folder, verb)
    if figures is not None:
        figures_directory(folder)
    try:
        yield
    finally:
        with suppress(OSError):  # a directory is not empty
            for path in made:
                path.rmdir()


class _MessageHandler(logging.Handler):
    """A logging handler that prints records of the library on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message(record.getMessage())


@contextmanager
def _library_messages() -> Iterator[None]:
    """Print log messages of the library during the block, such as how long the work will take."""
    log, handler = logging.getLogger("attnlaw"), _MessageHandler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
