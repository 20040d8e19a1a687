"""Run the steps of a workflow's job and of a composite action on this machine, as GitHub's runner does.

| part of the runner | here |
|---|---|
| `${{ }}` and `if:` | `Expression` evaluates contexts, texts, operators and functions such as `always()` |
| `run:` | bash runs the script with the runner's options, variables and files (`GITHUB_OUTPUT` and so on) |
| `uses:` a composite action | its steps run, with `inputs` and `steps` of its own, and its outputs are set |
| `uses:` another action | a Python function takes its place (`Runner.actions`), because it cannot run here |
| workflow commands (`::error ...`) | annotations are collected; `::stop-commands::` is obeyed |

Like the runner, this one evaluates the expressions of a script before bash reads it, and sets no INPUT_*
variables for the steps of a composite action: an action that wants them must set them with `env`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Action = Callable[[Mapping[str, str]], Mapping[str, str]]  # inputs -> outputs
TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|([A-Za-z_][\w-]*)|(==|!=|&&|\|\||[!().,]))")
IN_TEXT = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
STATUS_FUNCTIONS = ("always", "success", "failure", "cancelled")
BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")  # how the runner calls `shell: bash`
COMMAND = re.compile(r"\s*::([\w-]+)(?: (.*?))?::(.*)")
SECONDS = 600


class ExpressionError(ValueError):
    """The expression has a mistake, or uses what `Expression` does not know."""


class Expression:
    """Evaluate an expression of GitHub Actions.

    >>> contexts = {"inputs": {"name": "it's"}, "steps": {}}
    >>> Expression(contexts, failed=True).value("always() && inputs.name != ''")
    True
    >>> Expression(contexts, failed=True).text("<${{ inputs.name }}> <${{ steps.run.outputs.status }}>")
    "<it's> <>"
    """

    def __init__(self, contexts: Mapping[str, Any], failed: bool, folder: Path = Path()) -> None:
        self.contexts = contexts
        self.functions: dict[str, Callable[..., Any]] = {
            "always": lambda: True,
            "success": lambda: not failed,
            "failure": lambda: failed,
            "cancelled": lambda: False,
            "hashFiles": lambda *patterns: "-".join(
                sorted(str(path) for pattern in patterns for path in folder.glob(pattern))
            ),
        }

    def text(self, template: object) -> str:
        """Return a text with the values of the expressions in it."""
        return IN_TEXT.sub(lambda match: as_text(self.value(match[1])), as_text(template))

    def condition(self, source: object) -> bool:
        """Return whether a step with this `if` runs. Without a status function, it needs success."""
        words = as_text(source).strip()
        words = words[3:-2] if words.startswith("${{") and words.endswith("}}") else words
        if not any(re.search(rf"\b{name}\(", words) for name in STATUS_FUNCTIONS):
            words = f"success() && ({words})" if words.strip() else "success()"
        return bool(self.value(words))

    def value(self, source: str) -> Any:
        self.tokens, position, source = [], 0, source.strip()
        while position < len(source):
            match = TOKEN.match(source, position)
            if match is None:
                raise ExpressionError(f"{source}: cannot be read at {source[position:]!r}")
            self.tokens.append(match[0].strip())
            position = match.end()
        value = self._either()
        if self.tokens:
            raise ExpressionError(f"{source}: {' '.join(self.tokens)} is left over")
        return value

    def _take(self, *expected: str) -> str | None:
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in expected else None

    def _either(self) -> Any:
        value = self._both()
        while self._take("||"):
            other = self._both()
            value = value or other
        return value

    def _both(self) -> Any:
        value = self._equality()
        while self._take("&&"):
            other = self._equality()
            value = other if value else value
        return value

    def _equality(self) -> Any:
        value = self._single()
        while sign := self._take("==", "!="):
            same = as_text(value).lower() == as_text(self._single()).lower()
            value = same == (sign == "==")
        return value

    def _single(self) -> Any:
        if self._take("!"):
            return not self._single()
        if self._take("("):
            value = self._either()
            self._expect(")")
            return value
        if not self.tokens:
            raise ExpressionError("an expression ends too early")
        word = self.tokens.pop(0)
        if word.startswith("'"):
            return word[1:-1].replace("''", "'")
        if self._take("("):
            return self._call(word)
        if word in ("true", "false"):
            return word == "true"
        if word not in self.contexts:
            raise ExpressionError(f"{word}: this context is not known here")
        value = self.contexts[word]
        while self._take("."):
            name = self.tokens.pop(0)
            value = value.get(name, "") if isinstance(value, Mapping) else ""
        return value

    def _call(self, name: str) -> Any:
        if name not in self.functions:
            raise ExpressionError(f"{name}(): this function is not known here")
        arguments = []
        while not self._take(")"):
            arguments.append(self._either())
            self._take(",")
        return self.functions[name](*arguments)

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise ExpressionError(f"{sign} is missing before {' '.join(self.tokens)!r}")


def as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


@dataclass
class Step:
    """A step that ran or was skipped. The status of an action is None."""

    name: str
    outcome: str  # success, failure or skipped
    status: int | None = None
    log: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass
class Runner:
    """The runner, with what the steps left behind.

    Args:
        workspace: the checked-out repository, in which scripts run.
        temp: a directory for temporary files.
        variables: environment variables of the machine, such as PATH.
        actions: what takes the place of actions, by name without the version.
        composite: directories of composite actions, by name without the version.
    """

    workspace: Path
    temp: Path
    variables: Mapping[str, str]
    actions: Mapping[str, Action]
    composite: Mapping[str, Path] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    annotations: list[tuple[str, str, str]] = field(default_factory=list)  # level, properties, message
    summary: str = ""

    def __post_init__(self) -> None:
        self.temp.mkdir(parents=True, exist_ok=True)

    def step(self, name: str) -> Step:
        (step,) = (step for step in self.steps if step.name == name)
        return step

    @property
    def status(self) -> int:
        """The exit status of the script that failed first, or 0."""
        return next((step.status for step in self.steps if step.status), 0)

    def run_job(self, job: Mapping[str, Any]) -> bool:
        """Run the steps of a workflow's job. Return whether it passed."""
        return self._run_steps(job["steps"], {})[0]

    def run_action(self, folder: Path, inputs: Mapping[str, str]) -> tuple[bool, dict[str, str]]:
        """Run a composite action. Return whether it passed, and its outputs."""
        action = yaml.safe_load((folder / "action.yml").read_text(encoding="utf-8"))
        unknown = set(inputs) - set(action["inputs"])
        if action["runs"]["using"] != "composite" or unknown:
            raise ValueError(f"{folder}: not a composite action with the inputs {sorted(unknown)}")
        # The runner does not ask for inputs that are required: a missing one is empty.
        values = {name: as_text(known.get("default")) for name, known in action["inputs"].items()}
        contexts = {"inputs": values | dict(inputs)}
        passed, contexts = self._run_steps(action["runs"]["steps"], contexts, folder)
        expression = Expression(contexts, failed=not passed)
        # The outputs are set after a failure, too.
        return passed, {name: expression.text(known["value"]) for name, known in action["outputs"].items()}

    def _run_steps(
        self, steps: list[dict[str, Any]], contexts: dict[str, Any], action: Path | None = None
    ) -> tuple[bool, dict[str, Any]]:
        """Run steps, and return whether all passed, and the contexts after the last one."""
        system = {"os": "Linux", "temp": str(self.temp)}
        contexts = {"steps": {}, "runner": system, "github": {"workspace": str(self.workspace)}} | contexts
        failed = False
        for declared in steps:
            expression = Expression(contexts, failed, self.workspace)
            name = declared.get("name", declared.get("uses", "").partition("@")[0])
            if not expression.condition(declared.get("if", "")):
                step = Step(name, "skipped")
            elif "run" in declared:
                if action is not None and declared.get("shell") != "bash":
                    raise ValueError(f"{name}: a script of a composite action must name its shell")
                step = self._run_script(name, declared, expression, action)
            else:
                step = self._use(name, declared, expression)
            self.steps.append(step)
            failed = failed or (step.outcome == "failure" and not declared.get("continue-on-error"))
            if "id" in declared:
                contexts["steps"][declared["id"]] = {"outputs": step.outputs, "outcome": step.outcome}
        return not failed, contexts

    def _use(self, name: str, declared: Mapping[str, Any], expression: Expression) -> Step:
        used = declared["uses"].partition("@")[0]
        inputs = {key: expression.text(value) for key, value in declared.get("with", {}).items()}
        if used in self.composite:
            passed, outputs = self.run_action(self.composite[used], inputs)
            return Step(name, "success" if passed else "failure", outputs=outputs)
        return Step(name, "success", outputs=dict(self.actions[used](inputs)))

    def _run_script(
        self, name: str, declared: Mapping[str, Any], expression: Expression, action: Path | None
    ) -> Step:
        number = len(self.steps)
        files = {
            key: self.temp / f"_{key.lower()}_{number}" for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
        }
        for path in files.values():  # another runner may have left its files here
            path.write_text("")
        script = self.temp / f"_script_{number}.sh"
        script.write_text(expression.text(declared["run"]), encoding="utf-8")
        variables = {
            **self.variables,
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(self.temp),
            **({} if action is None else {"GITHUB_ACTION_PATH": str(action)}),
            **{key: str(path) for key, path in files.items()},
            **{key: expression.text(value) for key, value in declared.get("env", {}).items()},
        }
        done = subprocess.run(
            [*BASH, str(script)],
            cwd=self.workspace,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
        log = done.stdout.decode(errors="replace")
        self._read_commands(log)
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
        outputs = read_outputs(files["GITHUB_OUTPUT"].read_text(encoding="utf-8"))
        return Step(name, "failure" if done.returncode else "success", done.returncode, log, outputs)

    def _read_commands(self, log: str) -> None:
        stopped = ""  # the word that ends the part of the log in which there are no commands
        for line in log.splitlines():
            match = COMMAND.match(line)
            if match is None or (stopped and match[1] != stopped):
                continue
            stopped = match[3] if match[1] == "stop-commands" else "" if stopped else stopped
            if match[1] in ("error", "warning", "notice"):
                self.annotations.append((match[1], match[2] or "", match[3]))


def read_outputs(text: str) -> dict[str, str]:
    """Return what a script wrote to GITHUB_OUTPUT, in the form NAME=VALUE.

    >>> read_outputs("status=3\\nreport=/tmp/a=b\\n")
    {'status': '3', 'report': '/tmp/a=b'}
    """
    return {name: value for name, _, value in (line.partition("=") for line in text.splitlines())}


def machine_variables() -> dict[str, str]:
    """Return the variables of a fresh machine, with the settings that pip needs here."""
    pip = {
        name: os.environ[name] for name in os.environ if name.lower().startswith(("pip_", "http", "no_proxy"))
    }
    return pip | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": os.environ.get("HOME", "/"),
        "LC_ALL": "C.UTF-8",
    }
