"""`attnlaw learn` as a user runs it: JSON contract, tables, figures, one-line errors."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from command.in_process import Ended, invoke

from attnlaw.core.estimate import Estimate
from attnlaw.theory.learn.outputs import STATIC_OUTPUTS
from attnlaw.theory.learn.students import STUDENTS

ATTNLAW = [sys.executable, "-c", "from attnlaw.command import main; main()"]
WITH_HARDMAX = " or ".join(name for name, student in STUDENTS.items() if "hardmax" in student.theories)


def learn(*arguments: object, **options: Any) -> Ended:
    return invoke("learn", *arguments, **options)


def objects(*arguments: object) -> list[dict[str, Any]]:
    cases = json.loads(learn(*arguments, "--json").stdout)
    return cases if isinstance(cases, list) else [cases]


def test_json_contract() -> None:
    (case,) = objects("--alpha", 0.3, "--noise", 0.5, "--weight-decay", 0.6)
    assert {"verb", "settings", "quantities", "status", "remark", "version"} <= set(case)
    quantities = case["quantities"]
    assert quantities["estimation_error"] == {"value": pytest.approx(0.553147, abs=1e-6), "error": None}
    assert quantities["edges"] == [0.0, pytest.approx(3.498, abs=5e-4)]
    assert (case["verb"], case["status"], case["remark"]) == ("learn", "done", None)
    assert case["settings"]["target_rank"] == 0.5
    assert case["settings"]["beta"] is None


def test_several_values_are_several_cases() -> None:
    cases = objects("--alpha", "0.05:1:5", "--student", "direct", "--noise", 0.2)
    assert [case["settings"]["alpha"] for case in cases] == pytest.approx([0.05, 0.2875, 0.525, 0.7625, 1.0])
    errors = [case["quantities"]["estimation_error"]["value"] for case in cases]
    assert errors == sorted(errors, reverse=True)
    assert cases[0]["quantities"]["threshold"] is None


def test_simulation_stands_beside_the_theory() -> None:
    arguments = ("--alpha", 0.4, "--noise", 0.5, "--weight-decay", 0.6, "--simulate", 24, "--seeds", 3)
    theory, trained = objects(*arguments, "--seed", 5)
    assert objects(*arguments, "--seed", 5) == [theory, trained]
    assert (theory["verb"], trained["verb"]) == ("learn", "learn.simulate")
    measured = trained["quantities"]["estimation_error"]
    # d = 24 with tokens: the theory is off by order 1/d; a quarter is far beyond it.
    assert measured["value"] == pytest.approx(theory["quantities"]["estimation_error"]["value"], rel=0.25)
    assert measured["error"] > 0
    assert str(Estimate(**measured)) in learn(*arguments, "--seed", 5).stdout


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_rounded_sample_count_is_said(form: tuple[str, ...]) -> None:
    few = learn("--alpha", 0.01, "--simulate", 12, "--seeds", 2, *form)
    assert "n = 1 gives alpha 0.00694 instead of 0.01" in " ".join(few.stdout.split())
    assert "instead" not in learn("--alpha", 0.25, "--simulate", 12, "--seeds", 2, *form).stdout


def test_softmax_shows_the_error_of_its_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlaw.theory.learn.softmax.default_draws", lambda problem: 9)
    arguments = ("--output", "softmax", "--tokens", 2, "--weight-decay", 0.02)
    (case,) = objects(*arguments)
    error = case["quantities"]["estimation_error"]
    assert error["error"] > 0
    assert str(Estimate(**error)) in learn(*arguments).stdout


def test_thresholds() -> None:
    (case,) = objects("--thresholds", "--tokens", 2, "--noise", 0.5)
    assert case["quantities"]["threshold_recovery"] == pytest.approx(0.422175 / 3, abs=1e-6)
    assert case["quantities"]["threshold_interpolation"] == pytest.approx(0.30696 / 3, abs=1e-5)
    assert "\ninterpolation " in learn("--thresholds", "--noise", 0.5).stdout


@pytest.mark.slow
def test_interpolation_is_that_of_the_student(tmp_path: Path) -> None:
    options = ("--noise", 0.5, "--thresholds")
    shown = learn("--student", "direct", *options).stdout
    assert re.search(r"^interpolation +0\.5$", shown, re.MULTILINE)
    assert "interpolation" not in learn("--student", "bayes", *options).stdout
    curve = (*options, "--alpha", "0.2:0.6:3", "--figure")
    direct, bayes = tmp_path / "direct.svg", tmp_path / "bayes.svg"
    learn("--student", "direct", *curve, direct)
    assert "interpolation" in direct.read_text()
    learn("--student", "bayes", *curve, bayes)
    assert "interpolation" not in bayes.read_text()


def test_hardmax_has_no_thresholds() -> None:
    options = ("--output", "hardmax", "--tokens", 2, "--student", "bayes", "--alpha", 0.1)
    able = " or ".join(name for name, output in STATIC_OUTPUTS.items() if output.identifies_target)
    assert f"--thresholds needs --output {able}" in learn(*options, "--thresholds", status=2).stderr
    learn(*options)


def test_bayes_has_no_weight_decay() -> None:
    bayes = ("--student", "bayes", "--output", "softmax", "--tokens", 2, "--alpha", 0.1)
    refused = learn(*bayes, "--weight-decay", 0.1, status=2)
    penalised = " or ".join(name for name, student in STUDENTS.items() if student.penalised)
    assert refused.stderr == f"attnlaw: --weight-decay needs --student {penalised}\n"
    (case,) = objects(*bayes)
    assert case["quantities"]["estimation_error"]["value"] == pytest.approx(0.392196, abs=1e-6)
    assert case["quantities"]["training_loss"] is None
    assert case["settings"]["weight_decay"] is None


def test_table_names_every_quantity() -> None:
    shown = learn("--alpha", 0.3, "--noise", 0.5, "--details").stdout
    for words in ("estimation error", "training loss", "rank fraction", "noise level", "threshold"):
        assert words in shown


def test_how_it_ended_is_said_in_the_answer() -> None:
    shown = learn("--alpha", 0.49, "--student", "bayes").stdout
    assert "OK       With 0.49 d² samples the student recovers the target." in shown
    assert "Recovered: the error is too small to compute" in " ".join(shown.split())


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_figures(tmp_path: Path, ending: str) -> None:
    curve, spectrum, bayes = (tmp_path / f"{name}.{ending}" for name in ("curve", "spectrum", "bayes"))
    simulate = ("--simulate", 12, "--seeds", 2, "--noise", 0.5)
    learn("--alpha", "0.2:0.6:3", *simulate, "--thresholds", "--figure", curve)
    learn("--alpha", 0.4, *simulate, "--figure", spectrum)
    learn("--student", "bayes", "--noise", 0.5, "--figure", bayes)
    assert all(path.stat().st_size > 2000 for path in (curve, spectrum, bayes))


@pytest.mark.parametrize("simulate", [(), ("--simulate", 20, "--seeds", 2)])
def test_figure_of_a_student_that_learned_nothing(tmp_path: Path, simulate: tuple[object, ...]) -> None:
    path = tmp_path / "cut.svg"
    learn("--alpha", 0.2, "--noise", 0.5, "--weight-decay", 10, *simulate, "--figure", path)
    assert "predicted 1.000" in path.read_text()


@pytest.mark.parametrize("student", ["factorized", "direct", "bayes"])
def test_outliers_have_a_row_where_there_are_any(student: str) -> None:
    arguments = ("--alpha", 0.3, "--noise", 0.5, "--student", student)
    (case,) = objects(*arguments, "--target-spike", 8)
    (place,) = case["quantities"]["outlier_locations"]
    assert f"{place:.6g}" in learn(*arguments, "--target-spike", 8, "--details").stdout
    assert "outlier locations" not in learn(*arguments, "--details").stdout


def test_a_long_list_is_counted() -> None:
    arguments = ("--target-exponent", 1, "--student", "direct", "--noise", 0.5)
    (case,) = objects(*arguments)
    edges = case["quantities"]["edges"]
    assert len(edges) > 24
    assert f"and {len(edges) - 6} more" in " ".join(learn(*arguments, "--details").stdout.split())


@pytest.mark.parametrize("columns", [60, 30])
def test_a_narrow_screen_cuts_no_number(columns: int) -> None:
    trained = ("--noise", 0.5, "--simulate", 12, "--seeds", 2)
    cases = objects(*trained)
    point = learn(*trained, columns=columns).stdout
    assert "…" not in point
    theory, students = (case["quantities"] for case in cases)
    for name in ("estimation_error", "training_loss", "prediction_error"):
        value = f"{theory[name]['value']:.4g}"
        assert re.search(rf" {re.escape(value)} +{re.escape(str(Estimate(**students[name])))}\n", point)
    curve = learn("--alpha", "0.1:0.5:3", columns=columns).stdout
    assert "…" not in curve
    for case in objects("--alpha", "0.1:0.5:3"):
        assert f" {100 * case['quantities']['relative_error']['value']:.3g}%" in curve
    assert ("A wider screen also shows: " in curve) == (columns == 30)


def test_one_student_has_no_error() -> None:
    words = "so there is no standard error."
    assert words in " ".join(learn("--simulate", 12, "--seeds", 1).stdout.split())
    assert words not in " ".join(learn("--simulate", 12, "--seeds", 2).stdout.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--alpha 0", "--alpha 0: expected a number above 0"),
        ("--alpha -1", "--alpha -1: expected a number above 0"),
        ("--alpha 1:0.5:3", "--alpha 1:0.5:3: FROM must be smaller than TO"),
        ("--alpha 0:0.5:3", "--alpha 0: expected a number above 0"),
        ("--target-rank -0.5", "--target-rank -0.5: expected a number of at least 1e-09"),
        ("--noise -1", "--noise -1: expected a number of at least 0"),
        ("--tokens 0", "--tokens 0: expected a whole number of at least 1"),
        ("--output tanh", f"--output tanh: expected one of {', '.join(STATIC_OUTPUTS)}"),
        ("--weight-decay 0", "many students fit the data equally well; set"),
        ("--target-exponent 1 --target-dimension 1000000000000", "of at most 10000000"),
        ("--figure curve.txt", "--figure curve.txt: expected a name that ends in .pdf"),
        ("--simulate 20 --figure x.jpg", "--figure x.jpg: expected a name that ends in .pdf"),
        ("--simulate 8 --seed -1", "--seed -1: expected a whole number of at least 0"),
        ("--target-rank 0.5 --target-exponent 1", "--target-rank cannot be combined with --target-exponent"),
        ("--target-dimension 1000000", "--target-dimension needs --target-exponent"),
        ("--beta 1", "--beta needs --output softmax"),
        ("--beta 1 --output hardmax --student bayes --tokens 2", "--beta needs --output softmax"),
        ("--alpha 0.1:1", "--alpha 0.1:1: expected FROM:TO:COUNT such as 0.05:1:40"),
        ("--alpha 0.3 0.4", "attnlaw: 0.4 is not an option. To give several values, join them"),
        ("--thresholds yes", "attnlaw: yes is not an option. To"),
        (
            "--simulate 100000",
            "--simulate 100000: this needs a dense 2000000000 x 100000 matrix, more than 2 GiB; choose a "
            "smaller "
            "--simulate or --alpha",
        ),
        ("--simulate 10000000", "--simulate 10000000: expected a whole number"),
        ("--seeds 8", "--seeds needs --simulate"),
        ("--seed 0", "--seed needs --simulate"),
        (
            "--output hardmax --tokens 2",
            f"--student factorized: expected {WITH_HARDMAX} with --output hardmax",
        ),
    ],
)
def test_a_bad_setting_is_one_line_and_status_2(arguments: str, words: str) -> None:
    result = learn(*arguments.split(), status=2)
    assert words in result.stderr
    assert result.stderr.startswith("attnlaw: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        ("--simulate 25 --target-rank 0.5", "25 times target rank 0.5 is 12.5", 1),
        ("--student bayes --simulate 20", "this student is computed and cannot be trained", 2),
        ("--output softmax --tokens 40", "choose at most 14 tokens, or use the linear output", 1),
    ],
)
def test_what_cannot_work_is_told_before_anything_runs(arguments: str, words: str, status: int) -> None:
    ended = learn(*arguments.split(), status=status)
    assert words in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_one_mistake_of_several_cases_is_told_once() -> None:
    ended = learn("--target-eigenvalues", "nofile", "--alpha", "0.1:1:4", "--simulate", 8, status=1)
    assert ended.stderr.startswith("attnlaw: nofile: no such file")
    assert ended.stderr.count("\n") == 1


def test_defaults_are_those_of_the_declaration() -> None:
    assert objects() == objects("--alpha", 0.2, "--target-rank", 0.5)
    assert objects()[0]["settings"]["alpha"] == 0.2
    (case,) = objects("--target-exponent", 1, "--student", "direct")
    assert case["settings"]["target_dimension"] == 1_000_000
    assert case["settings"]["target_rank"] is None


@pytest.mark.slow
def test_ctrl_c_ends_the_students_in_training() -> None:
    """Hundreds of gradients of a fifth of a second each are left to every student when Ctrl-C comes."""
    command = [*ATTNLAW, "learn", "--simulate", "200", "--seeds", "20"]
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
        while not re.search(rb"simulate.*\b0/20", said) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(1)
        start = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        took = time.monotonic() - start
    finally:
        process.kill()
    reader.join(timeout=10)
    os.close(screen)
    assert re.search(rb"simulate.*\b0/20", said)
    assert process.returncode == 130
    assert took < 20
    assert output == b""
    assert b"Traceback" not in said
    assert said.replace(b"\r", b"").endswith(b"attnlaw: stopped\n")


def test_a_recovered_target_has_no_causes_of_an_error() -> None:
    shown = " ".join(learn("--alpha", 100).stdout.split())
    assert "With 100 d² samples the student recovers the target." in shown
    assert "of this error" not in shown


def test_recovered_cases_are_one_sentence_and_bounds() -> None:
    shown = " ".join(learn("--student", "bayes", "--alpha", "0.5,0.7,0.9").stdout.split())
    assert (
        "The student recovers the target at 0.5, 0.7 and 0.9 d² samples: the error is below what can be "
        "computed (rounding)." in shown
    )
    assert "and 2 more" not in shown
    errors = json.loads(learn("--student", "bayes", "--alpha", "0.5,0.7,0.9", "--json").stdout)
    cells = re.findall(r"< (\de-\d\d)", shown)
    values = [case["quantities"]["estimation_error"] for case in errors]
    numbers = [value["value"] if isinstance(value, dict) else value for value in values]
    assert [0 <= float(cell) - value < value for cell, value in zip(cells, numbers, strict=True)] == [
        True
    ] * 3
    both = " ".join(learn("--student", "bayes,direct", "--alpha", "0.7,0.9").stdout.split())
    assert "Bayes-optimal recovers the target at 0.7 and 0.9 d² samples" in both


def test_an_error_of_exactly_zero_is_shown_as_zero() -> None:
    done = learn("--alpha", 0.6, "--weight-decay", 0)
    assert done.status == 0
    assert re.search(r"^E +0$", done.stdout, re.MULTILINE)
