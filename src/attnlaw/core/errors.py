"""Errors that a user sees as one line.

`InputError` is the only error that attnlaw raises on purpose. A `BadSetting` names the setting as the user
typed it:

| where the mistake was made | message |
|---|---|
| Python | `alpha: found -1, expected a number above 0` |
| command line | `--alpha -1: expected a number above 0`; for a positional word `lern: expected one of ...` |
| study file | `s.toml: [grid] alpha: found -1, expected a number above 0` |
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

LONGEST = 2000  # characters of a message
NO_WORDS: Mapping[str, str] = MappingProxyType({})


def printable(text: str) -> str:
    r"""Replace unprintable characters, such as line breaks and terminal escapes, by escape sequences.

    >>> printable("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class InputError(ValueError):
    """An error in the input. One line says what happened, what was expected, and what to do.

    The command line prints the message to standard error and exits with status 1.
    """

    def __init__(self, message: str) -> None:
        line = printable(message)
        if len(line) > LONGEST:  # the message repeats an absurdly long name
            line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
        super().__init__(line)


class UnavailableError(InputError, AttributeError):
    """An error about an attribute that a result lacks. It is an AttributeError so that `hasattr` works."""


class BadSetting(InputError):
    """An error in the value of a setting. The command line exits with status 2.

    In `rule`, `{other}` stands for the setting `other` and is replaced by the name that the user knows: an
    option, a key of a file, or an argument.

    >>> mistake = BadSetting("beta", "needs {output} softmax")
    >>> print(mistake, "|", mistake.message(as_option))
    beta needs output softmax | --beta needs --output softmax
    """

    def __init__(self, name: str, rule: str, value: object = None) -> None:
        self.name, self.rule, self.value = name, rule, value
        super().__init__(self.message())

    def __reduce__(self) -> tuple[type[BadSetting], tuple[str, str, object]]:
        return BadSetting, (self.name, self.rule, self.value)

    def message(
        self, spell: Callable[[str], str] = str, place: str = "", words: Mapping[str, str] = NO_WORDS
    ) -> str:
        """Return the error message in the words of the place where the user made the mistake.

        `spell` returns the name of a setting in that place, and `place` is a text to put before the name.
        `words` maps the positional settings of a command to their names in its help. Instead of the name of
        such a setting, the message repeats what the user typed.

        >>> BadSetting("page", "expected learn or limit", "lern").message(as_option, words={"page": "PAGE"})
        'lern: expected learn or limit'
        >>> BadSetting("port", "needs {page}", 80).message(as_option, words={"page": "PAGE"})
        '--port 80: needs PAGE'
        """
        return printable(place + self._line(spell, words))

    def _line(self, spell: Callable[[str], str], words: Mapping[str, str]) -> str:
        name = words.get(self.name) or spell(self.name)
        rule = re.sub(r"\{(\w+)\}", lambda other: words.get(other[1]) or spell(other[1]), self.rule)
        if self.value is None:
            return f"{name} {rule}"
        if self.name in words:
            return f"{_setting_value_text(self.value, str) or repr('')}: {rule}"
        if spell is as_option:
            typed = name if self.value is True else f"{name} {_setting_value_text(self.value, str)}"
            return f"{typed}: {rule}"
        return f"{name}: found {_setting_value_text(self.value, repr)}, {rule}"


class BadUsage(BadSetting):
    """A mistake of the user that is not in one setting. The command line exits with status 2."""

    def __init__(self, line: str) -> None:
        super().__init__("", line)

    def __reduce__(self) -> tuple[type[BadUsage], tuple[str]]:  # type: ignore[override]
        return BadUsage, (self.rule,)

    def _line(self, spell: Callable[[str], str], words: Mapping[str, str]) -> str:
        return self.rule


class MissingSetting(BadSetting):
    """An error about a missing setting. The message shows what to type, with an `example` value.

    >>> missing = MissingSetting("text", "lens needs an input", "the cat", "attnlaw lens M")
    >>> print(missing.message(as_option), "|", missing)
    lens needs an input. Try: attnlaw lens M --text 'the cat' | lens needs an input. Try: text='the cat'
    """

    def __init__(self, name: str, problem: str, example: str, command: str) -> None:
        self.example, self.command = example, command
        super().__init__(name, problem)

    def __reduce__(self) -> tuple[type[MissingSetting], tuple[str, str, str, str]]:  # type: ignore[override]
        return MissingSetting, (self.name, self.rule, self.example, self.command)

    def _line(self, spell: Callable[[str], str], words: Mapping[str, str]) -> str:
        typed = f"{self.name}={self.example!r}"
        if spell is as_option:
            typed = f"{self.command} {spell(self.name)} {shlex.quote(self.example)}"
        return f"{self.rule}. Try: {typed}"


@contextmanager
def rename_settings(**names: str) -> Iterator[None]:
    """Change the names of settings in a `BadSetting` to those that the user typed.

    >>> with rename_settings(size="simulate"):
    ...     raise BadSetting("size", "is too large; choose a smaller {size}", 10**6)
    Traceback (most recent call last):
    ...
    attnlaw.core.errors.BadSetting: simulate: found 1000000, is too large; choose a smaller simulate
    """
    try:
        yield
    except BadSetting as error:
        rule = re.sub(r"\{(\w+)\}", lambda other: f"{{{names.get(other[1], other[1])}}}", error.rule)
        raise BadSetting(names.get(error.name, error.name), rule, error.value) from error


@contextmanager
def require_extra(what: str, extra: str) -> Iterator[None]:
    """Turn an ImportError that the block raises into an `InputError` that names the extra to install."""
    try:
        yield
    except ImportError as error:
        name = error.name or "another package"
        raise InputError(f"{what} needs {name}; install it with: pip install 'attnlaw[{extra}]'") from error


@contextmanager
def as_input_error(
    what: str, remedy: str, *errors: type[BaseException], with_reason: bool = True, last_line: bool = False
) -> Iterator[None]:
    """Turn these errors (OSError by default) into a one-line `InputError` with reason and remedy.

    The reason is the first (or last) line of the original message. An `InputError` passes unchanged.

    >>> with as_input_error("w.json: not valid JSON", "restore it", ValueError):
    ...     int("x")
    Traceback (most recent call last):
    ...
    attnlaw.core.errors.InputError: w.json: not valid JSON (invalid literal for int() ... 'x'); restore it
    """
    kinds = errors or (OSError,)
    try:
        yield
    except InputError:
        raise
    except kinds as error:
        said = getattr(error, "strerror", None) or str(error)
        lines = said.strip().splitlines() or [type(error).__name__]
        reason = f" ({lines[-1 if last_line else 0].strip()})" if with_reason else ""
        raise InputError(f"{what}{reason}; {remedy}") from error


def require_some(content: object, where: object, what: str, remedy: str) -> None:
    """Raise an `InputError` if `content` is empty or false."""
    if not content:
        raise InputError(f"{where}: found no {what}; {remedy}")


def as_option(name: str) -> str:
    """Return the option of a setting, such as `--target-rank`."""
    return f"--{name.replace('_', '-')}"


def _setting_value_text(value: object, write: Callable[[object], str]) -> str:
    return f"{value:g}" if isinstance(value, float) else write(value)
