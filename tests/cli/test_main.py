"""What the command line does with errors that no verb expects."""

from __future__ import annotations

import numpy as np
import pytest

from attnlaw import cli


def test_what_does_not_fit_into_memory_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr("attnlaw.cli.app.app", lambda: np.empty(2**58))
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert "does not fit into memory (Unable to allocate 2.00 EiB" in str(end.value)
    assert str(end.value).endswith("; choose smaller sizes")
