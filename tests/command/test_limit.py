"""`attnlaw limit`: the JSON contract, the three kinds of tokens, and clear refusals."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from command.in_process import runner
from safetensors.numpy import load_file, save_file

from attnlaw.base.errors import InputError
from attnlaw.command import limit
from attnlaw.command.uncertain import with_error
from attnlaw.limits import AttentionLayer, Depth, GivenInputs, RandomInputs, compare_widths
from attnlaw.models import open_model

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-decoder"
QUANTITIES = {"score_variance", "output_variance", "kurtosis", "kl_to_limit", "w1_to_limit", "ks_to_limit"}
run = runner(limit.command)


def test_json_is_the_library_call():
    found = json.loads(run("--json", "--width", "16,inf", "--draws", "2000", "--seed", "3").stdout)
    assert {key: found[key] for key in ("tokens", "heads", "activation")} == {
        "tokens": 4,
        "heads": 2,
        "activation": "identity",
    }
    rows = compare_widths(Depth(AttentionLayer(RandomInputs(4), heads=2)), (16, math.inf), 2000, 3)
    assert [row["width"] for row in found["rows"]] == [16, "inf"]
    for row, expected in zip(found["rows"], rows, strict=True):
        assert set(row) == QUANTITIES | {"width", "residual_of_distances"}
        assert row["residual_of_distances"] == expected.residual
        for name in QUANTITIES:
            estimate = getattr(expected, name)
            assert row[name] == (
                None if estimate is None else {"value": estimate.value, "error": estimate.error}
            )
    assert found["rows"][0]["kl_to_limit"]["value"] > 0
    assert found["rows"][1]["kl_to_limit"] is None
    assert found["rows"][1]["score_variance"] == {"value": 1.0, "error": 0.0}


def test_json_tells_what_repeats_it():
    settings = {"draws": 400, "seed": 7, "mask": "band:1", "depth": 2, "token": 3}
    options = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    found = json.loads(run("--json", "--residual", "--normalise", "--width", "8", *options).stdout)
    settings |= {"residual": True, "normalise": True, "tokens": 4, "heads": 2, "activation": "identity"}
    assert {name: found[name] for name in settings} == settings
    plain = json.loads(run("--json", "--width", "inf", "--draws", "100").stdout)
    assert [plain[name] for name in ("residual", "normalise", "mask", "token")] == [False, False, "none", 1]


def test_several_head_counts_give_a_list():
    found = json.loads(run("--json", "--heads", "1,4", "--width", "inf", "--draws", "400").stdout)
    assert [one["heads"] for one in found] == [1, 4]


def test_terminal_table_and_figure(tmp_path):
    result = run(
        "--heads", "1,2", "--width", "8,inf", "--draws", "400", "--figure", tmp_path / "densities.svg"
    )
    assert "4 tokens, 1 head, identity activation" in result.stdout
    assert "kurtosis" in result.stdout
    assert (tmp_path / "densities.svg").read_text().startswith("<svg")


def test_depth_adds_the_path_of_the_tokens():
    arguments = (
        "--width",
        "8,inf",
        "--draws",
        "400",
        "--depth",
        "3",
        "--residual",
        "--mask",
        "causal",
        "--token",
        "4",
    )
    found = json.loads(run("--json", *arguments).stdout)
    assert [point["depth"] for point in found["rows"][0]["path"]] == [0, 1, 2, 3]
    shown = run(*arguments).stdout.splitlines()
    start = next(i for i, line in enumerate(shown) if "mean cosine between tokens" in line)
    assert shown[start + 1].split() == ["depth", "8", "inf"]
    for depth, line in enumerate(shown[start + 2 :]):
        cosines = [row["path"][depth]["cosine"] for row in found["rows"]]
        assert line.split() == [str(depth), *(with_error(one["value"], one["error"]) for one in cosines)]


@pytest.mark.parametrize("columns", [60, 30])
def test_a_narrow_screen_cuts_no_number(monkeypatch, columns):
    monkeypatch.setattr("attnlaw.command.console.output._width", columns)
    settings = ("--embeddings", EXAMPLE, "--ids", "84,104,32", "--draws", "200")
    found = json.loads(run("--json", *settings).stdout)
    shown = run(*settings).stdout
    assert "…" not in shown
    lines = shown.splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith("width"))
    titles = {"Var p": "score_variance", "Var y": "output_variance", "kurtosis": "kurtosis"}
    titles |= {"KL": "kl_to_limit", "W1": "w1_to_limit", "KS": "ks_to_limit"}
    there = [name for title, name in titles.items() if title in lines[start]]
    assert there
    for row, line in zip(found["rows"], lines[start + 1 :], strict=False):
        cells = ["-" if row[name] is None else with_error(*row[name].values()) for name in there]
        assert line.split() == [str(row["width"]), *cells]
    _, _, left_out = " ".join(lines).partition("A wider screen also shows: ")
    assert set(left_out.rstrip(".").split(", ")) == {title for title in titles if title not in lines[start]}


def test_a_narrow_screen_keeps_the_limit_of_the_path(monkeypatch):
    monkeypatch.setattr("attnlaw.command.console.output._width", 30)
    shown = run("--depth", "2", "--draws", "200", "--width", "8,16,32,inf").stdout
    assert "…" not in shown
    path = shown.partition("mean cosine")[2].split()
    assert path[path.index("depth") + 1 :][:3] == ["depth", "32", "inf"]
    assert " ".join(path).endswith("A wider screen also shows: 8, 16.")


def test_the_title_tells_what_differs_from_one_plain_layer():
    plain = ("--width", "8", "--draws", "100")
    assert run(*plain).stdout.startswith("4 tokens, 2 heads, identity activation; KL")
    asked = ("--mask", "causal", "--depth", "2", "--residual", "--normalise", "--token", "2")
    shown = " ".join(run(*plain, *asked).stdout.split())
    assert "identity activation, causal mask, depth 2, residual, RMSNorm, token 2; KL" in shown


def test_one_token_has_no_cosines():
    shown = run("--tokens", "1", "--residual", "--width", "8,inf", "--draws", "400").stdout
    assert shown.startswith("1 token, 2 heads, identity activation")
    assert "cosine" not in shown


def test_help_speaks_of_the_token_that_is_read():
    shown = " ".join(run("--help").stdout.split())
    assert "y_1" not in shown
    assert "p_11" not in shown


@pytest.mark.parametrize("ending", ["npy", "csv", "txt"])
def test_gram_matrix_from_a_file(tmp_path, ending):
    gram = np.array([[2.0, 0.5], [0.5, 1.0]])
    path = tmp_path / f"gram.{ending}"
    if ending == "npy":
        np.save(path, gram)
    else:
        np.savetxt(path, gram, delimiter="," if ending == "csv" else " ")
    found = json.loads(
        run("--json", "--gram", path, "--heads", "1", "--width", "inf", "--draws", "400").stdout
    )
    assert (found["tokens"], found["activation"]) == (2, None)
    assert found["rows"][0]["score_variance"]["value"] == pytest.approx(4.0, rel=1e-12)


def test_embeddings_of_a_checkpoint():
    found = json.loads(
        run(
            "--json",
            "--embeddings",
            EXAMPLE,
            "--ids",
            "97,98,99",
            "--width",
            "64,inf",
            "--draws",
            "400",
            "--normalise",
        ).stdout
    )
    embedding = open_model(EXAMPLE).embedding()[[97, 98, 99]]
    stack = Depth(AttentionLayer(GivenInputs.from_tokens(embedding), heads=2), normalise=True)
    rows = compare_widths(stack, (64, math.inf), 400, 0)
    assert found["tokens"] == 3
    assert found["rows"][0]["kurtosis"]["value"] == rows[0].kurtosis.value
    assert found["rows"][1]["score_variance"]["value"] == pytest.approx(1.0, rel=1e-12)


def test_nan_embeddings_are_named(tmp_path):
    folder = shutil.copytree(EXAMPLE, tmp_path / "model")
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    name = next(key for key, value in tensors.items() if value.shape == open_model(EXAMPLE).embedding().shape)
    tensors[name] = tensors[name].copy()
    tensors[name][98, 3] = math.nan
    save_file(tensors, file)
    result = run("--embeddings", folder, "--ids", "97,98", "--draws", "100", status=1)
    assert isinstance(result.exception, InputError)
    assert "NaN" in str(result.exception)
    assert name in str(result.exception)
    assert str(folder) in str(result.exception)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--width", "0"], "width is 0; expected an integer of at least 1"),
        (["--heads", "0"], "heads is 0"),
        (["--tokens", "0"], "tokens is 0"),
        (
            ["--tokens", "20000", "--width", "inf"],
            "tokens is 20000; their Gram matrix and its root take more",
        ),
        (["--tokens", "6000", "--heads", "1", "--depth", "2"], "more than 4: choose fewer tokens"),
        (["--mask", "diagonal"], "mask 'diagonal' is unknown"),
        (["--activation", "swish"], "activation 'swish' is unknown"),
        (["--depth", "0"], "depth is 0"),
        (["--token", "5"], "token 5 does not exist; choose one from 1 to 4"),
        (["--token", "0"], "token 0 does not exist"),
        (["--draws", "3"], "at least 40"),
        (["--figure", "densities.gif"], "a figure ends in one of"),
        (["--gram", "missing.npy"], "cannot be read"),
        (["--embeddings", EXAMPLE, "--ids", "1,999999"], "token id 999999 is outside the vocabulary"),
        (["--embeddings", EXAMPLE, "--ids", "-1"], "token id -1 is outside the vocabulary"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, message):
    result = run("--draws", "100", *arguments, status=1)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n2 1", "not positive semi-definite"),
        ("1 0.5\n0.4 1", "not symmetric"),
        ("1 2\n3", "not a matrix of numbers"),
        ("1 x\nx 1", "not a matrix of numbers"),
        ("1 nan\nnan 1", "NaN"),
        ("1 0 0\n0 1 0\n0 0 1", "rank 3, and tokens of width 2"),
    ],
)
def test_bad_gram_files(tmp_path, text, message):
    path = write(tmp_path / "gram.txt", text)
    result = run("--draws", "100", "--gram", path, "--width", "2", status=1)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--width", "wide"],
        ["--width", ","],
        ["--heads", "two"],
        ["--ids", "1"],
        ["--embeddings", "somewhere"],
        ["--gram", "a.npy", "--tokens", "3"],
        ["--gram", "a.npy", "--embeddings", "somewhere", "--ids", "1"],
        ["--seed", "-1"],
    ],
)
def test_bad_usage_exits_with_two(arguments):
    run(*arguments, status=2)
