"""Ctrl-C while the command line starts: status 130 and one line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Ctrl-C comes at the moment when a module is looked for, as if a person had pressed the keys just then.
PROGRAM = """
import json, os, signal, sys

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

module, sys.argv = sys.argv[1], ["attnlaw", "learn", "--alpha", "0.2"]
sys.meta_path.insert(0, Interruption())
from attnlaw.command import main
main()
"""


@pytest.mark.parametrize(
    "module", ["attnlaw.core.errors", "attnlaw.command.app", "cyclopts", "attnlaw.verbs.learn"]
)
def test_an_interruption_at_an_import_is_one_line(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, module], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "attnlaw: stopped\n")


def test_little_is_imported_before_main() -> None:
    """Nothing of the command line can answer Ctrl-C while these are read."""
    program = "import json, sys; before = set(sys.modules); import attnlaw.command\n"
    program += "print(json.dumps(sorted(set(sys.modules) - before)))"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(json.loads(ended.stdout)) <= {
        "__future__",
        "attnlaw",
        "attnlaw.command",
        "importlib",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "warnings",
    }
