"""What the command line does with errors that no verb expects."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from attnlaw import command
from attnlaw.command.app import app


def test_what_does_not_fit_into_memory_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr("attnlaw.command.app.app", lambda: np.empty(2**58))
    with pytest.raises(SystemExit) as end:
        command.main()
    assert "does not fit into memory (Unable to allocate 2.00 EiB" in str(end.value)
    assert str(end.value).endswith("; choose smaller sizes")


def test_what_the_system_refuses_is_one_line_that_names_the_path(monkeypatch):
    monkeypatch.setattr("attnlaw.command.app.app", lambda: Path("a\nb" * 3000).stat())
    with pytest.raises(SystemExit) as end:
        command.main()
    assert str(end.value).startswith(r"attnlaw: a\nba\nb")
    assert str(end.value).endswith(": File name too long; give another path")
    assert len(str(end.value)) < 2100


def test_a_connection_that_breaks_is_not_standard_output(monkeypatch):
    monkeypatch.setattr("attnlaw.command.app.app", lambda: socket.create_connection(("127.0.0.1", 9)))
    with pytest.raises(SystemExit) as end:
        command.main()
    line = str(end.value)
    assert line.startswith("attnlaw: the system refused something (ConnectionRefusedError(")
    assert line.endswith("); try again")


def test_ctrl_c_is_said_in_one_line(monkeypatch, capsys):
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attnlaw.limits.compare_widths", interrupted)
    monkeypatch.setattr(sys, "argv", ["attnlaw", "limit"])
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 130
    assert capsys.readouterr() == ("", "attnlaw: stopped\n")


@pytest.mark.parametrize(
    "arguments",
    ["audit M", "fit M", "lens M --ids 1", "report DIR", "study run F", "study export F", "study status F"],
)
def test_an_empty_name_is_not_the_directory_one_is_in(arguments, tmp_path, monkeypatch):
    """--out "$UNSET" would write among the user's files."""
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, [*arguments.split(), "--out", ""])
    assert refused.exit_code == 2
    assert "found an empty name; give a directory" in " ".join(refused.output.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_closed_streams():
    command = f'"{sys.executable}" -c "from attnlaw.command import main; main()" --version'
    out = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert (out.returncode, out.stderr) == (
        1,
        "attnlaw: standard output is closed; give it another place, such as /dev/null\n",
    )
    assert subprocess.run(f"{command} 2>&-", shell=True, capture_output=True).returncode == 0
    assert subprocess.run(f"{command} >&- 2>&-", shell=True, capture_output=True).returncode == 1
