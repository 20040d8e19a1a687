"""A machine on which the GitHub action runs: `tools/shipping/github_runner.py` and models.

What cannot run here is replaced: the actions that ours uses, and the programs `venv` and `pip`.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from house.shipping import ROOT, load

github_action, github_runner = load("github_action"), load("github_runner")

TINY = ROOT / "examples" / "tiny-decoder"
# In place of Python: `-m venv` makes a directory with itself, and `-m pip` writes down its words and makes
# a program attnlaw.
PYTHON = """#!/bin/sh
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  pip)
    printf '%s\\n' "$@" >{words}
    printf '#!/bin/sh\\nexec {python} -P -m attnlaw "$@"\\n' >"${{0%/*}}/attnlaw"
    chmod +x "${{0%/*}}/attnlaw" ;;
  *) exit 9 ;;
esac
"""


class Machine:
    """A workspace with models, a runner, and what the action left."""

    def __init__(self, folder: Path) -> None:
        self.kept, self.words = folder / "kept", folder / "words"
        self.workspace = folder / "work space"
        self.workspace.mkdir()
        python = folder / "python"
        python.write_text(PYTHON.format(words=shlex.quote(str(self.words)), python=sys.executable))
        python.chmod(0o755)
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        self.runner = github_runner.Runner(
            self.workspace,
            folder / "runner temp",
            github_runner.machine_variables() | threads,
            github_action.replaced_actions(str(python), self.kept),
            {"OWNER/attnlaw": ROOT},
        )

    def sound(self, name: str) -> str:
        shutil.copytree(TINY, self.workspace / name)
        return name

    def damaged(self, name: str) -> str:
        github_action.damage(TINY, self.workspace / name)
        return name

    def run(self, **inputs: str) -> tuple[int, dict[str, str]]:
        """Run the action. Its result must agree with its status; return the status and the outputs."""
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        passed, outputs = self.runner.run_action(ROOT, given)
        assert passed == (self.runner.status == 0)
        assert outputs["status"] == str(self.runner.status), self.log
        return self.runner.status, outputs

    @property
    def log(self) -> str:
        return self.runner.step("Run attnlaw").log

    def files(self) -> set[str]:
        return {path.name for path in self.workspace.iterdir()}

    def artifact(self, name: str = "attnlaw-report") -> set[str]:
        return {path.name for path in (self.kept / name).iterdir()}
