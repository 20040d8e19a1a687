"""The one error a user sees as a line."""


class InputError(ValueError):
    """Input that cannot be used: one line that says what was found, what was expected and what to do.

    The command line prints it to standard error and exits with status 1; nothing else is caught there.
    """
