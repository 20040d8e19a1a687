"""Build the command line with cyclopts. Each verb is a command, and its settings are the options.

Only the module of the command that the user calls is imported. The declared settings parse the words of the
command line; cyclopts does not.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, replace
from importlib import import_module
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, Parameter, UnusedCliTokensError

from attnlaw import __version__
from attnlaw.command import UsageError
from attnlaw.command.execute import output_options, parse_words, run_command
from attnlaw.core.errors import BadSetting, as_option
from attnlaw.core.settings import SettingField, Settings, setting_fields
from attnlaw.render.terminal.console import print_message
from attnlaw.verbs import VERBS, find_verb

PLAIN: Literal["plaintext"] = "plaintext"  # starts a third faster than markup
METAVARS: dict[Any, str] = {float: "NUMBER", int: "N", str: "TEXT"}
# Further commands. Each module of attnlaw has COMMANDS: name -> settings class with `execute`.
OTHER_COMMANDS = {
    "study": ("command.study", "Sweeps that run in process or on a cluster, and never lose a row."),
    "reproduce": ("reproduce.command", "A paper's figures: run, drawn, published numbers beside ours."),
    "report": ("command.report", "Write report.html from saved rows; nothing is computed anew."),
    "lab": ("command.lab", "Theory under sliders, in a browser on this machine."),
}


def run(words: list[str]) -> int:
    """Run the command that the words name. Return the exit status."""
    app = App(
        name="attnlaw",
        help="The spectral theory of attention, executable.",
        help_format=PLAIN,
        version=f"attnlaw {__version__}",
        version_flags=["--version", "-V"],
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    completing = "--install-completion" in words[:1]
    called = next((word for word in words if not word.startswith("-")), None)
    for place, (name, (module, line)) in enumerate((VERBS | OTHER_COMMANDS).items()):
        is_used = completing or name == called
        made = _command(name, module) if is_used else App(name=name, help=line, help_format=PLAIN)
        made.sort_key = place
        app.command(made)
    if completing:
        app.register_install_completion_command()
    try:
        status = app(words or ["--help"], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        message = str(error)
        if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
            joined = "several values of one are joined by commas, such as a,b"
            message = f"{error.unused_tokens[0]}: belongs to no option; {joined}"
        print_message(f"attnlaw: {' '.join(message.replace(chr(34), '').split())}")
        return 2
    return status if isinstance(status, int) else 0


def _command(name: str, module: str) -> App:
    """Return the command of a verb, or a command that `COMMANDS` of its module declares."""
    if name in VERBS:
        verb = find_verb(name)
        known = setting_fields(verb.settings) | setting_fields(output_options(verb))
        if verb.simulation is not None:  # without its required settings it does not run: they are optional
            more = setting_fields(verb.simulation.settings).items()
            known = {name: replace(other, default=None) for name, other in more if name not in known} | known
        return _build_command(name, verb.settings, known, lambda given: run_command(verb, given))

    def build(word: str, title: str) -> App:
        settings, known = commands[word], setting_fields(commands[word])
        return _build_command(
            word, settings, known, lambda given: settings.parse(parse_words(known, given), title).execute()
        )

    commands = import_module(f"attnlaw.{module}").COMMANDS
    if list(commands) == [name]:
        return build(name, name)
    group = App(name=name, help=OTHER_COMMANDS[name][1], help_format=PLAIN)
    for word in commands:
        group.command(build(word, f"{name} {word}"))
    return group


def _build_command(
    name: str, settings: type[Settings], known: dict[str, SettingField], body: Callable[[dict[str, Any]], int]
) -> App:
    """Return a command whose options are the settings `known`. Its help text is the docstring of `settings`.

    `body` is a function that gets the typed words by setting, runs the command, and returns the exit status.
    """
    places = [field for field in known.values() if field.rule.positional]

    def call(*words: str | None, **given: Any) -> int:
        for number, place in enumerate(places[: len(words)]):  # only the last may be a list
            if words[number] is not None:
                given[place.name] = list(words[number:]) if _is_list(place) else words[number]
        try:
            return body(given)
        except BadSetting as error:
            called = {place.name: place.rule.metavar or place.name.upper() for place in places}
            raise UsageError(error.message(as_option, words=called)) from error

    panels = dict.fromkeys(field.rule.panel for field in known.values())
    groups = {panel: Group.create_ordered(panel) for panel in panels}
    parameters = [_parameter(field, groups[field.rule.panel]) for field in known.values()]
    parameters.sort(key=lambda parameter: parameter.kind)
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    made = App(name=name, help=_reflow(settings.__doc__), help_format=PLAIN)
    if any(place.default is None for place in places):  # cyclopts would call it ARGS
        words = " ".join(f"[{place.rule.metavar}{'...' if _is_list(place) else ''}]" for place in places)
        made.usage = f"Usage: attnlaw {name} [OPTIONS] {words}"
    made.default(call)
    return made


def _is_list(field: SettingField) -> bool:
    return field.rule.sweepable or tuple[str, ...] in field.types


def _reflow(text: str | None) -> str:
    r"""Join the lines of each paragraph of a docstring, so that the terminal can break them at its width.

    Lines such as `name: what it means` are not joined.

    >>> _reflow("One\nsentence.\n\nrandom: noise\nlearned: a law")
    'One sentence.\n\nrandom: noise\nlearned: a law'
    """
    return re.sub(r"(?<!\n)\n(?!\n|[a-z-]+( [a-z]+)?: )", " ", inspect.cleandoc(text or ""))


def _parameter(field: SettingField, group: Group) -> inspect.Parameter:
    rule, flag = field.rule, field.types == (bool,)
    default = ",".join(map(str, rule.default_sweep)) if rule.default_sweep else field.default
    words = [rule.help, "Also FROM:TO:COUNT or a,b,c." if rule.sweepable and field.is_number else ""]
    shown = Parameter(
        name=None if rule.positional else as_option(field.name),
        help=" ".join(filter(None, words)),
        group=group,
        metavar=rule.metavar or "|".join(rule.choices or ()) or METAVARS.get(field.types[0]),
        show_default=not (flag or default in (None, MISSING)),
        required=default is MISSING,
        negative=(),
        allow_leading_hyphen=field.is_number,
    )
    if rule.positional:
        kind = inspect.Parameter.VAR_POSITIONAL if _is_list(field) else inspect.Parameter.POSITIONAL_ONLY
        name = (rule.metavar or field.name).lower()
        if default is MISSING or kind is inspect.Parameter.VAR_POSITIONAL:
            return inspect.Parameter(name, kind, annotation=Annotated[str, shown])
        return inspect.Parameter(name, kind, annotation=Annotated[str | None, shown], default=default)
    words_type: Any = bool if flag else list[str] if rule.repeatable else str
    if default is MISSING:
        default = inspect.Parameter.empty
    elif default is None:  # cyclopts checks defaults if the process has imported pydantic
        words_type |= None
    elif not flag:
        default = str(default)
    hint: Any = Annotated[words_type, shown]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)
