"""Run the command that the words of the command line name. cyclopts splits the words into options and values,
the declared settings parse the values, and attnlaw prints the help itself."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from attnlaw import __version__
from attnlaw.command import UsageError
from attnlaw.command.commands import Command, command_lines, find_commands
from attnlaw.command.help import print_group, print_help, print_overview, takes_several_words
from attnlaw.core.errors import BadSetting, as_option
from attnlaw.core.settings import IS_MISSING, SettingField
from attnlaw.render.terminal.console import output, print_message

PLAIN: Literal["plaintext"] = "plaintext"  # starts a third faster than markup
HELP_FLAGS = ("--help", "-h")
NEAR = 0.75  # how alike the spelling of two options must be to suggest one for the other


def run(words: list[str]) -> int:
    """Run the command that these command-line arguments call. Return the exit status."""
    called = next((word for word in words if not word.startswith("-")), None)
    lines = command_lines()
    commands = find_commands(called) if called in lines else {}
    if not words or any(word in HELP_FLAGS for word in words):
        if called is None or commands:
            return _help(called, commands, words)
        words = [called]  # an unknown command
    if called in lines and words == [called] and called not in commands:
        return _help(called, commands, words)
    app = App(
        name="attnlaw",
        help_flags=(),
        help_format=PLAIN,
        version=f"attnlaw {__version__}",
        version_flags=["--version", "-V"],
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    completing = "--install-completion" in words[:1]
    for place, (name, line) in enumerate(lines.items()):
        if completing or name == called:
            made = _app(name, find_commands(name))
        else:
            made = App(name=name, help=line, help_flags=(), help_format=PLAIN)
        made.sort_key = place
        app.command(made)
    if completing:
        app.register_install_completion_command()
    try:
        status = app(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        chosen = next((word for word in words if word in commands), None)
        title = commands[chosen].title if chosen else called if called in lines else ""
        known_options = [as_option(name) for name in commands[chosen].known] if chosen else []
        print_message(f"attnlaw: {_error_message(error, title, known_options)}")
        return 2
    return status if isinstance(status, int) else 0


def _error_message(error: CycloptsError, title: str, known_options: Sequence[str]) -> str:
    options = " ".join(filter(None, ["attnlaw", title, "--help"]))
    option = re.search(r"--[\w-]+", str(error))
    name = option[0] if option else "an option"
    message = " ".join(str(error).replace('"', "").split()).rstrip(".")
    match error:
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            message = f"{word} is not an option. To give several values, join them with commas, such as a,b"
        case MissingArgumentError():
            message = f"{name} needs a value"
        case RepeatArgumentError() if name == "--ids" and title == "margins":
            message = f"{name} is given twice. For several inputs, use --ids @FILE with one list on each line"
        case UnknownOptionError():
            close = difflib.get_close_matches(name, known_options, n=1, cutoff=NEAR)
            message = f"{name} is not an option{f'. Did you mean {close[0]}?' if close else ''}"
        case RepeatArgumentError():
            message = f"{name} is given twice. To give several values, join them with commas, such as a,b"
        case CoercionError() if error.argument is not None and error.argument.hint is bool:
            message = f"{name} takes no value"
        case UnknownCommandError(unused_tokens=[word, *_]):
            known = command_lines() if not title else find_commands(title)
            close = difflib.get_close_matches(word, known, n=1)
            message = f"{word} is not a command{f'. Did you mean {close[0]}?' if close else ''}"
    return f"{message}{'' if message.endswith('?') else '.'} See: {options}"


def _help(called: str | None, commands: dict[str, Command], words: list[str]) -> int:
    chosen = next((word for word in words if word in commands), None)
    if called is None:
        print_overview(output)
    elif chosen is None:
        print_group(output, called, commands)
    else:
        print_help(output, commands[chosen])
    return 0


def _app(name: str, commands: dict[str, Command]) -> App:
    if list(commands) == [name]:
        return _command_app(name, commands[name])
    group = App(name=name, help=command_lines()[name], help_flags=(), help_format=PLAIN)
    for word, command in commands.items():
        group.command(_command_app(word, command))
    return group


def _command_app(name: str, command: Command) -> App:
    """Return a cyclopts command whose options are the settings of `command`."""
    places = command.places

    def call(*words: str | None, **given: Any) -> int:
        for number, place in enumerate(places[: len(words)]):  # only the last may be a list
            if words[number] is not None:
                given[place.name] = list(words[number:]) if takes_several_words(place) else words[number]
        try:
            return command.run(given)
        except BadSetting as error:
            called = {place.name: place.rule.metavar or place.name.upper() for place in places}
            line = error.message(as_option, words=called)
            if error.rule == IS_MISSING and command.examples:
                line = f"{line}; try: {next(iter(command.examples))}"
            raise UsageError(line) from error

    parameters = [_parameter(known) for known in command.known.values()]
    parameters.sort(key=lambda parameter: parameter.kind)
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    made = App(name=name, help=command.purpose, help_flags=(), help_format=PLAIN)
    made.default(call)
    return made


def _parameter(known: SettingField) -> inspect.Parameter:
    """Return the parameter of a setting. Its settings record finds out later whether a value is missing."""
    rule = known.rule
    shown = Parameter(
        name=None if rule.positional else as_option(known.name),
        help=rule.help,
        required=False,
        negative=(),
        allow_leading_hyphen=known.is_number,
    )
    kind: Any = inspect.Parameter.KEYWORD_ONLY
    default: Any = None
    hint: Any = str | None
    name = (rule.metavar or known.name).lower() if rule.positional else known.name
    if rule.positional and takes_several_words(known):
        kind, default, hint = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.empty, str
    elif rule.positional:
        kind = inspect.Parameter.POSITIONAL_ONLY
    elif known.types == (bool,):
        default, hint = False, bool
    elif rule.repeatable:
        hint = list[str] | None
    return inspect.Parameter(name, kind, annotation=Annotated[hint, shown], default=default)
