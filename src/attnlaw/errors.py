"""The one error a user sees as a line."""


class InputError(ValueError):
    """Input that cannot be used: one line that says what was found, what was expected and what to do.

    The command line prints it to standard error and exits with status 1; nothing else is caught there.
    Names that come from files may hold line breaks and terminal escapes; they are shown as such.

    >>> str(InputError("tensor a\\nb\\x1b[31m is missing"))
    'tensor a\\\\nb\\\\x1b[31m is missing'
    """

    def __init__(self, message: str) -> None:
        super().__init__("".join(char if char.isprintable() else ascii(char)[1:-1] for char in message))
