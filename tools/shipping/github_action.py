"""Try the GitHub action (`action.yml`) with a sound and with a damaged model.

The scripts of the action run as they are, in `github_runner.py`. The actions that it uses cannot run here:
`replaced_actions` takes their place. In `make release`, attnlaw is really installed from the unpacked source.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from environment import MODEL, Log
from github_runner import Action, Runner, machine_variables
from safetensors.numpy import load_file, save_file

# What `attnlaw check` leaves in its report; the tables are in addition.
REPORT = ("report.html", "attnlaw.json", "junit.xml", "results.sarif", "summary.md", "screen.txt")


def damage(model: Path, folder: Path) -> Path:
    """Write a copy of a model with one NaN, which every gate must stop."""
    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    name = max(tensors, key=lambda name: tensors[name].size)
    tensors[name] = tensors[name].copy()
    tensors[name].flat[0] = np.nan
    save_file(tensors, folder / "model.safetensors")
    return folder


def replaced_actions(python: str, kept: Path) -> dict[str, Action]:
    """Return functions in place of the actions that ours, and the workflow of the how-to, use.

    Args:
        python: the interpreter that setup-python finds.
        kept: the directory in which uploaded artifacts and alerts are kept.
    """

    def upload_artifact(inputs: Mapping[str, str]) -> dict[str, str]:
        shutil.copytree(inputs["path"], kept / inputs["name"])  # like the action, it refuses a second one
        return {"artifact-url": f"https://example.com/{inputs['name']}"}

    def upload_sarif(inputs: Mapping[str, str]) -> dict[str, str]:
        json.loads(Path(inputs["sarif_file"]).read_text(encoding="utf-8"))
        kept.mkdir(exist_ok=True)
        shutil.copy(inputs["sarif_file"], kept / "alerts.sarif")
        return {}

    return {
        "actions/checkout": lambda inputs: {},
        "actions/setup-python": lambda inputs: {"python-path": python},
        "actions/upload-artifact": upload_artifact,
        "github/codeql-action/upload-sarif": upload_sarif,
    }


def try_action(log: Log, folder: Path, source: Path, python: str) -> None:
    """Run the action of the unpacked source: a sound model passes, a damaged one fails with status 3."""
    folder.mkdir()
    workspace = folder / "work space"
    shutil.copytree(source / MODEL, workspace / "models" / "a sound one")
    damage(source / MODEL, workspace / "models" / "a damaged one")
    for model, expected in (("a sound one", 0), ("a damaged one", 3)):
        temp = folder / "temp"  # the second run finds the environment of the first, as in one job
        runner = Runner(workspace, temp, machine_variables(), replaced_actions(python, folder / "kept"))
        inputs = {"model": f"models/{model}", "artifact": model}
        passed, outputs = runner.run_action(source, inputs)
        kept = {path.name for path in (folder / "kept" / model).glob("*")}
        mark = f"### {'❌' if expected else '✅'} Gate {'failed' if expected else 'passed'}"
        fine = (
            (passed, runner.status, outputs["status"]) == (not expected, expected, str(expected))
            and set(REPORT) <= kept
            and runner.summary.startswith(mark)
            and any(level == "error" for level, _, _ in runner.annotations) == bool(expected)
        )
        log.check(fine, f"action: {model}: status {outputs['status']}, {len(kept)} files in the artifact")
        if not fine:
            log.say("\n".join(step.log for step in runner.steps))
