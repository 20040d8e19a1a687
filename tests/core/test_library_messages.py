"""Messages of other libraries: imports are quiet, and each warning about the user's model is one line."""

from __future__ import annotations

import logging
import warnings

import pytest

from attnlaw.core.library_messages import quiet_import, relayed_warnings


def test_warnings_of_an_import_are_dropped_and_errors_are_not(caplog: pytest.LogCaptureFixture) -> None:
    before = logging.root.manager.disable
    with quiet_import():
        logging.getLogger("library").warning("an extension is not built for this machine")
        logging.getLogger("library").error("the library is broken")
        warnings.warn("a name will change", DeprecationWarning, stacklevel=1)
    logging.getLogger("library").warning("this is about the data")
    assert [record.getMessage() for record in caplog.records] == [
        "the library is broken",
        "this is about the data",
    ]
    assert logging.root.manager.disable == before


def test_an_import_that_fails_raises_its_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_library"), quiet_import():
        import no_such_library  # noqa: F401


def test_each_warning_of_a_library_becomes_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("library")
    screen = logging.StreamHandler()
    log.addHandler(screen)
    with relayed_warnings("library", "config.json"):
        for _ in range(2):
            logging.getLogger("library.config").warning("unknown key\n  factor")
        warnings.warn("too long", UserWarning, stacklevel=1)
        warnings.warn("a name will change", FutureWarning, stacklevel=1)
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("attnlaw", "attnlaw: warning: config.json: library says: unknown key factor"),
        ("attnlaw", "attnlaw: warning: config.json: library says: too long"),
    ]
    assert log.handlers == [screen]
    log.removeHandler(screen)


def test_an_error_is_not_preceded_by_warnings(caplog: pytest.LogCaptureFixture) -> None:
    def build() -> None:
        with relayed_warnings("library", "config.json"):
            logging.getLogger("library").warning("unknown key")
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        build()
    assert not caplog.records
