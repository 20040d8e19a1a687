"""The fit command as a user types it: a process of its own, its output, its exit status."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from checkpoints.small import DECODER_MAP
from command.in_process import invoke, terminal

import attnlaw
from attnlaw.core.answer import AnswerStatus
from attnlaw.verbs.fit.terminal import show_case, show_summary
from attnlaw.verbs.views import answer_of

TINY = Path(__file__).parents[2] / "examples" / "tiny-decoder"


def fit(*arguments, status=0):
    return invoke("fit", *arguments, status=status)


def test_json_goes_alone_to_standard_output_and_keeps_the_contract():
    done = fit(TINY, "--layers", "1", "--json")
    case = json.loads(done.stdout)
    assert case["settings"]["model"] == str(TINY)
    rows = case["tables"]["fits"]
    assert [row["kind"] for row in rows] == ["qk"] * 4 + ["vo"] * 4 + ["ffn_in", "ffn_out"]
    assert all(row["random_p_value"] <= 0.01 for row in rows)
    assert case["quantities"]["not_random_rejected"] == 10


@pytest.mark.slow
def test_table_shows_several_models_side_by_side_and_figures_are_written(tmp_path):
    done = fit(TINY, TINY, "--layers", "0", "--only", "qk,ffn", "--out", tmp_path, "--figures", "svg")
    flat = " ".join(done.stdout.split())
    assert flat.count("Trained: 6 of 6 weight matrices differ from random ones (chance alone: about") == 2
    assert done.stdout.count("tiny-decoder (2)") == 3  # a line for each kind
    assert "heavy-tailed" in done.stdout
    written = {path.name for path in tmp_path.iterdir()}
    assert {"attnlaw.json", "curves.parquet", "fits.parquet", "figures", "report.html"} <= written
    assert pl.read_parquet(tmp_path / "fits.parquet")["case"].n_unique() == 2
    drawn = list((tmp_path / "figures").glob("laws*.svg"))
    assert len(drawn) == 2  # one for each model
    assert all("</svg>" in path.read_text() for path in drawn)


def block(name):
    """The laws of one small block of attention under a name."""
    entries = np.random.default_rng(0).standard_normal((128, 32))
    weights = {"in_proj_weight": entries[:96], "out_proj.weight": entries[96:]}
    return attnlaw.fit(weights, heads=2, only="qk", name=name)


def shown(what, fits, width=80, details=False):
    screen = io.StringIO()
    what(fits, terminal(width, file=screen), details)
    return screen.getvalue()


@pytest.mark.parametrize("folder", ["", "runs/a long name of a folder/with one more in it/"])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_checkpoints_of_one_name_are_told_apart_by_their_folders(folder, width):
    names = [f"{folder}step{step}/model" for step in (100, 200)]
    text = shown(show_summary, block(names[0]) + block(names[1]), width)
    flat = "".join(text.split())
    assert re.findall(r"step\d00", flat) == ["step100", "step200"]
    assert "…" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_of_one_model_fit_the_screen(width):
    text = shown(show_case, block("model"), width)
    assert "Looks untrained: 0 of 2 weight matrices differ from random ones" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(("width", "medians"), [(8, 0), (14, 1), (20, 2), (28, 3), (38, 4), (80, 5)])
def test_a_narrow_screen_goes_without_medians_and_cuts_no_number(width, medians):
    fits = block("model")
    whole, text = (shown(show_summary, fits, columns, details=True) for columns in (120, width))
    table, small = (
        [line.split() for line in lines.splitlines() if line.startswith(("kind", "QK"))][-2:]
        for lines in (whole, text)
    )
    assert "…" not in shown(show_case, fits, width, details=True) + text
    assert len(table[0]) - len(small[0]) == 5 - medians
    cells = dict(zip(*table, strict=True))
    assert small[1] == [cells[title] for title in small[0]]
    assert ("A wider screen also shows" in " ".join(text.split())) == (medians < 5)


def test_names_of_models_are_printed_as_they_are():
    fits = block("[red]x")
    assert "[red]x" in shown(show_case, fits)
    assert "[red]x" in shown(show_summary, fits + block("other"))


def test_the_answer_says_whether_the_model_is_trained_and_which_law_most_matrices_follow():
    result = attnlaw.fit(TINY, layers="0", only="qk,ffn", name="tiny")
    trained, law, certainty = answer_of(result).lines
    assert trained.status is AnswerStatus.OK
    assert trained.text.startswith("Trained: 6 of 6 weight matrices differ from random ones (chance alone")
    assert law.text == (
        "5 of 6 matrices are heavy-tailed: their singular values spread much further than those of random "
        "matrices. This is usual after training, and shows neither a problem nor good generalization. "
        "Most common by kind: "
        "QK heavy-tailed (4 of 4), FFN in power-law tail (1 of 1), FFN out heavy-tailed (1 of 1)."
    )
    assert "With only 32 singular values" in certainty.text
    assert repr(result).startswith("<fit: OK Trained: 6 of 6")


def test_random_matrices_are_said_to_look_untrained():
    line, law = answer_of(block("model")).lines
    assert line.status is AnswerStatus.WARNING
    assert line.text.startswith("Looks untrained: 0 of 2 weight matrices differ from random ones")
    assert law.text == "All 2 matrices look like random numbers: training hardly changed them."


def test_one_matrix_and_a_matrix_that_cannot_be_tested_have_an_answer_too():
    rng = np.random.default_rng(0)
    one = attnlaw.fit(
        {"in_proj_weight": rng.standard_normal((24, 8)), "out_proj.weight": np.eye(8)}, heads=1, only="qk"
    )
    assert answer_of(one).lines[1].text == "The matrix looks like random numbers."
    weights = {"in_proj_weight": np.zeros((24, 8)), "out_proj.weight": np.zeros((8, 8))}
    zeros = answer_of(attnlaw.fit(weights, heads=1)).lines
    assert [line.text for line in zeros] == [
        "No matrix could be compared with random ones.",
        "No law could be fitted.",
    ]


def test_details_add_the_map_and_the_medians_that_the_first_screen_leaves_out():
    fits = block("model")
    first, full = (
        shown(show_case, fits, details=some) + shown(show_summary, fits, details=some)
        for some in (False, True)
    )
    for text in ("layer  QK", "kappa  ", "how often so many matrices of an untrained model"):
        assert text not in first
        assert text in full
    assert max(map(len, first.splitlines())) <= 80


def test_a_saved_fit_gives_the_same_screen(tmp_path):
    fits = block("model") + block("other")
    loaded = attnlaw.load(fits.save(tmp_path))
    for details in (False, True):
        assert shown(show_summary, loaded, details=details) == shown(show_summary, fits, details=details)
    page = (tmp_path / "report.html").read_text()
    assert "Looks untrained: 0 of 2 weight matrices" in page
    assert "looks like random numbers of this shape" in page


@pytest.mark.parametrize(
    ("kappas", "intervals", "printed"),
    [
        ((300.0, None, None), ((100.0, None), (90.0, None), (80.0, None)), ">4096"),
        ((300.0, 400.0, None), ((100.0, None), (90.0, None), (80.0, None)), "400"),
        ((0.1, None, None), ((0.05, 0.2), (None, 0.01), (None, 0.01)), "<0.0078"),
        ((0.1, 0.3, None), ((0.05, 0.2), (0.1, 0.9), (None, None)), "0.200"),
    ],
)
def test_the_median_of_kappa_counts_those_off_the_grid(kappas, intervals, printed):
    """Against the middle of three written down; a matrix without a fit has no say."""
    fits = block("model")
    rows = pl.concat([fits.tables["fits"][:1]] * 3).with_columns(
        pl.Series("kappa", kappas, dtype=pl.Float64),
        *(
            pl.Series(name, ends, dtype=pl.Float64)
            for name, ends in zip(("kappa_low", "kappa_high"), zip(*intervals, strict=True), strict=True)
        ),
    )
    text = shown(show_summary, replace(fits, tables={"fits": rows}), 120, details=True)
    _, line = (line for line in text.splitlines() if line.startswith("QK"))
    assert line.split()[-1] == printed


def test_what_could_not_be_fitted_is_named_and_counted():
    """Heads of one dimension, and a feed-forward matrix of zeros: nothing to test."""
    rng = np.random.default_rng(1)
    prefix = "bert.encoder.layer.0."
    names = ("self.query", "self.key", "self.value", "output.dense")
    weights = {f"{prefix}attention.{name}.weight": rng.standard_normal((8, 8)) for name in names}
    weights[f"{prefix}intermediate.dense.weight"] = np.zeros((16, 8))
    weights[f"{prefix}output.dense.weight"] = rng.standard_normal((8, 16))
    fits = attnlaw.fit(weights, heads=8, name="model")
    assert "0      ????????  ????????  not fitted  random" in shown(show_case, fits, details=True)
    text = shown(show_summary, fits)
    assert "not fitted  cannot be compared with random matrices" in text
    lines = [line.split() for line in text.splitlines() if line.startswith(("QK", "VO"))]
    assert [line[-1] for line in lines] == ["8", "8"]
    assert "not fitted" not in shown(show_summary, block("model"))


def test_a_missing_model_is_one_line_and_the_others_are_fitted():
    done = fit("nowhere", TINY, "--layers", "0", "--only", "qk", "--json", status=1)
    assert "Traceback" not in done.stderr
    assert "nowhere" in done.stderr
    assert len(json.loads(done.stdout)) == 1


@pytest.mark.parametrize(
    "options", [("--figures", "pdf"), ("--figures", "bmp", "--out", "x"), ("--jobs", "0")]
)
def test_bad_options_end_in_one_line(options, tmp_path):
    options = [tmp_path / "x" if option == "x" else option for option in options]
    assert str(options[0]) in fit(TINY, *options, status=2).stderr


def test_a_map_describes_the_model(tmp_path):
    """The names of a map are what is looked for: the right ones give the rows, others none."""
    table = tmp_path / "decoder.toml"
    table.write_text(DECODER_MAP)
    options = ["--layers", "0", "--only", "qk", "--json"]
    mapped = fit(TINY, "--map", table, *options)
    known = fit(TINY, *options)
    assert json.loads(mapped.stdout)["tables"] == json.loads(known.stdout)["tables"]
    table.write_text(DECODER_MAP.replace("c_attn", "c_other"))
    fit(TINY, "--map", table, *options, status=1)


def test_out_writes_rows_and_a_page(tmp_path):
    fit(TINY, "--layers", "0", "--only", "qk", "--out", tmp_path)
    written = {path.name for path in tmp_path.iterdir()}
    assert {"fits.parquet", "curves.parquet", "attnlaw.json", "report.html"} <= written
