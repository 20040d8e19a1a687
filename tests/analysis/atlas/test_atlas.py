"""The atlas: its rows made again, its columns by a second way, and a model beside it."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from command.in_process import invoke
from real_checkpoints import Unavailable, audited
from safetensors.numpy import load_file

import attnlaw
from attnlaw.analysis.atlas.atlas import FOLDER, SHIPPED_COLUMNS, Atlas, load_atlas
from attnlaw.analysis.atlas.columns import APPLIED, COLUMNS, KIND_OF, STORED, column_values, model_kinds
from attnlaw.analysis.atlas.compare import LEAST, range_lines, same_models, unusual_numbers
from attnlaw.checkpoints.families.read_toml import known_families
from attnlaw.study import Backend, read_study, run

ROOT = Path(__file__).resolve().parents[3]
TINY = ROOT / "examples" / "tiny-decoder"
ATLAS = load_atlas()
PLACE = ("layer", "stack", "head", "expert", "kind", "rows", "cols", "inner", "null_draws", "applications")


@cache
def tiny() -> attnlaw.Result:
    return attnlaw.audit(TINY, jobs=1)


@pytest.fixture(name="make_atlas")
def _make_atlas(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "scripts"))
    yield importlib.import_module("make_atlas")
    sys.modules.pop("make_atlas", None)


def assert_made_again(matrices: pl.DataFrame, layers: pl.DataFrame, model: str) -> None:
    """The rows of an audit are those that ship, but for round-off.

    Squared singular values err by about N eps s_1^2 (N below 1e4, eps 2.2e-16), and ranks and norms are sums
    of at most 1e3 of them: 1e-9 holds them all. An applied norm of a feed-forward matrix tells how far it may
    lie off, and a p-value moves in steps of one draw.
    """
    for name, rows in (("matrices", matrices), ("layers", layers)):
        shipped = getattr(ATLAS, name).filter(pl.col("model") == model)
        assert rows.height == shipped.height > 0
        for column in SHIPPED_COLUMNS[name]:
            mine, theirs = rows[column], shipped[column]
            if column in PLACE or column in ("family", "outliers"):
                assert mine.to_list() == theirs.to_list(), column
                continue
            assert mine.is_null().to_list() == theirs.is_null().to_list()
            off = (mine - theirs).abs().fill_null(0.0)
            room = 1e-9 * theirs.abs().fill_null(0.0)
            if column == "random_p_value":
                room = room + (1.0 / (shipped["null_draws"] + 1)).fill_null(0.0)
            elif column == "log10_alpha_applied":  # of norms that have errors; they add up over the layers
                room = room + 1e-9 * layers["applications"].sum() + rows[f"{column}_error"].fill_null(0.0)
            elif f"{column}_error" in rows.columns:
                room = room + rows[f"{column}_error"].fill_null(0.0)
            assert (off <= room).all(), (column, (off - room).max())


def test_the_rows_of_the_example_are_made_again() -> None:
    assert_made_again(tiny().matrices, tiny().layers, "tiny-decoder")
    (row,) = ATLAS.models.filter(pl.col("model") == "tiny-decoder").to_dicts()
    assert row["sha256"] == hashlib.sha256((TINY / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.slow
def test_the_rows_of_a_real_checkpoint_are_made_again() -> None:
    audit = audited("rxnmapper")
    assert_made_again(audit.matrices, audit.layers, "rxnmapper")


def test_the_rows_of_a_fresh_model_are_made_again(make_atlas: ModuleType, tmp_path: Path) -> None:
    (row,) = ATLAS.models.filter(pl.col("model") == "fresh-tiny-decoder").to_dicts()
    if row["made_with"] != make_atlas.made_with():
        pytest.skip(f"drawn with {row['made_with']}, here is {make_atlas.made_with()}")
    audit = attnlaw.audit(make_atlas.draw("fresh-tiny-decoder", tmp_path), jobs=1)
    assert_made_again(audit.matrices, audit.layers, "fresh-tiny-decoder")
    assert audit.summary["atlas"]["left_out"] == ["fresh-tiny-decoder"]


@pytest.mark.long
def test_the_study_makes_the_whole_atlas_again(make_atlas: ModuleType, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "atlas.toml", tmp_path)
    try:
        make_atlas.make_models(tmp_path / "atlas")
    except Unavailable as error:
        pytest.skip(str(error))
    report = run(read_study(tmp_path / "atlas.toml"), tmp_path / "rows", Backend())
    assert (report.done, report.failures) == (16, ())
    atlas = make_atlas.packed(tmp_path / "rows", tmp_path / "atlas")
    same = [name for name in atlas.models.columns if name not in ("made_with", "attnlaw_version")]
    if atlas.models["made_with"].to_list() != ATLAS.models["made_with"].to_list():
        pytest.skip(f"drawn with {make_atlas.made_with()}, the atlas with other versions")
    assert atlas.models.select(same).rows() == ATLAS.models.select(same).rows()
    for (model,), matrices in _with_errors(tmp_path / "rows", "matrices").group_by("model"):
        layers = _with_errors(tmp_path / "rows", "layers").filter(pl.col("model") == model)
        assert_made_again(matrices, layers, str(model))


def _with_errors(folder: Path, name: str) -> pl.DataFrame:
    """A table as the study wrote it, with the columns of errors that do not ship."""
    return attnlaw.load(folder).tables[name]


def test_what_ships_is_small_and_told_by_the_study() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.parquet")) <= 300_000
    study = read_study(ROOT / "examples" / "atlas.toml")
    assert [task.case.name for task in study.tasks] == ATLAS.models["model"].to_list()
    for table in (ATLAS.matrices, ATLAS.layers):
        assert list(dict.fromkeys(table["model"])) == ATLAS.models["model"].to_list()
    models = ATLAS.models.with_columns(fresh=~pl.col("trained"))
    assert (models["seed"].is_not_null() == models["fresh"]).all()
    assert models.select("source", "sha256", "attnlaw_version").null_count().sum_horizontal()[0] == 0


def heads(name: str, layer: int, weights: dict[str, Any]) -> Iterator[np.ndarray]:
    """QK or VO of every head of a layer of the example, formed from its weights."""
    fused = weights[f"transformer.h.{layer}.attn.c_attn.weight"].astype(np.float64)
    out = weights[f"transformer.h.{layer}.attn.c_proj.weight"].astype(np.float64)
    query, key, value = (part.reshape(128, 4, 32) for part in np.split(fused, 3, axis=1))
    for head in range(4):
        if name == "qk":
            yield query[:, head] @ key[:, head].T
        else:
            yield value[:, head] @ out.reshape(4, 32, 128)[head]


def test_columns_are_medians_over_the_matrices_of_the_weights() -> None:
    """The second way: matrices formed whole, their singular values by LAPACK, medians by NumPy."""
    weights = load_file(TINY / "model.safetensors")
    (row,) = ATLAS.values.filter(pl.col("model") == "tiny-decoder").to_dicts()
    for kind in ("qk", "vo"):
        spectra = [
            np.linalg.svd(matrix, compute_uv=False)
            for layer in range(4)
            for matrix in heads(kind, layer, weights)
        ]
        ranks = [float((values**2).sum() / values[0] ** 2) for values in spectra]
        assert row[f"median_stable_rank_{kind}"] == pytest.approx(np.median(ranks), rel=1e-9)
        tops = [values[0] for values in spectra]
        assert row[f"median_spectral_norm_{kind}"] == pytest.approx(np.median(tops), rel=1e-9)
    for kind, name in (("ffn_in", "c_fc"), ("ffn_out", "c_proj")):
        tops = [
            np.linalg.norm(weights[f"transformer.h.{layer}.mlp.{name}.weight"].astype(np.float64), 2)
            for layer in range(4)
        ]
        assert row[f"median_spectral_norm_{kind}"] == pytest.approx(np.median(tops), rel=1e-9)


def test_columns_agree_with_the_summary_and_with_applied_rows() -> None:
    summary, (row,) = tiny().summary, column_values(tiny().matrices, tiny().layers).to_dicts()
    for name in ("rejected_share", "median_outliers", "median_effective_rank_qk"):
        assert row[name] == summary[name]
    assert row["log10_alpha_per_layer"] == pytest.approx(summary["log10_alpha"][0] / 3, rel=1e-15)
    assert row["log10_alpha_applied_per_layer"] == pytest.approx(
        summary["log10_amplification"] / 3, rel=1e-15
    )
    for name, kind in (("stable_rank", "vo"), ("spectral_norm", "qk"), ("spectral_norm", "ffn_in")):
        rows = tiny().matrices.filter(pl.col("kind") == kind)[f"{name}_applied"].to_numpy()
        assert row[f"median_{name}_{kind}_applied"] == np.median(rows)


def test_trained_models_differ_from_fresh_ones_as_the_page_says() -> None:
    rows = {row["model"]: row for row in ATLAS.values.iter_rows(named=True)}
    alike = set()
    for name in ATLAS.models.filter("trained")["model"]:
        trained = rows[name]
        fresh = rows["fresh-rxnfp" if name.startswith("rxnfp") else f"fresh-{name}"]
        assert trained["rejected_share"] > 0.85 > 0.02 > fresh["rejected_share"]
        for column in (quantity.name for quantity in COLUMNS.values() if quantity.norms is not None):
            lower = "stable_rank" in column
            assert (trained[column] < fresh[column]) == lower, (name, column)
        if trained["median_effective_rank_qk"] == pytest.approx(fresh["median_effective_rank_qk"], rel=0.03):
            alike.add(name)
    assert alike == {"rxnmapper", "minilm", "mpnet"}


@pytest.mark.parametrize("model", ATLAS.models["model"].to_list())
def test_every_model_of_the_atlas_is_itself_alone(model: str) -> None:
    assert same_models(ATLAS.matrices.filter(pl.col("model") == model), ATLAS) == [model]


def test_a_fresh_model_with_nearly_the_same_norms_is_another_draw() -> None:
    for model, expected in (("mpnet", ["mpnet"]), ("fresh-mpnet", [])):
        rows = ATLAS.matrices.filter(pl.col("model") == model)
        near = rows.with_columns(pl.col("frobenius_norm") * 1.001)
        assert same_models(near, ATLAS) == expected


def test_a_rounded_copy_is_the_same_model_and_a_moved_one_is_not() -> None:
    """Rounding to float16 moves norms by 2^-11 at most; every matrix times 1.05 is another model."""
    weights = load_file(TINY / "model.safetensors")
    rounded = {name: tensor.astype(np.float16) for name, tensor in weights.items()}
    moved = {name: (1.05 * tensor if "mlp" in name else tensor) for name, tensor in weights.items()}
    left_out = [
        attnlaw.audit(given, heads=4, jobs=1).summary["atlas"]["left_out"] for given in (rounded, moved)
    ]
    assert left_out == [["tiny-decoder"], []]


def bert(layers: int = 2, width: int = 16) -> dict[str, Any]:
    """Random weights by the names of BERT."""
    rng = np.random.default_rng(0)
    shapes = {
        **{f"attention.self.{part}.weight": (width, width) for part in ("query", "key", "value")},
        "attention.output.dense.weight": (width, width),
        "intermediate.dense.weight": (2 * width, width),
        "output.dense.weight": (width, 2 * width),
    }
    return {
        f"encoder.layer.{layer}.{name}": rng.normal(size=shape)
        for layer in range(layers)
        for name, shape in shapes.items()
    }


def test_ranges_are_over_trained_models_of_the_kind() -> None:
    audit = attnlaw.audit(bert(), heads=2, jobs=1)
    entry = audit.summary["atlas"]
    assert (entry["kind"], entry["among"], entry["left_out"]) == ("encoder", "encoder", [])
    assert audit.summary["norms"] == "stored"  # no norm is in the file
    rows = {row["model"]: row for row in ATLAS.values.iter_rows(named=True)}
    encoders = {name: row for name, row in rows.items() if row["kind"] == "encoder"}
    assert entry["trained"] == [name for name, row in encoders.items() if row["trained"]]
    assert entry["fresh"] == [name for name, row in encoders.items() if not row["trained"]]
    assert len(entry["columns"]) == 10
    for name, ranges in entry["columns"].items():
        assert COLUMNS[name].norms in (None, STORED)
        trained, fresh = ([encoders[model][name] for model in entry[state]] for state in ("trained", "fresh"))
        below = sum(value < ranges["value"] for value in trained)
        assert ranges["trained"] == {"low": min(trained), "high": max(trained), "models": 6, "below": below}
        assert ranges["fresh"] == {"low": min(fresh), "high": max(fresh), "models": 4}


def test_a_kind_of_few_models_is_compared_with_all_and_not_with_itself() -> None:
    entry = tiny().summary["atlas"]
    assert (entry["kind"], entry["among"], entry["left_out"]) == ("decoder", None, ["tiny-decoder"])
    assert len(entry["trained"]) == 8
    assert "tiny-decoder" not in entry["trained"]
    assert len(entry["fresh"]) == 7
    assert {COLUMNS[name].norms for name in entry["columns"]} == {None, APPLIED}
    # With as many other decoders as make a kind, they are taken alone.
    names = ["smollm2", *(f"copy {number}" for number in range(1, LEAST))]
    tables = (
        pl.concat(
            table.filter(pl.col("model") == "smollm2").with_columns(model=pl.lit(name)) for name in names
        )
        for table in (ATLAS.models, ATLAS.matrices, ATLAS.layers)
    )
    alone = Atlas(*tables).compare(tiny())
    assert alone is not None
    assert (alone["among"], alone["trained"], alone["fresh"]) == ("decoder", names, [])
    assert range_lines(alone)[0][4] == ""


@pytest.mark.parametrize("part", [{"layers": "0:2"}, {"only": "qk"}])
def test_a_part_of_a_model_is_not_compared(part: dict[str, str]) -> None:
    assert attnlaw.audit(TINY, jobs=1, **part).summary["atlas"] is None


def test_a_single_layer_has_no_amplification_and_an_unknown_family_no_kind() -> None:
    block = {"in_proj_weight": np.eye(12, 4), "out_proj.weight": 2 * np.eye(4)}
    entry = attnlaw.audit(block, heads=2, jobs=1).summary["atlas"]
    assert entry["kind"] is entry["among"] is None
    assert "log10_alpha_per_layer" not in entry["columns"]
    assert "median_spectral_norm_ffn_in" not in entry["columns"]


def test_kinds_are_of_families_that_ship() -> None:
    assert KIND_OF.keys() <= {family.name for family in known_families()}
    kinds = dict(model_kinds(ATLAS.matrices).iter_rows())
    assert (kinds["smollm2"], kinds["whisper-tiny.en"], kinds["mpnet"]) == (
        "decoder",
        "encoder-decoder",
        "encoder",
    )


def test_the_terminal_and_the_json_tell_the_same() -> None:
    entry = json.loads(invoke("audit", TINY, "--json").stdout)["atlas"]
    assert entry == tiny().summary["atlas"]
    details = invoke("audit", TINY, "--details", columns=100).stdout
    printed = [line.split() for line in details.splitlines()]
    for label, here, trained, below, fresh in range_lines(entry):
        assert [*label.split(), here, *trained.split(), *below.split(), *fresh.split()] in printed
    ranges = entry["columns"]["median_stable_rank_qk_applied"]
    low, high = (ranges["trained"][end] for end in ("low", "high"))
    line = f"QK stable rank {ranges['value']:.2f} {low:.2f} to {high:.1f} 0 of 8 11.1 to 32.5"
    assert line.split() in printed


@pytest.mark.slow
def test_the_page_shows_the_ranges(tmp_path: Path) -> None:
    page = (tiny().save(tmp_path / "one") / "report.html").read_text(encoding="utf-8")
    assert '<details class="atlas" open>' in page
    assert "; tiny-decoder itself is excluded" in page
    two = (tiny() + tiny()).save(tmp_path / "two") / "report.html"
    assert two.read_text(encoding="utf-8").count('<details class="atlas">') == 2


def test_a_result_without_the_table_is_shown_without(tmp_path: Path) -> None:
    tables = {name: table for name, table in tiny().tables.items() if name != "atlas"}
    result = replace(tiny(), tables=tables, records=())
    assert result.summary["atlas"] is None
    page = result.save(tmp_path) / "report.html"
    assert "Compared with other models" not in page.read_text(encoding="utf-8")


def test_a_study_is_an_atlas_of_its_whole_audits(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        f'verb = "audit"\n[[list]]\nmodel = "{TINY}"\nname = "mine"\n'
        f'[[list]]\nmodel = "{TINY}"\nname = "part"\nlayers = "0"\n'
    )
    run(read_study(file), tmp_path / "rows", Backend())
    atlas = load_atlas(attnlaw.load(tmp_path / "rows"))
    assert atlas.models.select("model", "trained", "source").rows() == [("mine", True, None)]
    row = atlas.values.select(list(COLUMNS)).row(0)
    assert row == column_values(tiny().matrices, tiny().layers).select(list(COLUMNS)).row(0)


def test_what_is_no_study_of_audits_is_told(tmp_path: Path) -> None:
    for given in (tmp_path, attnlaw.learn(alpha=1.0)):
        with pytest.raises(attnlaw.InputError, match="found no audits of a study"):
            load_atlas(given)
    file = tmp_path / "study.toml"
    file.write_text(f'verb = "audit"\n[fixed]\nmodel = "{TINY}"\nonly = ["qk"]\nlayers = "0"\n')
    run(read_study(file), tmp_path / "rows", Backend())
    with pytest.raises(attnlaw.InputError, match="every audit of this study covers only"):
        load_atlas(attnlaw.load(tmp_path / "rows"))


def test_round_off_is_not_outside_and_an_ordinary_count_is_not_unusual() -> None:
    """Ten numbers of an ordinary model have two outside the range of nine others; four is clearly more."""
    names = list(COLUMNS)[:10]

    def entry(values: list[float]) -> dict[str, Any]:
        trained = {"low": 8.1, "high": 19.3, "models": 9, "below": 0}
        columns = {
            name: {"value": value, "trained": trained} for name, value in zip(names, values, strict=True)
        }
        return {"among": None, "trained": ["a"] * 9, "columns": columns}

    assert not unusual_numbers(entry([8.1 * (1 - 1e-14), 19.3 * (1 + 1e-14), *[10.0] * 8])).lines
    assert len(unusual_numbers(entry([8.1 * (1 - 1e-8), *[10.0] * 9])).lines) == 1
    for outside, is_unusual in {0: False, 2: False, 3: False, 4: True}.items():
        assert unusual_numbers(entry([1.0] * outside + [10.0] * (10 - outside))).is_unusual == is_unusual
