"""What the command line does with errors that no verb expects."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints.spoiled import CONFIG, bert_state
from command.in_process import invoke
from safetensors.torch import save_file

ATTNLAW = f'"{sys.executable}" -c "from attnlaw.command import main; main()"'


def test_what_does_not_fit_into_memory_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.command.app.run", lambda words: np.empty(2**58))
    line = invoke("learn", status=1).stderr
    assert "does not fit into memory (Unable to allocate 2.00 EiB" in line
    assert line.endswith("; choose a smaller size\n")


def test_what_the_system_refuses_is_one_line_that_names_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.command.app.run", lambda words: Path("a\nb" * 3000).stat())
    line = invoke("learn", status=1).stderr
    assert line.startswith(r"attnlaw: a\nba\nb")
    assert line.endswith(": File name too long; give another path\n")
    assert len(line) < 2100


def test_a_connection_that_breaks_is_not_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.command.app.run", lambda words: socket.create_connection(("127.0.0.1", 9)))
    line = invoke("learn", status=1).stderr
    assert line.startswith("attnlaw: the operating system reported an error (ConnectionRefusedError(")
    assert line.endswith("); try again\n")


def test_ctrl_c_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attnlaw.theory.limit.limit.law_of", interrupted)
    ended = invoke("limit", "--width", "8", status=130)
    assert (ended.stdout, ended.stderr) == ("", "attnlaw: stopped\n")


@pytest.mark.parametrize(
    "arguments",
    ["audit M", "fit M", "lens M --ids 1", "report DIR", "study run F", "study export F", "study status F"],
)
def test_an_empty_name_is_not_the_directory_one_is_in(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--out "$UNSET" would write among the user's files."""
    monkeypatch.chdir(tmp_path)
    refused = invoke(*arguments.split(), "--out", "", status=2)
    assert (
        refused.stderr
        == "attnlaw: --out found an empty name; give a directory (a dot means the current directory)\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("lab audit", "PATH is missing: the page of audit needs a file. Type: attnlaw lab audit PATH"),
        ("lab learn DIR", "DIR: the page of learn does not use a file; leave it out"),
        ("lab limit --port 0", "--port 0: expected a whole number of at least 1 and of at most 65535"),
    ],
)
def test_a_page_of_the_lab_that_cannot_be_is_bad_usage(arguments: str, line: str) -> None:
    assert invoke(*arguments.split(), status=2).stderr == f"attnlaw: {line}\n"


@pytest.mark.parametrize(("word", "shown_word"), [("lern", "lern"), ("", "''")])
def test_a_word_is_told_as_it_was_typed_and_not_as_an_option(word: str, shown_word: str) -> None:
    line = invoke("lab", word, status=2).stderr
    assert line.startswith(f"attnlaw: {shown_word}: expected one of audit, fit, ")


def test_closed_streams() -> None:
    out = subprocess.run(f"{ATTNLAW} --version >&-", shell=True, capture_output=True, text=True)
    assert (out.returncode, out.stderr) == (
        1,
        "attnlaw: standard output is closed; redirect it, for example to /dev/null\n",
    )
    assert subprocess.run(f"{ATTNLAW} --version 2>&-", shell=True, capture_output=True).returncode == 0
    assert subprocess.run(f"{ATTNLAW} --version >&- 2>&-", shell=True, capture_output=True).returncode == 1


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    ended = subprocess.run(f"{ATTNLAW} learn --json | head -c 1", shell=True, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("{", "")


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version(word: str) -> None:
    assert invoke(word).stdout.startswith("attnlaw 0.")


def test_help_does_not_import_the_numerical_libraries() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['attnlaw', '--help']\n"
        "from attnlaw.command import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'scipy', 'polars', 'altair', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "learn --target-spike 1e300",
        "dynamics --target-spike 1e154",
        "dynamics --learning-rate 1e300",
    ],
)
def test_no_warning_of_a_library_is_printed(words: str) -> None:
    """Overflows are told by the result. Whoever asks Python for its warnings gets them."""
    command = f"{ATTNLAW} {words}"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Warning" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_who_asks_python_for_warnings_gets_them() -> None:
    command = f"{ATTNLAW} learn --target-spike 1e300".replace(" -c", " -W default -c")
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert "RuntimeWarning: overflow" in ended.stderr


@pytest.mark.slow
def test_a_refusal_stands_alone(tmp_path: Path) -> None:
    """Weights whose products overflow."""
    for name, scale in (("small", 1.0), ("large", 1e300)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 1}))
        state = {key: scale * value.double() for key, value in bert_state(layers=1).items()}
        save_file(state, tmp_path / name / "model.safetensors")
    command = f"{ATTNLAW} diff small large"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(
        "attnlaw: these heads cannot be compared, because products of their weights exceed 1e308"
    )


def test_a_process_that_has_imported_pydantic_can_call_every_option(capsys):
    """Cyclopts then checks defaults, too: those of options that were not given."""
    pytest.importorskip("pydantic")
    assert invoke("learn", "--alpha", "0.3", "--json").stdout.startswith("{")
