"""The hooks for pre-commit: which files they take, and what the program pre-commit does with them.

Here the hooks run the attnlaw at hand (`language: system`). `make release` has pre-commit install it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from analysis.check.test_workflow import block
from house.shipping import ROOT, load
from safetensors.numpy import load_file, save_file

from attnlaw.checkpoints.formats import FORMATS
from attnlaw.checkpoints.open import NOT_WEIGHTS

commit_hooks = load("commit_hooks")
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / commit_hooks.HOOKS).read_text(encoding="utf-8"))}
TINY = ROOT / "examples" / "tiny-decoder"


def takes(hook: str, file: str) -> bool:
    """Return whether pre-commit passes a file to the hook, or runs the hook because of it."""
    known = HOOKS[hook]
    return bool(re.search(known["files"], file)) and not re.search(known.get("exclude", "^$"), file)


@pytest.mark.parametrize("hook", HOOKS)
def test_every_format_and_no_optimizer_state(hook: str) -> None:
    for ending in (ending for format in FORMATS for ending in format.endings):
        assert takes(hook, f"models/my model/model{ending}"), ending
        assert not takes(hook, f"model{ending}.md")
    assert not takes(hook, "README.md")
    assert takes("attnlaw-check-model", "tuned/model.safetensors.index.json")
    # An adapter cannot be checked without its base, and the hook says so. The others are never models.
    for name in set(NOT_WEIGHTS) - {"adapter_model"}:
        assert not takes("attnlaw-check", f"checkpoint-10/{name}.pt"), name


def test_the_hooks_run_the_gate() -> None:
    for hook in HOOKS.values():
        assert shlex.split(hook["entry"]) == ["attnlaw", "check"]
        assert hook["language"] == "python"
        assert hook["require_serial"]


class User:
    """A repository with checkpoints, its configuration, and the hooks' repository."""

    def __init__(self, folder: Path) -> None:
        self.folder, hooks, programs = folder / "user", folder / "hooks", folder / "programs"
        for made in (self.folder, hooks, programs):
            made.mkdir()
        program = programs / "attnlaw"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m attnlaw "$@"\n')
        program.chmod(0o755)
        self.variables = {
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "HOME": str(folder),
            "PRE_COMMIT_HOME": str(folder / "cache"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
        }
        shutil.copy(ROOT / commit_hooks.HOOKS, hooks)
        self.hooks, self.commit = hooks, commit_hooks.make_repository(hooks)
        subprocess.run(["git", "init", "--quiet"], cwd=self.folder, check=True)

    def run(self, hook: str, **more: object) -> subprocess.CompletedProcess[str]:
        """Run a hook on what the next commit changes."""
        declared = {"id": hook, "language": "system", **more}
        commit_hooks.write_config(self.folder, self.hooks, self.commit, [declared])
        return commit_hooks.run_hook(self.folder, hook, self.variables)


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.mark.slow
def test_a_commit_with_a_damaged_checkpoint_is_stopped(user: User) -> None:
    shutil.copytree(TINY, user.folder / "a sound one")
    done = user.run("attnlaw-check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Gate passed" in done.stdout
    commit_hooks.damage(TINY, user.folder / "a damaged one")
    done = user.run("attnlaw-check")
    assert done.returncode == 1
    assert "- exit code: 3" in done.stdout
    assert "a damaged one/model.safetensors\nERROR    Gate failed: 1 error" in done.stdout
    assert "a sound one" in done.stdout


@pytest.mark.slow
def test_a_commit_without_checkpoints_runs_nothing(user: User) -> None:
    (user.folder / "README.md").write_text("No model.\n")
    done = user.run("attnlaw-check")
    assert done.returncode == 0
    assert "(no files to check)Skipped" in done.stdout


@pytest.mark.slow
def test_a_model_in_args_is_checked_as_a_whole(user: User) -> None:
    """A change of the config alone runs the hook, and the hook reads the model and its rules."""
    commit_hooks.damage(TINY, user.folder / "model")
    for words in (["add", "model/model.safetensors"], ["commit", "--quiet", "--message", "Weights"]):
        subprocess.run([*commit_hooks.GIT, *words], cwd=user.folder, check=True)
    done = user.run("attnlaw-check-model", args=["model", "--rules", "release"], files="^model/")
    assert done.returncode == 1
    assert "- exit code: 3" in done.stdout
    assert "model\nERROR    Gate failed" in done.stdout
    done = user.run("attnlaw-check-model", args=["model"], files="^other/")
    assert done.returncode == 0
    assert "Skipped" in done.stdout


@pytest.mark.slow
def test_the_configuration_of_the_how_to(user: User) -> None:
    """A model of several shards, which only the second hook can read."""
    (repository,) = yaml.safe_load(block(".pre-commit-config.yaml"))["repos"]
    (user.folder / "gate.toml").write_text("version = 1\n")
    write_shards(user.folder / "models" / "tuned")
    shards, whole = repository["hooks"]
    assert "Skipped" in user.run(shards.pop("id"), **shards).stdout
    done = user.run(whole.pop("id"), **whole)
    assert done.returncode == 0, done.stdout
    assert "models/tuned\nOK       Gate passed" in done.stdout
    done = user.run("attnlaw-check")
    assert done.returncode == 1
    assert "this is one of 2 shards of a model" in done.stdout


def write_shards(folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy(TINY / "config.json", folder)
    tensors, index = load_file(TINY / "model.safetensors"), {}
    for number, names in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names}, folder / file)
        index |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
