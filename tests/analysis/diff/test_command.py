"""The command as a user types it: output, files, exit status."""

import io
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command.in_process import invoke
from rich.console import Console
from safetensors.numpy import load_file, save_file

import attnlaw
from attnlaw.analysis.diff.columns import DIFF, DIFF_TENSORS
from attnlaw.checkpoints.open import open_model
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.verbs.views import show

TINY = Path(__file__).parents[3] / "examples" / "tiny-decoder"
CHANGED = "transformer.h.2.attn.c_attn.weight"


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """A copy with an update of rank 2 in one layer, and one in half precision."""
    folder = tmp_path_factory.mktemp("copies")
    state = load_file(TINY / "model.safetensors")
    rng = np.random.default_rng(0)
    update = 0.01 * rng.standard_normal((128, 2)) @ rng.standard_normal((2, 384))
    tuned = state | {CHANGED: state[CHANGED] + update.astype(np.float32)}
    for name, weights in (
        ("tuned", tuned),
        ("half", {name: tensor.astype(np.float16) for name, tensor in state.items()}),
    ):
        (folder / name).mkdir()
        save_file(weights, folder / name / "model.safetensors")
        (folder / name / "config.json").write_text((TINY / "config.json").read_text())
    return folder


def test_the_verdict_comes_first(copies):
    done = invoke("diff", TINY, copies / "tuned", columns=120)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    title = " ".join(done.stdout.split("Low-rank")[0].split())
    assert title == f"{copies / 'tuned'} compared with {TINY}"
    lines = lines[next(i for i, line in enumerate(lines) if line.startswith("Low-rank")) :]
    assert lines[0] == f"Low-rank update of rank 2, in {CHANGED} (18.8%)."
    assert lines[1] == "Everything else is identical."
    assert lines[2].startswith("This looks like a merged LoRA adapter")
    assert "Compared: all 52 tensors (16 matrices, 1 embedding, 34 vectors, 1 other tensor)." in lines
    assert re.search(
        r"^2 +18\.8%  attn\.c_attn\.weight  1 low-rank \(rank 2\), 11 identical", done.stdout, re.M
    )
    assert done.stderr == ""


def test_one_row_a_model_in_the_order_given(copies):
    done = invoke("diff", TINY, copies / "half", copies / "tuned", TINY, columns=120)
    rows = done.stdout[done.stdout.index("model  ") :].splitlines()
    assert [row.split()[0] for row in rows[1:4]] == ["half", "tuned", "tiny-decoder"]
    assert "Rounded to float16: all 52 tensors" in done.stdout
    assert "Identical: all 52 compared tensors are equal." in done.stdout


def test_json_alone_and_its_keys(copies):
    done = invoke("diff", TINY, copies / "tuned", "--json")
    output = json.loads(done.stdout)
    assert output["verb"] == "diff"
    assert output["settings"]["base"] == str(TINY)
    assert output["quantities"]["tensors_low_rank"] == 1
    assert output["verdicts"] == {"identical": 51, "low-rank": 1}
    assert output["worst_tensor"]["tensor"] == CHANGED
    assert output["worst_map"]["place"].startswith("layer 2")
    assert output["sentence"] == output["quantities"]["verdict"]
    (tensor,) = output["tensors"]
    assert tensor["tensor"] == CHANGED
    assert (tensor["verdict"], tensor["rank"], tensor["rank_low"], tensor["rank_high"]) == (
        "low-rank",
        2,
        2,
        2,
    )


def test_what_is_written(copies, tmp_path):
    models = [str(copies / "tuned"), str(copies / "half")]
    invoke("diff", TINY, *models, "--layers", "2", "--only", "vo", "--out", tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    tables = {"diff.parquet", "diff_tensors.parquet", "diff_spectra.parquet", "rows.parquet"}
    assert names == {*tables, "summary.json", "attnlaw.json", "report.html"}
    maps = pl.read_parquet(tmp_path / "diff.parquet")
    assert maps.columns == [*(column.name for column in DIFF), "case"]
    assert maps["model"].unique(maintain_order=True).to_list() == models
    tensors = pl.read_parquet(tmp_path / "diff_tensors.parquet")
    assert tensors.columns == [*(column.name for column in DIFF_TENSORS), "case"]
    assert [summary["model"] for summary in json.loads((tmp_path / "summary.json").read_text())] == models
    page = (tmp_path / "report.html").read_text()
    assert page.index("Low-rank update of rank 2") < page.index("Rounded to float16")


def test_python_gives_the_same(copies):
    comparison = attnlaw.diff(TINY, copies / "tuned")
    assert comparison.tensors_low_rank == 1
    both = attnlaw.diff(TINY, [copies / "tuned", copies / "half"], only="vo")
    assert [case.verdicts[-1] for case in both] == ["low-rank", "rounded"]
    assert "Low-rank" in repr(comparison.record)
    assert comparison.diff.columns == [column.name for column in DIFF]
    assert sum(comparison.summary["verdicts"].values()) == comparison.diff_tensors.height
    assert "<table" in comparison._repr_html_()


def test_a_missing_file_is_one_line_and_the_others_go_on(copies):
    done = invoke("diff", TINY, copies / "none", copies / "half", status=1)
    assert done.stderr.startswith(f"attnlaw: {copies / 'none'}: no such file or directory")
    assert "Rounded to float16" in done.stdout
    bad = invoke("diff", copies / "nowhere", TINY, status=1)
    assert bad.stderr.count("\n") == 1
    assert "nowhere" in bad.stderr


def test_words_that_are_missing(copies):
    assert invoke("diff", status=2).stderr.count("\n") == 1
    assert invoke("diff", TINY, status=2).stderr.count("\n") == 1
    with pytest.raises(BadSetting, match="model"):
        attnlaw.diff(TINY)


def test_a_hostile_name_stays_text():
    bad = "[bold]\x1b[31m</script>"
    base = {"in_proj_weight": np.eye(12, 4), "out_proj.weight": np.eye(4), bad: np.ones(3)}
    comparison = attnlaw.diff(base, base | {bad: np.zeros(3)}, heads=2, name=bad)
    screen = io.StringIO()
    console = Console(width=80, file=screen)
    show(comparison, console)
    assert "\x1b" not in screen.getvalue()
    assert "[bold]" in screen.getvalue()
    assert "&lt;/script&gt;" in comparison._repr_html_()
    assert "</script>" not in comparison._repr_html_()


def test_a_state_dict_has_the_sizes_of_the_base(copies, tmp_path):
    state, base = load_file(copies / "tuned" / "model.safetensors"), str(TINY)
    by_path = attnlaw.diff(base, str(copies / "tuned"))
    bare = tmp_path / "bare.safetensors"  # a file without a config.json next to it
    save_file(state, bare)
    for model in (state, bare):
        compared = attnlaw.diff(base, model)
        assert compared.verdict == by_path.verdict
        assert compared.diff.drop("model").equals(by_path.diff.drop("model"))
    with pytest.raises(InputError, match="attnlaw cannot find the number"):
        attnlaw.audit(state)
    with pytest.raises(InputError, match=r"--heads 8: .*tiny-decoder/config.json says 4"):
        attnlaw.diff(base, str(copies / "tuned"), heads=8)


def test_a_base_in_codes_does_not_make_its_model_one(tmp_path, copies):
    """The config of a quantised base says how the base is stored, not how a state dict is."""
    config = json.loads((TINY / "config.json").read_text())
    model = open_model(
        load_file(copies / "tuned" / "model.safetensors"),
        sizes_from=coded(tmp_path / "coded", config | {"quantization_config": {"quant_method": "gptq"}}),
    )
    assert model.layers[0].attention.heads == 4


def coded(folder, config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(load_file(TINY / "model.safetensors"), folder / "model.safetensors")
    return folder
