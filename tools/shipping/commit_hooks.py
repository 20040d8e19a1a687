"""Try the hooks of `.pre-commit-hooks.yaml` with the program pre-commit itself.

A repository for the hooks and one with checkpoints are made in a directory. `make release` has pre-commit
install attnlaw from the first one. The tests cannot wait for that: they run the attnlaw at hand
(`language: system`), and everything else is as it is for a user.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from environment import MODEL, Log
from github_action import damage
from github_runner import machine_variables

HOOKS = ".pre-commit-hooks.yaml"
CONFIG = ".pre-commit-config.yaml"
GIT = ("git", "-c", "user.name=Name", "-c", "user.email=name@example.com", "-c", "commit.gpgsign=false")


def make_repository(folder: Path) -> str:
    """Make a directory a repository with one commit of all its files, and return the commit."""
    for line in ("init --quiet", "add --all --force", "commit --quiet --message Files"):
        subprocess.run([*GIT, *line.split()], cwd=folder, check=True)
    done = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write_config(folder: Path, hooks: Path, commit: str, declared: Sequence[Mapping[str, object]]) -> None:
    """Write the user's configuration, which names the hooks' repository."""
    repository = {"repo": str(hooks), "rev": commit, "hooks": [dict(hook) for hook in declared]}
    (folder / CONFIG).write_text(yaml.safe_dump({"repos": [repository]}), encoding="utf-8")


def run_hook(
    folder: Path, hook: str, variables: Mapping[str, str], files: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Stage all files and run a hook on some of them, or on those that the next commit changes."""
    subprocess.run([*GIT, "add", "--all"], cwd=folder, check=True)
    chosen = ["--files", *files] if files else []
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--verbose", "--color=never", hook, *chosen],
        cwd=folder,
        env=dict(variables),
        capture_output=True,
        text=True,
        check=False,
    )


def try_hooks(log: Log, folder: Path, source: Path, python: str) -> None:
    """Have pre-commit install the unpacked source, and stage a sound and a damaged model."""
    hooks, user = folder / "hooks", folder / "user"
    variables = machine_variables() | {"PRE_COMMIT_HOME": str(folder / "cache")}
    shutil.copytree(source, hooks)
    user.mkdir(parents=True)
    subprocess.run([*GIT, "init", "--quiet"], cwd=user, check=True)
    write_config(user, hooks, make_repository(hooks), [{"id": "attnlaw-check", "language_version": python}])
    shutil.copytree(source / MODEL, user / "sound")
    for model, expected in (("sound", 0), ("damaged", 1)):  # the status of pre-commit, not of attnlaw
        if model == "damaged":
            damage(source / MODEL, user / model)
        done = run_hook(user, "attnlaw-check", variables)
        gate = f"Gate {'failed' if expected else 'passed'}"
        fine = done.returncode == expected and gate in done.stdout
        log.check(fine, f"pre-commit: {model}: status {done.returncode}, {gate!r}")
        if not fine:
            log.say(done.stdout + done.stderr)
