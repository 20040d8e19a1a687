"""Results of every verb, in memory and after `load`: attributes, copies, what is shown, what is written."""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
import re
from dataclasses import dataclass, fields, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest
import torch
from rich.console import Console

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.result import Result
from attnlaw.core.settings import Settings, settings_dataclass
from attnlaw.core.verb import Verb
from attnlaw.theory.learn.state_evolution import curve as learning_curve
from attnlaw.theory.limit.depth import Depth
from attnlaw.theory.limit.inputs import RandomInputs
from attnlaw.theory.limit.layer import AttentionLayer
from attnlaw.theory.limit.limit import compare_widths
from attnlaw.training import SpectralMonitor
from attnlaw.verbs import RECORDED_VERBS, STUDY_VERBS, VERBS, find_verb, views

EXAMPLE = "examples/tiny-decoder"
LINES = "".join(f"line {number}: x = {number}\n" for number in range(12))
CONFIG = {
    "model_type": "gpt2",
    "n_embd": 24,
    "n_head": 2,
    "n_layer": 2,
    "n_positions": 16,
    "vocab_size": 40,
    "n_inner": 48,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
}
# Settings that are quickly computed; other verbs run as they are.
SMALL: dict[str, dict[str, Any]] = {
    "audit": {"model": EXAMPLE, "layers": "0:2", "only": "qk"},
    "fit": {"model": EXAMPLE, "layers": "0", "only": "qk"},
    "diff": {"base": EXAMPLE, "model": EXAMPLE, "only": "qk"},
    "check": {"model": EXAMPLE},
    "lens": {"model": EXAMPLE, "text": "x = 1", "only": "heads"},
    "margins": {"model": EXAMPLE, "file": "lines.txt"},
    "limit": {"width": [8, math.inf], "draws": 500},
    "init": {"model": "config.json", "ids": "5,9,5", "draws": 20},
    "learn": {"alpha": 0.2, "noise": 0.5, "spectrum": True},
    "dynamics": {"times": "0.01:0.05:3"},
    "two_layer": {"scale": 1.0},
    "shift": {"dimension": 20, "samples": 30},
    "ensemble": {"inputs": 20, "samples": 40, "features": 30},
    "early_stopping": {"samples": 100, "dimension": 50},
    "complete": {"graph": "disconnected"},
    "coordinates": {"width": 64, "draws": 2},
    "decoder": {"steps": 2, "every": 1},
    "attention": {"tokens": 60, "heads": 3, "head_size": 20, "draws": 2},
}
FILES = ("lines.txt", "config.json")
SLOW = ("decoder",)
EVERY = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name in [*VERBS, *STUDY_VERBS, *RECORDED_VERBS]
]


@cache
def build(name: str, folder: Path) -> Result:
    """A small result of a verb, computed once."""
    if name in RECORDED_VERBS:
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32)
        SpectralMonitor(layer, folder / "run", every=1, quantities=["stable_rank"]).step(0)
        return attnlaw.load(folder / "run")
    (folder / "lines.txt").write_text(LINES)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    words = {key: str(folder / word) if word in FILES else word for key, word in SMALL.get(name, {}).items()}
    return find_verb(name)(**words)


@pytest.fixture(scope="session", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


def forms(result: Result) -> dict[str, Any]:
    """What people see of a result."""
    screen = io.StringIO()
    views.show(result, Console(file=screen, width=100))
    return {
        "terminal": screen.getvalue(),
        "notebook": str(views.notebook_html(result)),
        "json": result.to_json(),
        "line": repr(result),
    }


@pytest.mark.parametrize("name", EVERY)
def test_a_loaded_result_is_the_one_that_was_saved(name: str, folder: Path, tmp_path: Path) -> None:
    result = build(name, folder)
    loaded = attnlaw.load(result.save(tmp_path / "saved"))
    assert (loaded.verb, len(loaded)) == (result.verb, len(result))
    assert loaded.rows.equals(result.rows)
    saved = result.for_saving()
    assert loaded.tables.keys() == saved.tables.keys()
    for table, lines in saved.tables.items():
        assert loaded.tables[table].equals(lines), table
    assert forms(loaded) == forms(saved)
    again = loaded.save(tmp_path / "again")
    for path in sorted((tmp_path / "saved").iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name


@pytest.mark.parametrize("name", EVERY)
def test_a_result_is_copied_pickled_and_asked(name: str, folder: Path, tmp_path: Path) -> None:
    result = build(name, folder)
    loaded = attnlaw.load(result.save(tmp_path))
    for whole in (result, loaded):
        for other in (copy.copy(whole), copy.deepcopy(whole), pickle.loads(pickle.dumps(whole))):
            assert other.to_json() == whole.to_json()
            assert other.tables.keys() == whole.tables.keys()
        part = whole[0]
        names = [quantity.name for quantity in whole.verb.quantities]
        for attribute in (*names, *whole.tables, "status", "remark", "rows", "save", "plot"):
            assert hasattr(part, attribute), attribute
            assert attribute in dir(part), attribute
        for table in whole.tables:
            assert isinstance(getattr(part, table), pl.DataFrame)
            assert "case" not in getattr(part, table).columns
        for attribute in ("no_such_name", "__array__", "_private"):
            assert not hasattr(whole, attribute)
    if loaded is not result and name not in RECORDED_VERBS:
        assert result[0].record is result.records[0]
        with pytest.raises(InputError, match=f"compute it again with attnlaw.{name}"):
            _ = loaded[0].record


@pytest.mark.parametrize("name", EVERY)
def test_cases_are_taken_out_and_added(name: str, folder: Path) -> None:
    result = build(name, folder)
    twice = result + result
    assert len(twice) == 2 * len(result)
    assert twice.to_json() == 2 * result.to_json()
    assert [case.summary for case in twice] == twice.to_json()
    assert twice[-1].summary == result[-1].summary
    for table in result.tables:
        assert twice.tables[table].height == 2 * result.tables[table].height
        assert twice[len(result)].tables[table].equals(result[0].tables[table])
    with pytest.raises(IndexError):
        _ = result[len(result)]
    other = build("check" if name == "coordinates" else "coordinates", folder)
    with pytest.raises(InputError, match=f"cannot add results of {name} and {other.verb.name}"):
        _ = result + other


def test_quantities_and_tables_have_names_that_a_result_leaves_free() -> None:
    reserved = {*dir(Result), *(field.name for field in fields(Result)), "status", "remark"}
    for name in (*VERBS, *STUDY_VERBS, *RECORDED_VERBS):
        verb = find_verb(name)
        tables = [table.name for table in verb.tables]
        names = [quantity.name for quantity in verb.quantities] + tables
        assert len(names) == len({*names}), name
        assert not reserved & {*names}, name


class Cells(HTMLParser):
    """The cells of the tables of a page, row by row."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.cell = False

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module", name="prediction")
def _prediction() -> Result:
    return attnlaw.learn(alpha=0.2, noise=0.5)


@pytest.fixture(scope="module", name="curve")
def _curve() -> Result:
    return attnlaw.learn(alpha=[0.1, 0.2, 0.4], noise=0.5)


def test_a_line_holds_the_first_sentence_of_the_answer(prediction: Result) -> None:
    percent = 100 * prediction.relative_error.value
    start = f"<learn: With 0.2 d² samples (α = 0.2) the error is {percent:.3g}% of learning nothing: "
    assert repr(prediction) == f"{start}E is {prediction.estimation_error.value:.3g} instead of 1.5.>"


def test_quantities_are_values_of_the_record(prediction: Result) -> None:
    assert isinstance(prediction.estimation_error, Estimate)
    assert prediction.estimation_error == prediction.record.estimation_error
    assert prediction.record.spectrum.atoms
    assert (prediction.status, prediction.remark) == ("done", None)
    assert prediction.settings()["alpha"] == 0.2


def test_a_notebook_shows_every_quantity_with_its_meaning_and_the_settings(prediction: Result) -> None:
    page = str(prediction._repr_html_())
    known = {row[0]: row[1:] for row in Cells(page).rows[1:]}
    for quantity in prediction.verb.quantities:
        value = getattr(prediction, quantity.name)
        if quantity.hidden or value is None or value == []:
            assert quantity.label not in known
        else:
            assert known[quantity.label][1] == quantity.description
    assert known["estimation error E"][0] == f"{prediction.estimation_error.value:.6g}"
    assert "alpha 0.2" in page
    assert "noise 0.5" in page


def test_several_cases_are_rows_a_table_and_a_chart(curve: Result) -> None:
    errors = [point.estimation_error.value for point in curve]
    assert curve.rows["alpha"].to_list() == [0.1, 0.2, 0.4]
    assert curve.rows["estimation_error"].to_list() == errors
    head, *rows = Cells(str(curve._repr_html_())).rows
    assert [row[0] for row in rows] == ["0.1", "0.2", "0.4"]
    assert [row[head.index("estimation error")] for row in rows] == [f"{error:.3g}" for error in errors]
    assert repr(curve).startswith("<learn: 3 cases: The error falls from ")
    with pytest.raises(AttributeError, match=r"use result\[0\]\.estimation_error or result\.rows"):
        _ = curve.estimation_error
    for asked in (lambda: curve.record, lambda: curve.summary):
        with pytest.raises(InputError, match="the result has 3 cases; choose one"):
            asked()


def test_functions_of_the_library_return_the_records(curve: Result) -> None:
    same = learning_curve(curve[0].record.problem, [0.1, 0.2, 0.4])
    assert [point.estimation_error for point in same] == [point.estimation_error for point in curve]
    assert len(repr(same[0])) < 300
    widths = compare_widths(Depth(AttentionLayer(RandomInputs(4), heads=2)), (16, math.inf), 500, 3)
    assert [row.width for row in widths] == [16, math.inf]
    assert f"kurtosis {widths[0].kurtosis}" in repr(widths[0])
    dynamics = attnlaw.dynamics(times="0.01:0.05:3").record
    assert len(repr(dynamics)) < 300
    assert repr(dynamics.path) == "<Trajectory>"


def test_charts_are_altairs_and_are_drawn_without_a_network(prediction: Result, curve: Result) -> None:
    for result, words in ((prediction, "eigenvalue"), (curve, "samples / d² (α)")):
        chart = result.plot()
        assert isinstance(chart, alt.TopLevelMixin)
        bundle = chart._repr_mimebundle_()
        assert list(bundle) == ["image/svg+xml"]
        assert bundle["image/svg+xml"].startswith("<svg")
        assert words in bundle["image/svg+xml"]
    assert isinstance(prediction.plot() | curve.plot(), alt.HConcatChart)
    assert prediction.plot("spectrum").to_dict() == prediction.plot().to_dict()
    with pytest.raises(InputError, match="found no chart 'spectra'; expected one of spectrum"):
        prediction.plot("spectra")


def test_a_chart_has_the_style_of_the_house_under_its_own(prediction: Result) -> None:
    def sizes(chart: Any) -> set[str]:
        return set(re.findall(r'font-size="(\d+)px"', chart._repr_mimebundle_()["image/svg+xml"]))

    plain = prediction.plot()
    assert sizes(plain) == {"10", "11", "12"}
    assert sizes(plain.configure_axis(labelFontSize=17)) == {"10", "11", "12", "17"}


def test_what_was_trained_draws_itself_without_the_theory() -> None:
    measured = find_verb("learn.simulate")(alpha=0.2, noise=0.5, simulate=10, seeds=2)
    drawn = measured.plot()._repr_mimebundle_()["image/svg+xml"]
    share = float((measured.record.eigenvalues == 0).mean())
    assert f"weight at zero: trained students {share:.3f}" in drawn
    assert "theory" not in drawn


def test_a_model_shows_its_sizes_in_a_line() -> None:
    model = attnlaw.open_model(EXAMPLE)
    assert repr(model) == "<Model examples/tiny-decoder: gpt2, layers 4, hidden size 128, heads 4>"


def test_findings_come_first_and_names_are_escaped(folder: Path) -> None:
    whole = build("audit", folder)
    row = dict.fromkeys(whole.tables["findings"].columns) | {
        "rule": "<b>",
        "level": "error",
        "meaning": "dead",
        "case": 0,
    }
    findings = pl.DataFrame([row], schema=whole.tables["findings"].schema)
    page = str(replace(whole, tables={**whole.tables, "findings": findings})._repr_html_())
    assert page.index("<b>ERROR</b> the model: Dead. (&lt;b&gt;)") < page.index("QK norm")
    assert "<b>OK</b> No problems found" in str(whole._repr_html_())


@settings_dataclass
class NoSettings(Settings):
    """Nothing to choose."""


@dataclass(frozen=True)
class Toss:
    """A record whose attributes are quantities, a table of rows and a polars table."""

    mean: Estimate
    sides: list[dict[str, Any]]
    faces: pl.DataFrame | None = None


def test_tables_are_attributes_rows_or_functions_of_records() -> None:
    share = Quantity("share", error=True)
    verb = Verb(
        "coin",
        "Coins",
        NoSettings,
        (Quantity("mean", error=True),),
        run=lambda cases, progress: iter(()),
        tables=(
            TableSpec("sides", (Quantity("side", kind="text"), share), json=True),
            TableSpec("faces", (Quantity("face", kind="int"),), optional=True),
            TableSpec("twice", (share,), lambda toss: [row | {"share": 2.0} for row in toss.sides]),
            TableSpec("late", (share,), on_save=lambda toss, progress: [{"share": 3.0}]),
        ),
    )
    rows = [
        {"side": "heads", "share": Estimate(0.5, 0.1)},
        {"side": "tails", "share": 0.5, "share_error": 0.2},
    ]
    tosses = [
        Toss(Estimate(1.0), rows),
        InputError("lost"),
        Toss(Estimate(0.0), [], pl.DataFrame({"face": [1]})),
    ]
    result = Result.collect(verb, ((NoSettings(), toss) for toss in tosses))
    assert result.sides.rows() == [("heads", 0.5, 0.1, 0), ("tails", 0.5, 0.2, 0)]
    assert result.faces.rows() == [(1, 2)]
    assert result.twice.rows() == [(2.0, None, 0), (2.0, 0.2, 0)]
    assert "late" not in result.tables
    assert result.for_saving().late["case"].to_list() == [0, 2]
    assert result[0].summary["tables"]["sides"][1] == {"side": "tails", "share": {"value": 0.5, "error": 0.2}}


def test_finished_rows_and_tables_leave_out_failures_and_what_is_no_number() -> None:
    result = attnlaw.limit(width=[8, math.inf], draws=100)
    first = pl.int_range(pl.len()) == 0
    rows = result.rows.with_columns(
        status=pl.when(first).then(pl.lit("failed")).otherwise("status"), kurtosis=pl.lit(math.nan)
    )
    densities = result.densities.with_columns(ratio=pl.lit(math.inf))
    changed = replace(result, rows=rows, tables={"densities": densities})
    assert changed.plain_rows["case"].to_list() == [0, 1]
    assert changed.finished_rows.select("case", "width", "kurtosis").rows() == [(1, math.inf, None)]
    assert set(changed.finished_table("densities").select("case", "ratio").iter_rows()) == {(1, None)}
    empty = replace(changed, tables={}).finished_table("densities")
    assert empty.schema == densities.schema
    assert not empty.height


def test_a_failed_case_has_a_row_and_no_lines(tmp_path: Path) -> None:
    verb = find_verb("audit")
    cases = verb.cases({"model": [EXAMPLE, str(tmp_path / "none")], "layers": "0", "only": "qk"})
    result = Result.collect(verb, zip(cases, verb.run(cases, lambda *_: None), strict=True))
    assert result.rows["status"].to_list() == ["done", "failed"]
    assert "none: no such file" in result[1].remark
    assert set(result.matrices["case"]) == {0}
    assert "proxies" not in result[1].summary
    loaded = attnlaw.load(result.save(tmp_path / "saved"))
    assert loaded.to_json() == result.to_json()


def test_a_lost_or_shortened_file_is_one_line(tmp_path: Path) -> None:
    folder = attnlaw.limit(width=[8, math.inf], draws=100).save(tmp_path / "saved")
    whole = pl.read_parquet(folder / "densities.parquet")
    whole.head(3).write_parquet(folder / "densities.parquet")
    with pytest.raises(
        InputError, match=rf"densities.parquet: found 3 lines, expected {whole.height}; write"
    ):
        attnlaw.load(folder)
    (folder / "densities.parquet").unlink()
    with pytest.raises(
        InputError, match=r"saved: found no file densities\.parquet; write it again with: attnlaw"
    ):
        attnlaw.load(folder)


def test_slices_and_what_is_no_result() -> None:
    result = attnlaw.limit(width=[8, 16, math.inf], draws=100)
    assert result[1:].rows["width"].to_list() == [16, math.inf]
    assert set(result[1:].densities["case"]) == {0, 1}
    assert len(result[:0]) == 0
    with pytest.raises(TypeError):
        _ = result + 1
    with pytest.raises(InputError, match="alpha found an empty list; give a value"):
        attnlaw.learn(alpha=[])


def test_what_is_not_there_is_no_attribute_and_says_what_to_do(tmp_path: Path) -> None:
    result = attnlaw.learn(alpha=[0.1, 0.2])
    loaded = attnlaw.load(result[0].save(tmp_path / "saved"))
    assert not hasattr(result, "summary")
    assert not hasattr(loaded, "record")
    assert {"record", "summary"} & {*dir(result), *dir(loaded)} == {"summary"}
    with pytest.raises(InputError, match=r"choose one, such as result\[0\].record"):
        _ = result.record
    with pytest.raises(
        InputError,
        match=r"this object is not stored in files; compute it again with attnlaw.learn",
    ):
        _ = loaded.record
    assert loaded.plot().to_dict() == result[0].plot().to_dict()


def test_a_sum_of_loaded_and_computed_audits_has_the_laws_of_both(tmp_path: Path) -> None:
    audit = attnlaw.audit(EXAMPLE, layers="0", only="qk")
    loaded = attnlaw.load(audit.save(tmp_path / "saved"))
    for both in (audit + loaded, loaded + audit):
        assert both.for_saving().fits["case"].to_list() == [0] * 4 + [1] * 4


def test_the_directory_of_an_older_version_is_refused_and_replaced(tmp_path: Path) -> None:
    manifest = {"verb": "audit", "version": "0.2.0"}
    (tmp_path / "attnlaw.json").write_text(json.dumps(manifest))
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(
        InputError, match=r"attnlaw 0\.2\.0 wrote it, expected 0\.3 or later; run attnlaw audit"
    ):
        attnlaw.load(tmp_path)
    result = attnlaw.audit(EXAMPLE, layers="0", only="qk", no_laws=True)
    assert attnlaw.load(result.save(tmp_path)).summary == result.summary
    (tmp_path / "attnlaw.json").unlink()
    with pytest.raises(InputError, match=r"has a summary\.json that attnlaw did not write; choose"):
        result.save(tmp_path)
