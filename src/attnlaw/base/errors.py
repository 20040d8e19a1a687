"""The one error a user sees as a line, and text from files made safe to show."""

LONGEST = 2000  # characters of a message


def printable(text: str) -> str:
    """The text with line breaks, terminal escapes and other unprintable characters written out.

    >>> printable("a\\nb\\x1b[31m")
    'a\\\\nb\\\\x1b[31m'
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class InputError(ValueError):
    """Input that cannot be used: one line that says what was found, what was expected and what to do.

    The command line prints it to standard error and exits with status 1.
    """

    def __init__(self, message: str) -> None:
        line = printable(message)
        if len(line) > LONGEST:  # a name in it is longer than any name should be
            line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
        super().__init__(line)
