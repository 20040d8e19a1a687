"""Build what a stranger installs, install it into empty environments, and use it there.

    python tools/shipping/run.py [ENVIRONMENT...] [--python 3.11 3.12]     (`make release`; default: all)

| environment | what is installed | what runs |
|---|---|---|
| sdist | the core, from the source distribution | the demo |
| core | the core, from the wheel | the README, a command of every verb, small shipped studies, notebooks |
| an extra | the wheel with this extra alone | what it is for (`tried.py`) |
| action | the core, by the scripts of `action.yml` | the GitHub action (`github_action.py`) |
| hooks | the core, by pre-commit | a hook of `.pre-commit-hooks.yaml` (`commit_hooks.py`) |

The tool finds the interpreters of all Python versions in pyproject.toml. It tries the core with each of them,
and all else with the oldest one. Every process works in an empty directory, without this repository on its
path, and what it reads there all the same is a failure. The tool prints each run with its CPU seconds. Two
tables follow: megabytes and import times of each environment, and the size of every dependency of the core.
The status is 1 if anything failed.
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
from dataclasses import dataclass, field
from pathlib import Path

from commit_hooks import HOOKS, try_hooks
from dependencies import dependency_table
from environment import MODEL, ROOT, Environment, Log
from github_action import try_action
from interpreters import find_interpreters, supported_versions
from tried import COMMANDS, EXTRAS, FIGURES, NEEDS, NOTEBOOKS, STATUS

DIST = ROOT / "dist"
TOOLS = ("docs", "test", "bench")  # extras of those who work on attnlaw
LISTED = (
    "from attnlaw.command.commands import OTHER_COMMANDS; from attnlaw.verbs import VERBS; "
    "print(*VERBS, *OTHER_COMMANDS)"
)
CALL = "import sys; sys.argv += '{}'.split(); from attnlaw.command import main; main()"
INTEGRATIONS: dict[str, Callable[[Log, Path, Path, str], None]] = {"action": try_action, "hooks": try_hooks}
MOST_MEGABYTES = 450  # of the core
CHARTS = "pip install 'attnlaw[charts]'"
# Names of files that belong to the tests or to the documentation.
NOT_SHIPPED = re.compile(
    r"(^|/)(tests?|fixtures|screenshots|docs)/|(^|/)(test_\w+|conftest)\.py$|\.(png|jpe?g|gif)$"
)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
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
    strange = sorted(name for name in held if NOT_SHIPPED.search(name))
    log.check(not strange, f"the wheel holds no test, fixture or screenshot {strange[:5] or ''}")
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


def try_readme(environment: Environment, source: Path, python: bool = False) -> None:
    """Run the commands of the README, and its Python code if `python` is true."""
    make_inputs(environment, "readme", ".")
    text = (source / "README.md").read_text(encoding="utf-8")
    lines = "\n".join(CONSOLE.findall(text)).splitlines()
    commands = [
        line.removeprefix("$ attnlaw ").partition(" #")[0] for line in lines if line.startswith("$ attnlaw ")
    ]
    environment.log.check(len(commands) > 2, f"{environment.name}: {len(commands)} commands in the README")
    for command in commands:
        environment.attnlaw(command, next((STATUS[words] for words in STATUS if words in command), 0))
    for code in PYTHON.findall(text) if python else ():
        environment.run(["python", "-I", "-c", code], shown="the Python code of the README")


def make_inputs(environment: Environment, name: str, folder: str) -> None:
    environment.run(["python", "-I", "../inputs.py", name, MODEL, folder], shown="inputs")


def try_core(environment: Environment, source: Path) -> None:
    try_readme(environment, source)
    # Without charts there are rows and a page, and one line says how to get figures.
    environment.attnlaw("audit {model} --out demo", 0, CHARTS)
    for command in FIGURES:
        environment.attnlaw(command, 1, CHARTS)
    verbs = environment.run(["python", "-I", "-c", LISTED], shown="the table of verbs").split()
    for verb in verbs:
        for command in COMMANDS.get(verb, (verb,)):
            refused = f"pip install 'attnlaw[{NEEDS[verb]}]'" if verb in NEEDS else ""
            environment.attnlaw(command, 1 if refused else 0, refused)
    for notebook in NOTEBOOKS:
        environment.run(["python", f"examples/notebooks/{notebook}.py"])
    environment.studies(source)


def try_extra(environment: Environment, source: Path, extra_name: str) -> None:
    extra = EXTRAS[extra_name]
    make_inputs(environment, extra_name, extra_name)
    if extra.readme:
        try_readme(environment, source, python=True)
    for command in (*extra.commands, *(words for verb in extra.verbs for words in COMMANDS[verb])):
        environment.attnlaw(command)
    if extra.python:
        environment.run(["python", "-I", "-c", extra.python.format(model=MODEL)], shown=extra.python)
    for notebook in extra.notebooks:
        environment.run(["python", f"examples/notebooks/{notebook}.py"])
    if extra.studies:
        environment.studies(source, *extra.studies)
    if extra.serves:
        environment.serve(extra.serves)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for name in project["optional-dependencies"] if name not in TOOLS]
    versions = supported_versions(project)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "environments", nargs="*", help="core, sdist, an extra, action or hooks (default: all)"
    )
    parser.add_argument("--python", nargs="+", choices=versions, default=versions, help="versions to try")
    options = parser.parse_args()
    log, interpreters = Log(), find_interpreters(options.python)
    for version in options.python:
        known = "found" if version in interpreters else "not installed, so it is not tried"
        log.say(f"Python {version}: {known}")
    if not interpreters:
        sys.exit("found no interpreter of these versions")
    oldest = next(iter(interpreters))
    names = options.environments or ["core", "sdist", *extras, *INTEGRATIONS]
    log.check(set(extras) == set(EXTRAS), f"each extra of pyproject.toml is tried: {', '.join(extras)}")
    plan = [
        (name, version)
        for name in names
        for version in interpreters
        if version == oldest or name in ("core", "sdist")
    ]
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        wheel, sdist, source = build(log, Path(folder))
        check_metadata(log, wheel, sdist)
        check_contents(log, wheel, source)
        check_version(log, wheel.name.split("-")[1])
        trial = Trial(log, Path(folder), wheel, sdist, source)
        for name, version in plan:
            trial.run(name, version, interpreters[version])
    tables = "\n".join([*trial.table, "", *trial.dependencies])
    log.say(f"\n{tables}")
    (DIST / "release.md").write_text(f"{tables}\n", encoding="utf-8")
    log.say(f"\n{len(log.failures)} failures" if log.failures else "\nAll of it works.")
    for failure in log.failures:
        log.say(f"  {failure}")
    sys.exit(bool(log.failures))


@dataclass
class Trial:
    """The environments that were tried, and the tables about them."""

    log: Log
    folder: Path
    wheel: Path
    sdist: Path
    source: Path
    core_size: float | None = None
    dependencies: list[str] = field(default_factory=list)
    table: list[str] = field(
        default_factory=lambda: [
            "| environment | MB | more than the core | what starts | CPU s |",
            "|---|---|---|---|---|",
        ]
    )

    def run(self, name: str, version: str, python: str) -> None:
        """Install one environment, try it, and remove it."""
        log, label = self.log, f"{name} {version}"
        log.say(f"Installing {label} ...")
        if name in INTEGRATIONS:
            INTEGRATIONS[name](log, self.folder / name, self.source, python)
            return
        environment = Environment(label, self.folder / f"{name}-{version}", log)
        file = {"sdist": str(self.sdist), "core": str(self.wheel)}.get(name, f"{self.wheel}[{name}]")
        megabytes = environment.install(python, file, self.source)
        starts = {"import attnlaw": "import attnlaw"}
        if name == "sdist":
            environment.attnlaw("audit {model} --out demo")
        elif name == "core":
            self.core_size = self.core_size or megabytes
            few = megabytes <= MOST_MEGABYTES
            log.check(few, f"{label}: {megabytes:.0f} MB, expected at most {MOST_MEGABYTES}")
            self.dependencies = self.dependencies or dependency_table(environment, file)
            try_core(environment, self.source)
            starts |= {f"attnlaw {words}": CALL.format(words) for words in STARTS}
        else:
            try_extra(environment, self.source, name)
            starts = {f"import {EXTRAS[name].imports}": f"import {EXTRAS[name].imports}"}
        environment.read_nothing_of_ours()
        more = f"{megabytes - self.core_size:.0f}" if name in EXTRAS and self.core_size else ""
        for number, (shown, code) in enumerate(starts.items()):
            head = "| | |" if number else f"| {label} | {megabytes:.0f} | {more}"
            self.table.append(f"{head} | `{shown}` | {environment.seconds(code):.2f} |")
        shutil.rmtree(environment.folder)


if __name__ == "__main__":
    main()
