"""`attnlaw learn` as a user runs it: JSON contract, tables, figures, one-line errors."""

from __future__ import annotations

import inspect
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from attnlaw.base.errors import InputError
from attnlaw.command.app import app
from attnlaw.command.uncertain import with_error
from attnlaw.study import learn_verbs

PREDICTION = {
    "estimation_error",
    "prediction_error",
    "training_loss",
    "overlap",
    "norm",
    "rank_fraction",
    "trace",
    "noise_level",
    "threshold",
    "spectrum",
    "error",
    "status",
    "residual",
}


def learn(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["learn", *arguments])


def test_json_contract() -> None:
    result = learn("--alpha", "0.3", "--noise", "0.5", "--weight-decay", "0.6", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert set(found) == {"problem", "prediction", "simulation"}
    assert set(found["prediction"]) == PREDICTION
    assert set(found["prediction"]["spectrum"]) == {"atom_at_zero", "edges", "outliers"}
    assert found["prediction"]["estimation_error"] == pytest.approx(0.553147, abs=1e-6)
    assert found["prediction"]["spectrum"]["edges"] == [[0.0, pytest.approx(3.498, abs=5e-4)]]
    assert found["prediction"]["error"] is None
    assert found["simulation"] is None
    assert found["problem"]["target"]["rank_ratio"] == 0.5


def test_curve_is_a_list() -> None:
    found = json.loads(
        learn("--curve", "alpha=0.05:1:5", "--student", "direct", "--noise", "0.2", "--json").stdout
    )
    assert [entry["problem"]["alpha"] for entry in found] == pytest.approx([0.05, 0.2875, 0.525, 0.7625, 1.0])
    errors = [entry["prediction"]["estimation_error"] for entry in found]
    assert errors == sorted(errors, reverse=True)
    assert found[0]["prediction"]["threshold"] is None


def test_simulation_stands_beside_the_theory() -> None:
    arguments = (
        "--alpha",
        "0.4",
        "--noise",
        "0.5",
        "--weight-decay",
        "0.6",
        "--simulate",
        "24",
        "--seeds",
        "3",
    )
    found = json.loads(learn(*arguments, "--seed", "5", "--json").stdout)
    again = json.loads(learn(*arguments, "--seed", "5", "--json").stdout)
    assert found == again
    measured = found["simulation"]["estimation_error"]
    # d = 24 with tokens: the theory is off by order 1/d; a quarter is far beyond it.
    assert measured["mean"] == pytest.approx(found["prediction"]["estimation_error"], rel=0.25)
    assert measured["standard_error"] > 0
    table = learn(*arguments)
    assert "trained, d = 24" in table.stdout


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_rounded_sample_count_is_said(form: tuple[str, ...]) -> None:
    few = learn("--alpha", "0.01", "--simulate", "12", "--seeds", "2", *form)
    assert "n = 1, alpha = 0.00694 instead of 0.01" in few.stderr
    assert "instead" not in learn("--alpha", "0.25", "--simulate", "12", "--seeds", "2", *form).stderr


def test_softmax_shows_the_error_of_its_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.learning.softmax.default_draws", lambda problem: 9)
    arguments = ("--output", "softmax", "--tokens", "2", "--weight-decay", "0.02")
    prediction = json.loads(learn(*arguments, "--json").stdout)["prediction"]
    error = prediction["error"]["estimation_error"]
    assert error > 0
    shown = with_error(prediction["estimation_error"], error)
    assert shown in learn(*arguments).stdout


def test_thresholds() -> None:
    found = json.loads(learn("--thresholds", "--tokens", "2", "--noise", "0.5", "--json").stdout)
    assert found["thresholds"]["recovery"] == pytest.approx(0.422175 / 3, abs=1e-6)
    assert found["thresholds"]["interpolation"] == pytest.approx(0.30696 / 3, abs=1e-5)
    assert "factorized interpolation" in learn("--thresholds", "--noise", "0.5").stdout


def test_interpolation_is_that_of_the_student(tmp_path: Path) -> None:
    options = ("--noise", "0.5", "--thresholds", "--curve", "alpha=0.2:0.6:3")
    direct, bayes = tmp_path / "direct.svg", tmp_path / "bayes.svg"
    shown = learn("--student", "direct", *options, "--figure", str(direct)).stdout
    assert re.search(r"direct interpolation +0\.5\n", shown)
    assert "peak error" not in shown
    assert "interpolation" in direct.read_text()
    shown = learn("--student", "bayes", *options, "--figure", str(bayes))
    assert shown.exit_code == 0, shown.exception
    assert "interpolation" not in shown.stdout + bayes.read_text()
    assert "recovery" not in bayes.read_text()


def test_hardmax_has_no_thresholds() -> None:
    options = ("--output", "hardmax", "--tokens", "2", "--student", "bayes", "--alpha", "0.1")
    refused = learn(*options, "--thresholds")
    assert refused.exit_code == 2
    assert "never reveal" in " ".join(refused.stderr.replace("│", " ").split())
    assert learn(*options).exit_code == 0


def test_bayes_ignores_weight_decay() -> None:
    arguments = ("--student", "bayes", "--output", "softmax", "--tokens", "2", "--alpha", "0.1", "--json")
    found = json.loads(learn(*arguments, "--weight-decay", "0").stdout)
    assert found["prediction"]["estimation_error"] == pytest.approx(0.392196, abs=1e-6)
    assert found["prediction"]["training_loss"] is None
    assert found["problem"]["weight_decay"] is None


def test_table_names_every_quantity() -> None:
    result = learn("--alpha", "0.3", "--noise", "0.5")
    for words in ("estimation error", "training loss", "rank fraction", "noise level", "threshold"):
        assert words in result.stdout


def test_unconverged_is_said_on_standard_error() -> None:
    result = learn("--alpha", "0.49", "--student", "bayes")
    assert "recovered" in result.stderr
    assert "recovered" not in result.stdout


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_figures(tmp_path: Path, ending: str) -> None:
    curve, spectrum = tmp_path / f"curve.{ending}", tmp_path / f"spectrum.{ending}"
    simulate = ("--simulate", "20", "--seeds", "2", "--noise", "0.5")
    assert (
        learn("--curve", "alpha=0.2:0.6:3", *simulate, "--thresholds", "--figure", str(curve)).exit_code == 0
    )
    assert learn("--alpha", "0.4", *simulate, "--figure", str(spectrum)).exit_code == 0
    assert (
        learn("--student", "bayes", "--noise", "0.5", "--figure", str(tmp_path / f"bayes.{ending}")).exit_code
        == 0
    )
    assert curve.stat().st_size > 2000
    assert spectrum.stat().st_size > 2000


@pytest.mark.parametrize("simulate", [(), ("--simulate", "20", "--seeds", "2")])
def test_figure_of_a_student_that_learned_nothing(tmp_path: Path, simulate: tuple[str, ...]) -> None:
    path = tmp_path / "cut.svg"
    result = learn(
        "--alpha", "0.2", "--noise", "0.5", "--weight-decay", "10", *simulate, "--figure", str(path)
    )
    assert result.exit_code == 0, result.exception
    assert "predicted 1.000" in path.read_text()


@pytest.mark.parametrize("student", ["factorized", "direct", "bayes"])
def test_outliers_have_a_row_where_there_are_any(student: str) -> None:
    arguments = ("--alpha", "0.3", "--noise", "0.5", "--student", student)
    spiked = learn(*arguments, "--target-spike", "8")
    row = next(line for line in spiked.stdout.splitlines() if line.startswith("outliers"))
    found = json.loads(learn(*arguments, "--target-spike", "8", "--json").stdout)
    (outlier,) = found["prediction"]["spectrum"]["outliers"]
    assert (
        row.removeprefix("outliers").strip()
        == f"{outlier['location']:.4g} (overlap {outlier['overlap']:.3g})"
    )
    assert "outliers" not in learn(*arguments).stdout


def test_many_outliers_are_counted() -> None:
    arguments = ("--target-exponent", "1", "--alpha", "1e-4", "--noise", "0.5", "--weight-decay", "0.005")
    listed = json.loads(learn(*arguments, "--json").stdout)["prediction"]["spectrum"]["outliers"]
    shown = learn(*arguments).stdout
    assert shown.count("(overlap") == 6
    assert f"and {len(listed) - 6} more" in shown


def test_many_intervals_are_counted() -> None:
    arguments = ("--target-exponent", "1", "--student", "direct", "--noise", "0.5")
    edges = json.loads(learn(*arguments, "--json").stdout)["prediction"]["spectrum"]["edges"]
    assert len(edges) > 12
    shown = learn(*arguments).stdout
    spectrum = shown[shown.index("spectrum") :].partition("outliers")[0]
    assert spectrum.count("[") == 6
    assert " ".join(spectrum.split()).endswith(f"and {len(edges) - 6} more")


@pytest.mark.parametrize("columns", [60, 30])
def test_a_narrow_screen_cuts_no_number(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr("attnlaw.command.console.output._width", columns)
    trained = ("--noise", "0.5", "--simulate", "12", "--seeds", "2")
    found = json.loads(learn(*trained, "--json").stdout)
    point = learn(*trained).stdout
    assert "…" not in point
    for name in ("estimation_error", "training_loss", "trace"):
        assert f" {found['prediction'][name]:.6g} " in point
        measured = found["simulation"][name]
        assert f" {with_error(measured['mean'], measured['standard_error'])} " in point
    curve = learn("--curve", "alpha=0.1:0.5:3").stdout
    assert "…" not in curve
    for entry in json.loads(learn("--curve", "alpha=0.1:0.5:3", "--json").stdout):
        assert f" {entry['prediction']['estimation_error']:.6g} " in curve
    assert "A wider screen also shows: Tr" in curve


def test_one_student_has_no_error() -> None:
    words = "one trained student has no standard error"
    assert words in learn("--simulate", "12", "--seeds", "1").stderr
    assert words not in learn("--simulate", "12", "--seeds", "2").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--alpha", "0"), "alpha: found 0, expected a number above 0"),
        (("--target-rank", "-0.5"), "target rank: found -0.5"),
        (("--noise", "-1"), "noise: found -1, expected a variance of at least 0"),
        (("--tokens", "0"), "tokens: found 0"),
        (("--weight-decay", "0"), "set a small weight decay"),
        (("--simulate", "25", "--target-rank", "0.5"), "size 25 times target rank 0.5 is 12.5"),
        (("--output", "tanh"), "output: found 'tanh'"),
        (("--student", "bayes", "--simulate", "20"), "computed and not trained"),
        (("--curve", "beta=1:2:3"), "expected alpha=FROM:TO:COUNT"),
        (("--curve", "alpha=1:0.5:3"), "curve: alpha: found '1:0.5:3'"),
        (("--curve", "alpha=0.1:0.5"), "curve: alpha: found '0.1:0.5', expected FROM:TO:COUNT"),
        (("--curve", "alpha=0:0.5:3"), "alpha: found 0, expected a number above 0"),
        (("--output", "softmax", "--tokens", "40"), "choose at most 14 tokens, the linear output"),
        (("--simulate", "3000", "--seeds", "1"), "more than 2 GiB; choose a smaller size or alpha"),
        (("--target-exponent", "1", "--target-dimension", "1000000000000"), "expected 1 to 10000000"),
        (("--figure", "curve.txt"), "a figure ends in one of"),
        (("--simulate", "20", "--seeds", "1", "--figure", "x.jpg"), "x.jpg: a figure ends in one of"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = learn(*arguments)
    assert isinstance(result.exception, InputError)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--alpha", "0.2", "--curve", "alpha=0.1:0.5:3"), "--alpha and --curve alpha=...: choose one"),
        (
            ("--target-rank", "0.5", "--target-exponent", "1"),
            "--target-rank and --target-exponent: choose one",
        ),
        (("--target-dimension", "1000000"), "--target-dimension needs --target-exponent"),
        (("--beta", "1"), "--beta needs --output softmax"),
        (("--beta", "1", "--output", "hardmax", "--student", "bayes"), "--beta needs --output softmax"),
        (("--seeds", "8"), "--seeds needs --simulate D"),
        (("--seed", "0"), "--seed needs --simulate D"),
    ],
)
def test_options_that_nothing_would_read_are_a_wrong_use(arguments: tuple[str, ...], words: str) -> None:
    result = learn(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_defaults_are_those_of_a_study() -> None:
    asked = ("--alpha", "0.2", "--target-rank", "0.5")
    assert learn("--json").stdout == learn(*asked, "--json").stdout
    assert json.loads(learn("--json").stdout)["problem"]["alpha"] == 0.2
    found = json.loads(learn("--target-exponent", "1", "--student", "direct", "--json").stdout)
    assert found["problem"]["target"]["dimension"] == 1_000_000


def test_a_negative_seed_is_a_wrong_use() -> None:
    result = learn("--simulate", "8", "--seed", "-1")
    assert result.exit_code == 2
    assert "--seed" in result.stderr


def test_a_study_refuses_by_size_before_it_starts() -> None:
    def defaults(verb: Callable[..., object]) -> dict[str, object]:
        return {name: option.default for name, option in inspect.signature(verb).parameters.items()}

    with pytest.raises(InputError, match="choose at most 14 tokens"):
        learn_verbs.check_learn(**{**defaults(learn_verbs.learn), "output": "softmax", "tokens": 40})
    asked = {**defaults(learn_verbs.simulate), "simulate": 3000}
    del asked["seed"]
    with pytest.raises(InputError, match="choose a smaller size or alpha"):
        learn_verbs.check_simulate(**asked)


def test_exit_status_and_no_traceback() -> None:
    command = [sys.executable, "-c", "from attnlaw.command import main; main()", "learn", "--alpha", "-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("attnlaw: alpha: found -1")
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c_ends_the_students_in_training() -> None:
    """Hundreds of gradients of a fifth of a second each are left to every student when Ctrl-C comes."""
    code = "from attnlaw.command import main; main()"
    command = [sys.executable, "-c", code, "learn", "--simulate", "200", "--seeds", "20"]
    screen, terminal = pty.openpty()
    said = bytearray()

    def read() -> None:
        while True:
            try:
                said.extend(os.read(screen, 4096))
            except OSError:  # nobody writes any more
                return

    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=environment,
        # Tests that run in the background ignore the signal, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        os.close(terminal)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        end = time.monotonic() + 60
        while not re.search(rb"training.*\b0/20", said) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(2)
        start = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        told, _ = process.communicate(timeout=60)
        took = time.monotonic() - start
    finally:
        process.kill()
    reader.join(timeout=10)
    os.close(screen)
    assert re.search(rb"training.*\b0/20", said)
    assert process.returncode == 130
    assert took < 20
    assert told == b""
    assert b"Traceback" not in said
    assert said.replace(b"\r", b"").endswith(b"attnlaw: stopped\n")
