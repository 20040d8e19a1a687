"""Build what a stranger installs, install it into empty environments, and use it there.

    python tools/shipping/run.py [ENVIRONMENT...] [--python PYTHON]     (`make release`; default: all of them)

| environment | what is installed | what runs |
|---|---|---|
| sdist | the core, from the source distribution | the demo |
| core | the core, from the wheel | the demo, a command of every verb, shipped studies made small, notebooks |
| an extra | the wheel with this extra alone | what it is for (`tried.py`) |
| action | the core, by the scripts of `action.yml` | the GitHub action (`github_action.py`) |
| hooks | the core, by pre-commit | a hook of `.pre-commit-hooks.yaml` (`commit_hooks.py`) |

Every process works in an empty directory, without this repository on its path, and what it reads there all
the same is a failure. Prints each run with its CPU seconds, then a table: megabytes and import times. Ends
with status 1 where anything failed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

from commit_hooks import HOOKS, try_hooks
from environment import MODEL, ROOT, Environment, Log
from github_action import try_action
from tried import COMMANDS, EXTRAS, NEEDS, NOTEBOOKS

DIST = ROOT / "dist"
TOOLS = ("docs", "test", "bench")  # extras of those who work on attnlaw
LISTED = (
    "from attnlaw.command.commands import OTHER_COMMANDS; from attnlaw.verbs import VERBS; "
    "print(*VERBS, *OTHER_COMMANDS)"
)
CALL = "import sys; sys.argv += '{}'.split(); from attnlaw.command import main; main()"
INTEGRATIONS: dict[str, Callable[[Log, Path, Path, str], None]] = {"action": try_action, "hooks": try_hooks}
STARTS = ("--version", "--help", "learn --alpha 0.2")


def build(log: Log, folder: Path) -> tuple[Path, Path, Path]:
    """Wheel and source distribution, the wheel made from the latter; and the unpacked source."""
    log.say("Building ...")
    shutil.rmtree(DIST, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    log.say(f"       wheel {wheel.stat().st_size / 1e6:.2f} MB, source {sdist.stat().st_size / 1e6:.2f} MB")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.glob("attnlaw-*")
    return wheel, sdist, source


def check_metadata(log: Log, *files: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    log.check(done.returncode == 0, f"twine check --strict of {' and '.join(file.name for file in files)}")
    if done.returncode:
        log.say(done.stdout + done.stderr)


def check_contents(log: Log, wheel: Path, source: Path) -> None:
    """The wheel holds every file of the package that git knows, and nothing else."""
    command = ["git", "ls-files", "src/attnlaw"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    ours = {name.removeprefix("src/") for name in listed.splitlines()}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    other = sorted(held ^ ours)
    log.check(not other, f"the wheel holds the {len(ours)} files of the package {other[:5] or ''}")
    needed = ("LICENSE", "tests", "examples", "docs", "Makefile", "constraints.txt", "action.yml", HOOKS)
    lost = [name for name in needed if not (source / name).exists()]
    log.check(not lost, f"the source has tests, examples, docs, the action and the hooks {lost or ''}")


def check_version(log: Log, version: str) -> None:
    """CITATION.cff and the head of CHANGELOG.md speak of the version, once it is a release."""
    if ".dev" in version:
        log.say(f"       {version} is no release: CITATION.cff and CHANGELOG.md are not held against it")
        return
    for name, pattern in (("CITATION.cff", r"^version: (\S+)"), ("CHANGELOG.md", r"^## (\S+)")):
        versions = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        log.check(versions[:1] == [version], f"{name} speaks of {version}")


def try_core(environment: Environment, source: Path) -> None:
    environment.attnlaw("audit {model} --out demo")
    verbs = environment.run(["python", "-I", "-c", LISTED], shown="the table of verbs").split()
    for verb in verbs:
        for command in COMMANDS.get(verb, (verb,)):
            refused = f"pip install 'attnlaw[{NEEDS[verb]}]'" if verb in NEEDS else ""
            environment.attnlaw(command, 1 if refused else 0, refused)
    for notebook in NOTEBOOKS:
        environment.run(["python", f"examples/notebooks/{notebook}.py"])
    environment.studies(source)


def try_extra(environment: Environment, source: Path) -> None:
    extra = EXTRAS[environment.name]
    environment.run(
        ["python", "-I", "../inputs.py", environment.name, MODEL, environment.name], shown="inputs"
    )
    for command in (*extra.commands, *(words for verb in extra.verbs for words in COMMANDS[verb])):
        environment.attnlaw(command)
    if extra.python:
        environment.run(["python", "-I", "-c", extra.python.format(model=MODEL)], shown=extra.python)
    if extra.studies:
        environment.studies(source, *extra.studies)
    if extra.serves:
        environment.serve(extra.serves)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for name in project["optional-dependencies"] if name not in TOOLS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("environments", nargs="*", default=["sdist", "core", *extras, *INTEGRATIONS])
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    asked = parser.parse_args()
    log, sizes = Log(), {}
    table = ["| environment | MB | more than the core | what starts | CPU s |", "|---|---|---|---|---|"]
    log.check(set(extras) == set(EXTRAS), f"each extra of pyproject.toml is tried: {', '.join(extras)}")
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        wheel, sdist, source = build(log, Path(folder))
        check_metadata(log, wheel, sdist)
        check_contents(log, wheel, source)
        check_version(log, wheel.name.split("-")[1])
        for name in asked.environments:
            log.say(f"Installing {name} ...")
            if name in INTEGRATIONS:
                INTEGRATIONS[name](log, Path(folder) / name, source, asked.python)
                continue
            environment = Environment(name, Path(folder) / name, log)
            file = {"sdist": str(sdist), "core": str(wheel)}.get(name, f"{wheel}[{name}]")
            sizes[name] = environment.install(asked.python, file, source)
            starts = {"import attnlaw": "import attnlaw"}
            if name == "sdist":
                environment.attnlaw("audit {model} --out demo")
            elif name == "core":
                try_core(environment, source)
                starts |= {f"attnlaw {words}": CALL.format(words) for words in STARTS}
            else:
                try_extra(environment, source)
                starts = {f"import {EXTRAS[name].imports}": f"import {EXTRAS[name].imports}"}
            environment.read_nothing_of_ours()
            more = f"{sizes[name] - sizes['core']:.0f}" if name in EXTRAS and "core" in sizes else ""
            for number, (shown, code) in enumerate(starts.items()):
                head = "| | |" if number else f"| {name} | {sizes[name]:.0f} | {more}"
                table.append(f"{head} | `{shown}` | {environment.seconds(code):.2f} |")
            shutil.rmtree(environment.folder)
    log.say("\n" + "\n".join(table))
    (DIST / "release.md").write_text("\n".join(table) + "\n", encoding="utf-8")
    log.say(f"\n{len(log.failures)} failures" if log.failures else "\nAll of it works.")
    sys.exit(bool(log.failures))


if __name__ == "__main__":
    main()
