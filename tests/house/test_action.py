"""The GitHub action: its scripts run as on a runner, with sound, damaged and unreadable models.

`tools/shipping/github_runner.py` imitates the runner. What cannot run here is replaced: the actions that ours
uses, and the programs `venv` and `pip`. `make release` installs attnlaw for real.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from command.in_process import invoke
from house.actions import Machine
from house.shipping import ROOT, load
from safetensors.numpy import load_file, save_file

github_action, github_runner = load("github_action"), load("github_runner")
pytestmark = pytest.mark.slow

TINY = ROOT / "examples" / "tiny-decoder"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
RULES = """version = 1
[[rule]]
name = "few"
of = "matrices"
column = "stable_rank"
is = "< 1"
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_sound_model_passes(machine: Machine) -> None:
    status, outputs = machine.run(model=machine.sound("models/a sound one"))
    assert status == 0
    assert machine.runner.annotations == []
    assert machine.runner.summary.startswith("### ✅ Gate passed")
    assert set(github_action.REPORT) < machine.artifact()
    assert Path(outputs["report"], "report.html").is_file()
    assert Path(outputs["sarif"]).parent == Path(outputs["report"])
    assert outputs["artifact-url"] == "https://example.com/attnlaw-report"
    assert "Gate passed" in machine.log


def test_a_damaged_model_fails_and_its_report_is_uploaded(machine: Machine) -> None:
    status, outputs = machine.run(model=machine.damaged("models/a damaged one"))
    assert status == 3
    assert [outcome.outcome for outcome in machine.runner.steps] == [
        "success",
        "success",
        "failure",
        "success",
    ]
    ((level, properties, message),) = machine.runner.annotations
    assert level == "error"
    assert properties.startswith("file=models/a damaged one/model.safetensors,title=attnlaw%3A non-finite")
    assert "NaN" in message
    assert machine.runner.summary.startswith("### ❌ Gate failed: 1 error")
    assert set(github_action.REPORT) < machine.artifact()
    assert "NaN" in (machine.kept / "attnlaw-report" / "screen.txt").read_text()
    assert "::error" not in (machine.kept / "attnlaw-report" / "screen.txt").read_text()
    assert '"non-finite"' in Path(outputs["sarif"]).read_text()


def test_a_model_that_cannot_be_read(machine: Machine) -> None:
    status, outputs = machine.run(model="no/such/model")
    assert status == 1
    assert machine.artifact() == {"junit.xml", "results.sarif", "summary.md", "screen.txt"}
    assert [level for level, _, _ in machine.runner.annotations] == ["error"]
    assert "no such file" in machine.runner.annotations[0][2]
    assert machine.runner.summary.startswith("### ❌ Could not be read")
    assert outputs["sarif"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"rules": "nope"}, "nope: no such file"),
        ({"model": ""}, "MODEL is missing"),
        ({"command": "diff", "base": "sound", "rules": "release"}, "--rules"),
        ({"args": "--nonsense"}, "--nonsense"),
    ],
)
def test_a_mistake_in_the_inputs(machine: Machine, inputs: dict[str, str], words: str) -> None:
    status, outputs = machine.run(**{"model": machine.sound("sound"), **inputs})
    assert status == 2
    assert machine.artifact() == {"screen.txt"}
    assert outputs["sarif"] == ""
    command = inputs.get("command", "check")
    message = "attnlaw ended with status 2. The log of this step says why."
    assert machine.runner.annotations == [("error", f"title=attnlaw {command}", message)]
    assert machine.runner.summary.startswith(f"### attnlaw {command} ended with status 2\n\n    attnlaw: ")
    assert words in machine.runner.summary


def test_another_command(machine: Machine) -> None:
    status, outputs = machine.run(model=machine.sound("sound"), command="audit\n$(touch hacked)")
    assert (status, outputs["report"]) == (2, "")
    assert machine.runner.annotations[0][2] == "The input 'command' must be check or diff."
    assert machine.runner.step("Upload the report").outcome == "skipped"
    assert machine.files() == {"sound"}


def test_rules_a_location_and_further_options(machine: Machine) -> None:
    (machine.workspace / "my gate.toml").write_text(RULES)
    status, outputs = machine.run(
        model=machine.sound("sound"), rules="my gate.toml", args="--only\nqk\n--name=a name\n"
    )
    assert status == 3
    assert machine.runner.annotations[0][1] == "file=my gate.toml,title=attnlaw%3A few"
    assert machine.runner.annotations[0][2].startswith("a name: 0 of 16 rows hold")
    assert '"my%20gate.toml"' in Path(outputs["sarif"]).read_text()


def test_known_findings_and_the_lowest_severity(machine: Machine) -> None:
    file = machine.workspace / machine.sound("scaled") / "model.safetensors"
    tensors = load_file(file)
    scaled = "transformer.h.2.mlp.c_fc.weight"
    save_file(tensors | {scaled: 10 * tensors[scaled]}, file)
    invoke("audit", file.parent, "--no-laws", "--out", machine.kept)
    status, _ = machine.run(model="scaled", baseline=str(machine.kept), fail_on="warning")
    assert status == 0
    assert "2 known findings not counted" in machine.runner.summary


def test_several_models_and_no_artifact(machine: Machine) -> None:
    models = [machine.sound("-a sound one"), machine.damaged("b")]
    status, outputs = machine.run(model="\n".join(models) + "\n", artifact="")
    assert status == 3
    assert machine.runner.summary.count("### ") == 2
    assert machine.runner.step("Upload the report").outcome == "skipped"
    assert not machine.kept.exists()
    assert Path(outputs["report"], "report.html").is_file()


def test_diff(machine: Machine) -> None:
    base, model = machine.sound("the base"), machine.damaged("the model")
    status, outputs = machine.run(model=model, base=base, command="diff")
    assert (status, outputs["sarif"]) == (0, "")
    assert {"report.html", "diff_tensors.parquet", "screen.txt"} < machine.artifact()
    assert machine.runner.annotations == []
    assert machine.runner.summary.startswith("### attnlaw diff ended with status 0\n\n    ")
    assert "compared with the base" in machine.runner.summary


def test_diff_with_a_base_that_cannot_be_read(machine: Machine) -> None:
    status, _ = machine.run(model=machine.sound("sound"), base="no base", command="diff")
    assert status == 1
    assert "no base: no such file" in machine.runner.summary
    assert [properties for _, properties, _ in machine.runner.annotations] == ["title=attnlaw diff"]


HOSTILE = """$(touch hacked) `touch hacked` "; touch hacked; " '; touch hacked; ' && touch hacked
${IFS}touch${IFS}hacked
::error::hacked"""
UNREAD = ("model", "base", "baseline", "args")  # attnlaw looks for such files, and finds none


@pytest.mark.parametrize("name", sorted(set(ACTION["inputs"]) - {"python-version", "artifact"}))
def test_no_input_reaches_the_shell(machine: Machine, name: str) -> None:
    """Nothing is executed, and no workflow command is obeyed. No script sees the other two inputs."""
    inputs = {"model": machine.sound("sound"), "args": "--only\nqk", "artifact": "", name: HOSTILE}
    machine.runner.run_action(ROOT, inputs)
    assert machine.runner.status == (1 if name in UNREAD else 0 if name == "extras" else 2)
    assert not [properties for _, properties, _ in machine.runner.annotations if not properties]
    assert machine.files() == {"sound"}


def test_no_script_has_an_expression() -> None:
    """The runner pastes the value of an expression into a script before bash reads it."""
    scripts = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    assert len(scripts) == 2
    assert not [script for script in scripts if "${{" in script]


def test_every_input_is_used_and_described() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "how-to" / "gate-in-ci.md").read_text(encoding="utf-8")
    for name, known in ACTION["inputs"].items():
        assert f"${{{{ inputs.{name} }}}}" in text, name
        assert known["description"].endswith("."), name
        assert re.search(f"`{name}[`:]", page), name
    for name, known in ACTION["outputs"].items():
        (identifier,) = re.findall(r"steps\.(\w+)\.", known["value"])
        assert identifier in {step.get("id") for step in ACTION["runs"]["steps"]}, name


def test_what_attnlaw_shows_is_no_command(machine: Machine) -> None:
    """A name at the beginning of a line looks like a workflow command, and stays text."""
    model, base = machine.damaged("damaged"), machine.sound("sound")
    status, _ = machine.run(model=model, base=base, command="diff", args="--name=::error::hacked")
    assert status == 0
    assert re.search("^::error::hacked", machine.log, re.MULTILINE)
    assert machine.runner.annotations == []


@pytest.mark.parametrize(("extras", "ending"), [("", ""), ("hub,gguf", "[hub,gguf]")])
def test_attnlaw_is_installed_from_the_action_itself(machine: Machine, extras: str, ending: str) -> None:
    machine.run(model=machine.sound("sound"), extras=extras)
    words = machine.words.read_text().splitlines()
    assert words[:3] == ["-m", "pip", "install"]
    assert words[words.index("--constraint") + 1] == str(ROOT / "constraints.txt")
    assert words[-1] == f"{ROOT}{ending}"


def test_a_failed_installation_fails_the_job(machine: Machine) -> None:
    machine.runner.actions = {"actions/setup-python": lambda inputs: {"python-path": "false"}}
    passed, outputs = machine.runner.run_action(ROOT, {"model": machine.sound("sound")})
    assert not passed
    assert outputs["status"] == ""
    outcomes = [step.outcome for step in machine.runner.steps]
    assert outcomes == ["success", "failure", "skipped", "skipped"]


def test_expressions() -> None:
    contexts = {"inputs": {"a": "x", "b": ""}, "steps": {"s": {"outputs": {"status": "3"}}}}
    sound = github_runner.Expression(contexts, failed=False)
    failed = github_runner.Expression(contexts, failed=True)
    for source, value in {
        "inputs.a == 'X' && !inputs.b": True,
        "inputs.b || 'other'": "other",
        "steps.none.outputs.status": "",
        "(inputs.a != 'x') || steps.s.outputs.status": "3",
        "'it''s'": "it's",
    }.items():
        assert sound.value(source) == value, source
    assert [sound.condition(text) for text in ("", "failure()", "inputs.b", "${{ always() }}")] == [
        True,
        False,
        False,
        True,
    ]
    assert [failed.condition(text) for text in ("", "failure()", "inputs.a", "always()")] == [
        False,
        True,
        False,
        True,
    ]
    for source in ("inputs.a ==", "secrets.x", "evil()", "inputs.a inputs.b", "inputs.a # x"):
        with pytest.raises(github_runner.ExpressionError):
            sound.value(source)
