"""`attnlaw limit`: the JSON contract, the three kinds of tokens, and clear refusals."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command.in_process import Ended, invoke
from safetensors.numpy import load_file, save_file

from attnlaw.checkpoints.open import open_model
from attnlaw.core.estimate import Estimate, format_column, format_percent
from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.inputs import GivenInputs, RandomInputs
from attnlaw.theory.limit.kernels import ACTIVATIONS
from attnlaw.theory.limit.layer import MASKS, AttentionLayer
from attnlaw.theory.limit.limit import compare_widths

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny-decoder"
TITLES = {
    "difference": "ks_to_limit",
    "kurtosis": "kurtosis",
    "variance": "output_variance",
    "KL": "kl_to_limit",
}


def run(*arguments: object, **options: Any) -> Ended:
    return invoke("limit", *arguments, **options)


def objects(*arguments: object) -> list[dict[str, Any]]:
    cases = json.loads(run(*arguments, "--json").stdout)
    return cases if isinstance(cases, list) else [cases]


def test_json_is_the_library_call() -> None:
    cases = objects("--width", "16,inf", "--draws", 2000, "--seed", 3)
    rows = compare_widths(Depth(AttentionLayer(RandomInputs(4), heads=2)), (16, math.inf), 2000, 3)
    assert [case["settings"]["width"] for case in cases] == [16, "inf"]
    for case, expected in zip(cases, rows, strict=True):
        settings = {"tokens": 4, "heads": 2, "activation": "identity", "draws": 2000, "seed": 3}
        assert settings.items() <= case["settings"].items()
        assert case["quantities"]["residual_of_distances"] == expected.residual_of_distances
        for name in (*TITLES.values(), "score_variance", "w1_to_limit"):
            estimate = getattr(expected, name)
            assert case["quantities"][name] == (
                None if estimate is None else {"value": estimate.value, "error": estimate.error}
            )
    assert cases[0]["quantities"]["kl_to_limit"]["value"] > 0
    assert cases[1]["quantities"]["kl_to_limit"] is None
    assert cases[1]["quantities"]["score_variance"] == {"value": 1.0, "error": 0.0}


def test_json_tells_what_repeats_it() -> None:
    settings = {"draws": 400, "seed": 7, "mask": "band:1", "depth": 2, "token": 3}
    options = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    (case,) = objects("--residual", "--normalise", "--width", 8, *options)
    settings |= {"residual": True, "normalise": True, "tokens": 4, "heads": 2, "activation": "identity"}
    assert settings.items() <= case["settings"].items()


def test_heads_and_widths_are_crossed() -> None:
    cases = objects("--heads", "1,4", "--width", "8,inf", "--draws", 400)
    assert [(case["settings"]["heads"], case["settings"]["width"]) for case in cases] == [
        (1, 8),
        (1, "inf"),
        (4, 8),
        (4, "inf"),
    ]


def test_terminal_table_and_figure(tmp_path: Path) -> None:
    figure = tmp_path / "densities.svg"
    shown = run("--heads", "1,2", "--width", "8,inf", "--draws", 400, "--figure", figure).stdout
    assert "tokens" in shown
    assert "kurtosis" in shown
    assert figure.read_text().startswith("<svg")


def test_depth_adds_the_path_of_the_tokens() -> None:
    stack = ("--depth", 3, "--residual", "--mask", "causal", "--token", 4)
    arguments = ("--width", "8,inf", "--draws", 400, *stack)
    paths = [case["quantities"]["path_cosine"]["value"] for case in objects(*arguments)]
    assert [len(path) for path in paths] == [4, 4]
    shown = run(*arguments).stdout.splitlines()
    start = next(i for i, line in enumerate(shown) if line.startswith("Mean cosine"))
    assert shown[start + 1].split() == ["layer", "width", "8", "width", "inf"]
    for depth, line in enumerate(shown[start + 2 : start + 6]):
        values = [float(cell.partition("(")[0]) for cell in line.split()]
        assert values[0] == depth
        assert values[1:] == pytest.approx([path[depth] for path in paths], abs=2e-2)


@pytest.mark.parametrize("columns", [60, 30])
def test_a_narrow_screen_cuts_no_number(columns: int) -> None:
    settings = ("--embeddings", EXAMPLE, "--ids", "84,104,32", "--draws", 200, "--width", "16,64,inf")
    cases = objects(*settings)
    shown = run(*settings, columns=columns).stdout
    assert "…" not in shown
    lines = shown.splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith("width  "))
    there = [name for title, name in TITLES.items() if title in lines[start]]
    assert there
    columns = []
    for name in there:
        known = [case["quantities"][name] or {"value": None, "error": None} for case in cases]
        texts = format_column([each["value"] for each in known], [each["error"] for each in known])
        if name == "ks_to_limit":
            texts = ["" if each["value"] is None else format_percent(Estimate(**each)) for each in known]
        columns.append(texts)
    for number, (case, line) in enumerate(zip(cases, lines[start + 1 :], strict=False)):
        cells = [column[number] for column in columns if column[number]]
        width = case["settings"]["width"]
        assert line.split() == [width if width == "inf" else str(int(width)), *cells]
    _, _, left_out = " ".join(lines).partition("A wider screen also shows: ")
    missing = {title for title in TITLES if title not in lines[start]}
    assert set(left_out.partition(".")[0].split(", ")) - {""} == missing


def test_the_title_names_what_all_rows_share() -> None:
    plain = ("--width", "8,16", "--draws", 100)
    asked = ("--mask", "causal", "--depth", 2, "--residual", "--normalise", "--token", 2)
    shown = " ".join(run(*plain, *asked).stdout.split())
    for words in ("4 random tokens", "2 heads", "mask causal", "depth 2", "residual", "normalise", "token 2"):
        assert words in shown


def test_one_token_has_no_cosines() -> None:
    shown = run("--tokens", 1, "--residual", "--width", "8,inf", "--draws", 400).stdout
    assert "cosine" not in shown


@pytest.mark.parametrize("ending", ["npy", "csv", "txt"])
def test_gram_matrix_from_a_file(tmp_path: Path, ending: str) -> None:
    gram = np.array([[2.0, 0.5], [0.5, 1.0]])
    path = tmp_path / f"gram.{ending}"
    if ending == "npy":
        np.save(path, gram)
    else:
        np.savetxt(path, gram, delimiter="," if ending == "csv" else " ")
    (case,) = objects("--gram", path, "--heads", 1, "--width", "inf", "--draws", 400)
    assert (case["settings"]["tokens"], case["settings"]["activation"]) == (None, None)
    assert case["quantities"]["score_variance"]["value"] == pytest.approx(4.0, rel=1e-12)


def test_embeddings_of_a_checkpoint() -> None:
    options = ("--width", "64,inf", "--draws", 400, "--normalise")
    cases = objects("--embeddings", EXAMPLE, "--ids", "97,98,99", *options)
    embedding = open_model(EXAMPLE).embedding()[[97, 98, 99]]
    stack = Depth(AttentionLayer(GivenInputs.from_tokens(embedding), heads=2), normalise=True)
    rows = compare_widths(stack, (64, math.inf), 400, 0)
    assert cases[0]["settings"]["ids"] == [97, 98, 99]
    assert cases[0]["quantities"]["kurtosis"]["value"] == rows[0].kurtosis.value
    assert cases[1]["quantities"]["score_variance"]["value"] == pytest.approx(1.0, rel=1e-12)


def test_nan_embeddings_are_named(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "model")
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    name = next(key for key, value in tensors.items() if value.shape == open_model(EXAMPLE).embedding().shape)
    tensors[name] = tensors[name].copy()
    tensors[name][98, 3] = math.nan
    save_file(tensors, file)
    line = run("--embeddings", folder, "--ids", "97,98", "--draws", 100, "--width", "8", status=1).stderr
    assert "NaN" in line
    assert name in line
    assert str(folder) in line


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        ("--width 0", "--width 0: expected", 2),
        ("--width wide", "--width wide: expected", 2),
        ("--width ,", "--width ,: expected", 2),
        ("--heads 0", "--heads 0: expected a whole number of at least 1", 2),
        ("--heads two", "--heads two: expected a whole number", 2),
        ("--tokens 0", "--tokens 0: expected a whole number of at least 1", 2),
        ("--mask diagonal", f"--mask diagonal: expected one of {', '.join(MASKS)}", 2),
        ("--activation swish", f"--activation swish: expected one of {', '.join(ACTIVATIONS)}", 2),
        ("--depth 0", "--depth 0: expected a whole number of at least 1", 2),
        ("--token 5", "--token 5: expected", 2),
        ("--token 0", "--token 0: expected a whole number of at least 1", 2),
        ("--draws 3", "of at least 40", 2),
        ("--figure densities.gif", "--figure densities.gif: expected a name that ends in", 2),
        ("--seed -1", "--seed -1: expected a whole number of at least 0", 2),
        ("--ids 1", "--ids needs --embeddings", 2),
        ("--embeddings somewhere", "--embeddings needs --ids", 2),
        ("--gram a.npy --tokens 3", "--tokens cannot be combined with --gram", 2),
        ("--gram a.npy --embeddings somewhere --ids 1", "cannot be combined with", 2),
        ("--tokens 20000 --width inf", "their Gram matrix and its root take more", 2),
        ("--tokens 6000 --heads 1 --depth 2 --width 8", "more than 4: choose fewer tokens", 1),
        ("--gram missing.npy", "missing.npy: no such file; give an existing file", 1),
        ("--embeddings EXAMPLE --ids 1,999999", "--ids 999999: outside the vocabulary", 2),
    ],
)
def test_bad_input_is_one_clear_line(arguments: str, message: str, status: int) -> None:
    words = [str(EXAMPLE) if word == "EXAMPLE" else word for word in arguments.split()]
    line = (
        run("--width", "inf", *words, status=status).stderr
        if "--width" not in words
        else (run(*words, status=status).stderr)
    )
    assert message in line
    assert line.startswith("attnlaw: ")
    assert line.count("\n") == 1


def test_one_mistake_is_told_once_and_not_for_each_width() -> None:
    ended = run("--gram", "missing.npy", status=1)
    assert ended.stderr.count("\n") == 1
    assert "missing.npy: no such file" in ended.stderr


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
def test_bad_gram_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "gram.txt"
    path.write_text(text)
    assert message in run("--draws", 100, "--gram", path, "--width", 2, status=1).stderr


def test_lists_of_several_depths_stand_in_one_table() -> None:
    done = run("--depth", "1,3", "--residual", "--width", "16,inf", "--draws", 50)
    assert (done.status, done.stderr) == (0, "")
