"""The audit command as a user types it: a process of its own, its output, its exit status."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command.in_process import invoke, terminal
from rich.console import Console
from safetensors.numpy import load_file, save_file

import attnlaw
from attnlaw.analysis.findings.detectors import DETECTORS
from attnlaw.core.answer import AnswerStatus
from attnlaw.render.terminal.console import sparkline
from attnlaw.verbs.audit.terminal import show_summary
from attnlaw.verbs.views import answer_of, show

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"


def audit(*arguments, status=0):
    return invoke("audit", *arguments, status=status)


def test_json_goes_alone_to_standard_output_and_keeps_the_contract():
    done = audit(TINY, "--json")
    summary = json.loads(done.stdout)
    expected = {"family": "gpt2", "layers": 4, "hidden_size": 128, "heads": 4, "matrices": 40}
    assert {key: summary[key] for key in expected} == expected
    assert summary["model"] == str(TINY)
    assert set(summary["proxies"]) >= {"spectrum_adaptive", "edelman", "trauger_tewari", "fixed_p"}
    assert set(summary["proxies"]["fixed_p"]) == {"0", "1", "2"}
    assert len(summary["log10_alpha"]) == 4
    assert summary["log10_alpha"][-1] == 0.0
    assert "pre-norm" in summary["extensions"]


@pytest.mark.slow
def test_table_says_that_proxies_are_not_guarantees():
    done = audit(TINY, "--samples", "100", "--details")
    flat = " ".join(done.stdout.split())
    assert "not guarantees" in flat
    assert "The paper does not cover pre-norm" in flat
    pattern = r"at n = 100: 10\^(\d\.\d{4}) = ([\d.]+)\. A bound above 1 would say nothing"
    log, value = map(float, re.search(pattern, flat).groups())
    assert log == pytest.approx(
        json.loads(audit(TINY, "--json").stdout)["proxies"]["spectrum_adaptive"]["log10"] - 1,
        abs=5.1e-5,
    )
    assert value == pytest.approx(10**log, rel=5.2e-3)  # three digits, and half a unit of the log's last


def test_samples_without_a_proxy_are_told_of():
    result = audit(TINY, "--only", "embedding", "--samples", "100")
    assert f"{TINY}: --samples 100 has no effect, because there are no proxies" in result.stderr
    assert "4 heads · width 128 · 1 matrix" in result.stdout


def test_out_writes_rows_that_agree_with_the_summary(tmp_path):
    out = tmp_path / "rows"
    audit(TINY, "--out", out)
    assert sorted(path.name for path in out.iterdir()) == [
        "atlas.parquet",
        "attnlaw.json",
        "curves.parquet",
        "findings.parquet",
        "fits.parquet",
        "layers.parquet",
        "matrices.parquet",
        "report.html",
        "rows.parquet",
        "spectra.parquet",
        "summary.json",
    ]
    summary = json.loads((out / "summary.json").read_text())
    matrices = pl.read_parquet(out / "matrices.parquet")
    spectra = pl.read_parquet(out / "spectra.parquet")
    assert matrices.height == spectra.height == summary["matrices"]
    # The sum of contributions and sqrt(L) from the rows is the proxy of the summary.
    total = (10 ** matrices["log10_contribution"]).sum() + np.sqrt(summary["layers"])
    assert np.log10(total) == pytest.approx(summary["proxies"]["spectrum_adaptive"]["log10"], abs=1e-12)
    assert matrices["share"].sum() == pytest.approx(1.0, abs=1e-12)
    for values, row in zip(spectra["singular_values"], matrices.iter_rows(named=True), strict=True):
        assert values[0] == row["spectral_norm"]
        assert values.sort(descending=True).to_list() == values.to_list()


def test_layers_and_only_restrict_the_rows_and_leave_out_the_proxies():
    summary = json.loads(audit(TINY, "--json", "--layers", "1:3", "--only", "qk,ffn").stdout)
    assert summary["matrices"] == 2 * (4 + 2)
    assert summary["proxies"] is None
    assert any("need every matrix" in warning for warning in summary["warnings"])


def test_embeddings_are_rows_when_asked_for():
    summary = json.loads(audit(TINY, "--json", "--only", "embedding").stdout)
    assert summary["matrices"] == 1


@pytest.mark.slow
def test_several_models_give_a_list_and_one_bad_one_does_not_lose_the_others(tmp_path):
    some = ("--layers", "0", "--only", "qk")
    done = audit(TINY, tmp_path / "absent", TINY, *some, "--json", "--out", tmp_path / "o", status=1)
    assert [summary["family"] for summary in json.loads(done.stdout)] == ["gpt2", "gpt2"]
    assert (tmp_path / "o" / "matrices.parquet").exists()
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("attnlaw:")]
    assert "absent" in line


BAD = {
    "nan": (lambda folder: (nan_weights(folder), "--heads", "2"), 1),
    "unknown number of heads": (lambda folder: (nan_weights(folder),), 1),
    "text": (lambda folder: (written(folder / "text.safetensors", "not a checkpoint"),), 1),
    "empty directory": (lambda folder: (folder,), 1),
    "layers out of range": (lambda folder: (TINY, "--layers", "9:12"), 2),
    "layers no slice": (lambda folder: (TINY, "--layers", "a:b"), 2),
    "empty selection": (lambda folder: (TINY, "--only", ""), 2),
    "unknown kind": (lambda folder: (TINY, "--only", "qq"), 2),
    "no jobs": (lambda folder: (TINY, "--jobs", "0"), 2),
    "no samples": (lambda folder: (TINY, "--samples", "-1"), 2),
    "out is a file": (lambda folder: (TINY, "--out", written(folder / "file", "")), 1),
}


def nan_weights(folder):
    path = folder / "nan.safetensors"
    save_file({"in_proj_weight": np.full((12, 4), np.nan), "out_proj.weight": np.eye(4)}, path)
    return path


def written(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case, tmp_path):
    arguments, status = BAD[case]
    done = audit(*arguments(tmp_path), "--json", status=status)
    assert len([line for line in done.stderr.splitlines() if line.strip()]) == 1
    assert done.stderr.startswith("attnlaw: ")
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["audit", "fit"])
def test_written_files_are_named_and_nothing_in_their_path_is_obeyed(verb, tmp_path):
    out = tmp_path / "a\x1b[31m\nb"
    done = invoke(verb, TINY, "--layers", "0", "--only", "qk", "--out", out, "--figures", "svg")
    (line,) = done.stderr.splitlines()
    shown = f"{tmp_path}/a\\x1b[31m\\nb"
    assert line == f"wrote {shown}/report.html and its tables, and {shown}/figures"


@pytest.mark.parametrize("kept", [False, True])
def test_an_interrupted_audit_leaves_no_empty_directory_that_it_made(kept, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        assert (tmp_path / "some" / "out").is_dir()  # it can be written: found before the work
        raise KeyboardInterrupt

    monkeypatch.setattr("attnlaw.analysis.audit.audit.audit", interrupt)
    if kept:
        (tmp_path / "some" / "out").mkdir(parents=True)
    audit(TINY, "--out", tmp_path / "some" / "out", status=130)
    left = sorted(path.name for path in tmp_path.rglob("*"))
    assert left == (["out", "some"] if kept else [])


def test_a_name_without_a_slash_is_told_how_ids_are_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = audit("gpt2", status=1)
    assert "gpt2: no such file or directory" in done.stderr
    assert "write its id with the owner, such as openai-community/gpt2" in done.stderr
    assert "openai-community" not in audit(tmp_path / "gpt2", status=1).stderr


def test_figures_without_a_directory_say_what_they_need(tmp_path):
    assert audit(TINY, "--figures", "png", status=2).stderr == "attnlaw: --figures needs --out\n"
    refused = audit(TINY, "--figures", "jpg", "--out", tmp_path / "o", status=2).stderr
    assert refused == "attnlaw: --figures jpg: expected one of pdf, svg, png\n"


def test_several_named_models_give_a_list_even_when_one_is_left():
    done = audit(TINY, TINY / "absent", "--json", status=1)
    assert len(json.loads(done.stdout)) == 1


def test_names_from_files_are_shown_and_never_obeyed(tmp_path):
    rng = np.random.default_rng(0)
    block = {"in_proj_weight": rng.standard_normal((12, 4)), "out_proj.weight": rng.standard_normal((4, 4))}
    weights = {f"{prefix}.{name}": value for prefix in ("[/x]", "[red]b") for name, value in block.items()}
    path = tmp_path / "[bold]a\x1b[31m.safetensors"
    save_file(weights, path)
    done = audit(path, "--heads", "2")
    assert "\x1b" not in done.stdout
    assert "[/x]" in done.stdout
    assert "[bold]a\\x1b[31m.safetensors" in done.stdout


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_question_marks():
    command = [sys.executable, "-c", "from attnlaw.command import main; main()", "audit", str(TINY)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    subprocess.run(command, capture_output=True, env=environment, check=True)


def test_bad_usage_is_status_2():
    assert "MODEL is missing; try: attnlaw audit examples/tiny-decoder" in audit(status=2).stderr
    assert "--nonsense is not an option" in audit(TINY, "--nonsense", status=2).stderr


def test_approximate_numbers_are_shown_with_their_errors(monkeypatch):
    """With errors in units of the last digit, as JSON has them; exact numbers without."""
    monkeypatch.setattr("attnlaw.spectra.measure.LARGE", 160)
    rng = np.random.default_rng(0)
    names = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    state = {f"encoder.layer.0.{name}.weight": 0.1 * rng.standard_normal((160, 160)) for name in names}
    for name, gain, shape in (("intermediate", 0.1, (320, 160)), ("output", 0.2, (160, 320))):
        decaying = rng.standard_normal(shape) / np.sqrt(np.arange(1, shape[1] + 1))
        state[f"encoder.layer.0.{name}.dense.weight"] = gain * decaying
    shown = {}
    for approximate in (False, True):
        audit_result = attnlaw.audit(state, heads=8, approximate=approximate, samples=100)
        shown[approximate] = drawn(audit_result, 100, details=True), audit_result.summary
    assert "(" not in re.search(r"p = 1 .*", shown[False][0])[0]
    text, summary = shown[True]
    for name, line in (("1", r"p = 1 +(\S+)"), ("0", r"p = 0 +(\S+)")):
        entry, number = summary["proxies"]["fixed_p"][name], re.search(line, text)[1]
        value, _, digit = number.rstrip(")").partition("(")
        unit = 10.0 ** -len(value.partition(".")[2])
        assert float(value) == pytest.approx(entry["log10"], abs=0.51 * unit)
        assert float(digit or 0) * unit == pytest.approx(entry["error"], abs=0.51 * unit)
    assert re.search(r"10\^\(\d\.\d{4} ± \d", text)


def drawn(audit_result, width, details=False):
    screen = io.StringIO()
    show(audit_result, terminal(width, file=screen), details)
    return screen.getvalue()


@pytest.mark.parametrize(("width", "bars", "title"), [(60, 4, "norm per 2 heads"), (120, 8, "norm per head")])
def test_heads_that_share_a_bar_are_told_of(width, bars, title):
    """Eight heads of norms 1 to 8: a bar each, or one for the larger of two."""
    scale = np.repeat(np.arange(1.0, 9.0), 2)[:, None]
    block = {"in_proj_weight": np.vstack([scale * np.eye(16), np.eye(16), np.eye(16)])}
    text = drawn(attnlaw.audit(block | {"out_proj.weight": np.eye(16)}, heads=8), width)
    assert text.count(title) == 2
    norms = np.arange(1, 9).reshape(bars, -1).max(axis=1)
    assert f"{sparkline(norms.tolist(), top=8)}  max 8.00" in text


@pytest.mark.parametrize("width", [52, 60, 80, 120])
def test_a_narrow_screen_shows_fewer_columns_and_whole_numbers(width):
    audit_result = attnlaw.audit(TINY)
    text = drawn(audit_result, width, details=True)
    assert "…" not in text
    rows = [line for line in text.splitlines() if re.match(r"[0-3] ", line)]
    largest = (
        audit_result.matrices.filter(kind="vo")
        .group_by("layer", maintain_order=True)
        .agg(pl.col("spectral_norm_applied").max())
    )
    for line, (layer, norm) in zip(rows, largest.iter_rows(), strict=True):
        digits = 2 if norm >= 1 else 3  # three digits, zeros too
        assert f" {norm:.{digits}f} " in line, layer
    has_hint = "A wider screen also shows: log10 α with gains" in " ".join(text.split())
    assert has_hint == (width < 120)


@pytest.mark.slow
def test_several_models_stand_below_each_other_and_notes_stand_once():
    done = audit(TINY, TINY, "--samples", "100", "--details")
    flat = " ".join(done.stdout.split())
    for note in ("Proxies are leading", "only counts ranks", "this is a proxy", "The paper does not cover"):
        assert flat.count(note) == 1
    assert "same exponent for all" not in flat
    audit_result = attnlaw.audit(TINY)
    rank = audit_result.matrices.filter(kind="qk")["effective_rank"].median()
    alpha = audit_result.layers["log10_alpha_applied"][0]
    rows = re.findall(
        r"^tiny-decoder +0 +0 +0 +100.0% +(\S+) +(\S+) +4 of 10 +(\S+)", done.stdout, re.MULTILINE
    )
    assert rows == [(f"{audit_result.matrices['outliers'].median():.3g}", f"{rank:.1f}", f"{alpha:.2f}")] * 2


def test_the_first_screen_answers_before_it_lists_numbers():
    sound = drawn(attnlaw.audit(TINY), 80)
    places = [
        sound.index(words)
        for words in (
            f"OK       No problems found ({len(DETECTORS)} checks).",
            "OK       Trained: 40 of 40 weight matrices differ from random ones",
            "UNUSUAL  4 of 10 numbers are outside the range of 8 trained models",
            "Unusual does not mean wrong; ranks depend on the head size (32 here).",
            "norm per head",
            "stable rank: directions that carry a head",
            f"Next   attnlaw audit {TINY} --out results",
        )
    ]
    assert places == sorted(places)
    # Everything else waits for --details.
    whole = drawn(attnlaw.audit(TINY), 80, details=True)
    for words in ("log10 α per layer", "spectrum-adaptive", "overflow", "The paper does not cover"):
        assert words not in sound
        assert words in whole


def test_the_first_screen_fits_eighty_columns_and_one_screen():
    lines = invoke("audit", "examples/tiny-decoder", columns=80).stdout.strip().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 28


def test_a_problem_has_its_place_its_size_and_what_to_do():
    state = {name: np.array(tensor) for name, tensor in load_file(TINY / "model.safetensors").items()}
    name = next(name for name in state if re.search(r"h\.2\.mlp\.c_fc\.weight", name))
    state[name] = 10 * state[name]
    text = " ".join(drawn(attnlaw.audit(state, heads=4), 100).split())
    assert re.search(r"ERROR [^.]*layer 2", text)
    assert "Fix: look for a scale that was applied twice" in text
    assert "No problems found" not in text


def test_deep_models_share_lines_on_the_first_screen_only():
    rng = np.random.default_rng(0)
    names = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    names += ("intermediate.dense", "output.dense")
    state = {
        f"encoder.layer.{layer}.{name}.weight": rng.standard_normal((8, 8))
        for layer in range(20)
        for name in names
    }
    result = attnlaw.audit(state, heads=2, jobs=1)
    first, whole = drawn(result, 100), drawn(result, 100, details=True)
    assert "18-19" in first
    assert len(re.findall(r"^\d+-\d+ ", first, re.MULTILINE)) == 10
    assert len(re.findall(r"^\d+ ", whole, re.MULTILINE)) == 20
    largest = result.matrices.filter(pl.col("layer").is_in([18, 19]), kind="qk")["spectral_norm"].max()
    line = next(line for line in first.splitlines() if line.startswith("18-19"))
    assert f"max {largest:.1f} " in line


def test_an_untrained_model_is_called_untrained():
    rng = np.random.default_rng(0)
    block = {
        "in_proj_weight": rng.standard_normal((192, 64)),
        "out_proj.weight": rng.standard_normal((64, 64)),
    }
    answer = answer_of(attnlaw.audit(block, heads=2))
    line = next(line for line in answer.lines if "untrained" in line.text and line.text.startswith("Looks"))
    assert line.status == AnswerStatus.WARNING
    assert "0 of 4 weight matrices differ from random ones" in line.text
    # A Python object has no command: Python calls come next.
    assert list(answer.next_commands) == ['result.save("results")', "result.show(details=True)"]


def test_several_models_have_one_table_and_their_problems():
    good = attnlaw.audit(TINY, name="good")
    bad = attnlaw.audit({"in_proj_weight": np.eye(48, 16), "out_proj.weight": np.zeros((16, 16))}, heads=2)
    both = good + bad
    text = drawn(both, 100)
    assert text.count("unlike") == text.count("unlike random") + 1  # one heading of a table, in two lines
    lines = answer_of(both).lines
    assert any(line.status == AnswerStatus.ERROR and "out_proj.weight" in line.text for line in lines)
    assert any(line.text.startswith("No problems found in good") for line in lines)
    assert attnlaw.audit(TINY, name="good").rows["name"][0] == "good"
    assert next(iter(typed for typed in answer_of(good).next_commands)) == "attnlaw audit MODEL --out results"


def test_a_next_command_has_every_option():
    done = audit("examples/tiny-decoder", "--layers", "1:3", "--only", "qk,vo")
    assert "attnlaw audit examples/tiny-decoder --layers 1:3 --only qk,vo --details" in done.stdout


def test_an_audit_names_each_broken_tensor():
    block = {"in_proj_weight": np.eye(48, 16), "out_proj.weight": np.zeros((16, 16))}
    text = " ".join(drawn(attnlaw.audit(block, heads=2), 100).split())
    assert (
        "ERROR out_proj.weight: Every entry of the tensor is 0: it was never written, or it was erased."
        in text
    )
    assert "Fix: " in text
    assert text.index("ERROR ") < text.index("WARNING ")


def test_notes_of_one_model_among_several_name_it():
    first, other = (
        attnlaw.audit(TINY, name=name, **more) for name, more in (("a", {"samples": 100}), ("b", {}))
    )
    screen = io.StringIO()
    show_summary(first + other, Console(width=300, file=screen), details=True)
    lines = [line.strip() for line in screen.getvalue().splitlines()]
    assert [line[:30] for line in lines if "sqrt(n) at n" in line] == ["a: Spectrum-adaptive proxy / s"]
    assert any(line.startswith("Proxies are leading") for line in lines)
