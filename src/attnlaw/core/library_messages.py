"""Keep the messages of other libraries in order: drop those of an import, relay those about the user's model.

A user can do nothing with messages about extensions that are not built for this machine. Warnings about a
config.json matter, so each becomes one line in the log of attnlaw. Errors pass unchanged.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_import() -> Iterator[None]:
    """Hide warnings, and log records below the level of an error, while the block imports a library."""
    level = logging.root.manager.disable
    logging.disable(max(level, logging.WARNING))
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(level)


@contextmanager
def relayed_warnings(library: str, subject: str) -> Iterator[None]:
    """Pass on the warnings that a library logs in the block to attnlaw's log, as one line each.

    Python warnings in the block are also passed on if they are meant for users, but deprecations are not. If
    the block raises an error, its warnings are dropped, because the error says enough. `library` is the name
    of the package and its logger; `subject` is what the warnings are about, such as a path.
    """
    log, collector = logging.getLogger(library), _Collector()
    handlers, propagates = log.handlers, log.propagate
    log.handlers, log.propagate = [collector], False
    try:
        with warnings.catch_warnings(record=True, action="always") as recorded:
            yield
    finally:
        log.handlers, log.propagate = handlers, propagates
    texts = [
        *collector.texts,
        *(str(warning.message) for warning in recorded if warning.category is UserWarning),
    ]
    for line in dict.fromkeys(" ".join(text.split()) for text in texts):
        logging.getLogger("attnlaw").warning("attnlaw: warning: %s: %s says: %s", subject, library, line)


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
