"""`write_report`: pages from saved results of every kind, and one clear line where there are none."""

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from report.charts_of import data_of, study_of, values_of
from safetensors.numpy import save_file

import attnlaw
from attnlaw import study
from attnlaw.analysis.fit import LAWS
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Estimate
from attnlaw.core.progress import no_progress
from attnlaw.core.result import Result
from attnlaw.report import write_files, write_report
from attnlaw.study.study_file import read_study
from attnlaw.theory.bounds import BOUNDS
from attnlaw.verbs import find_verb
from attnlaw.verbs.audit.page import MOST_MODELS
from attnlaw.verbs.views import STORE, figures_of, load

ALPHAS = (0.1, 0.2, 0.4)
SETTING = {"tokens": 1, "output": "linear", "target_rank": 0.5, "noise": 0.0, "weight_decay": 0.1}


def learn_rows():
    rows = [
        {"verb": "learn", "alpha": alpha, "student": student, "estimation_error": 1 / (1 + alpha), **SETTING}
        for alpha in ALPHAS
        for student in ("factorized", "direct")
    ]
    lost = {"verb": "learn", "alpha": 9.0, "student": "direct", "remark": "too many", "status": "failed"}
    every = [{"status": "done", "task": str(i), **row} for i, row in enumerate([*rows, lost | SETTING])]
    return pl.DataFrame(every, infer_schema_length=None)


def limit_study(folder):
    """A study of two widths and the limit, with its densities beside it."""
    rows = []
    for place, width in enumerate((16.0, 64.0, float("inf"))):
        distance = None if width == float("inf") else 2 / width**2
        distances = {f"{name}_to_limit": distance for name in ("kl", "w1", "ks")}
        errors = {f"{name}_to_limit_error": distance and distance / 10 for name in ("kl", "w1", "ks")}
        place_ = {"verb": "limit", "heads": 2, "width": width, "status": "done", "task": f"t{place}"}
        rows.append(place_ | distances | errors)
    folder.mkdir(parents=True, exist_ok=True)
    cases = [case for case in range(3) for _ in range(3)]
    table = {"y": [-1.0, 0.0, 1.0] * 3, "density": [0.1, 0.5, 0.1] * 3, "case": cases}
    pl.DataFrame(table).write_parquet(folder / "densities.parquet")
    return pl.DataFrame(rows, infer_schema_length=None)


@pytest.fixture(scope="module", name="audited")
def _audited(tmp_path_factory):
    rng = np.random.default_rng(0)
    state = {"in_proj_weight": rng.standard_normal((24, 8)), "out_proj.weight": rng.standard_normal((8, 8))}
    return attnlaw.audit(state, heads=2, name="same").save(tmp_path_factory.mktemp("audit"))


@pytest.mark.slow
def test_saved_audits_stand_side_by_side(audited, tmp_path):
    page = write_report([audited, audited], tmp_path / "both")
    data = data_of(page)
    assert [model["name"] for model in data["models"]] == ["same", "same (2)"]
    matrices = load(audited).matrices
    assert data["columns"]["spectral_norm"] == 2 * matrices["spectral_norm"].to_list()
    assert data["columns"]["model"] == [0] * matrices.height + [1] * matrices.height
    assert "Models layer by layer" in page.read_text(encoding="utf-8")


def test_a_report_of_one_directory_goes_into_it(audited):
    before = (audited / "report.html").read_text(encoding="utf-8")
    assert write_report([audited]) == audited / "report.html"
    assert (audited / "report.html").read_text(encoding="utf-8") == before


def test_studies_and_training_runs_share_a_page(tmp_path):
    study = study_of(tmp_path / "study", limit_study(tmp_path / "study"))
    run = study_of(tmp_path / "run", [{"verb": "monitor", "status": "done", "measured_steps": 2}])
    steps = {"step": [0, 10], "model": ["m", "m"], "stable_rank_qk": [3.0, 2.0], "alpha_qk": [None, 2.5]}
    pl.DataFrame(steps | {"case": [0, 0]}).write_parquet(run / "steps.parquet")
    page = write_report([study, run], tmp_path / "out")
    source = page.read_text(encoding="utf-8")
    for text in ("Densities", "KL divergence to the limit", "Spectra during training", "median stable rank"):
        assert text in source
    data = data_of(page)
    assert data["columns"]["stable_rank_qk"][-2:] == [3.0, 2.0]
    # JSON knows no infinity: the page puts it back where it was.
    assert data["columns"]["width"][:3] == [16.0, 64.0, None]
    assert data["infinite"] == {"width": [2]}
    assert '<h2 id="rows-title">All rows</h2>' in source
    lead, *sections = re.findall(r'<p class="lead">([^<]*)', source)
    named = "study (Compare an attention layer with its infinite-width limit), run (Training run)"
    assert lead == f"5 rows of {named}."
    assert sections[0] == "Drawn from 3 rows in study. The same in all rows: verb limit, heads 2."


@pytest.mark.slow
def test_a_study_beside_an_audit_keeps_its_settings_and_the_table_its_name(audited, tmp_path):
    study = study_of(tmp_path / "widths", limit_study(tmp_path / "widths"))
    source = write_report([audited, study], tmp_path / "out").read_text(encoding="utf-8")
    assert "All matrices</h2>" in source
    lead = re.search(r'<p class="lead">([^<]*)', source)[1]
    assert lead.startswith("same · ")
    assert lead.endswith(
        "matrices. Also on this page: widths (Compare an attention layer with its infinite-width limit)."
    )
    assert "Drawn from 3 rows in widths. The same in all rows: verb limit, heads 2." in source


def test_failed_tasks_are_told_and_shown(tmp_path):
    rows = learn_rows()
    page = write_report([study_of(tmp_path, rows)])
    lead = re.search(r'<p class="lead">([^<]*)', page.read_text(encoding="utf-8"))[1]
    assert lead.endswith(f" 1 of {rows.height} tasks failed: too many.")
    assert data_of(page)["shown"][-2:] == [["status", "status"], ["remark", "remark"]]
    assert data_of(page)["columns"]["remark"] == rows["remark"].to_list()
    fine = write_report([study_of(tmp_path, rows.filter(pl.col("status") != "failed"))])
    assert "failed" not in re.search(r'<p class="lead">([^<]*)', fine.read_text(encoding="utf-8"))[1]
    assert ["remark", "remark"] not in data_of(fine)["shown"]


def test_a_study_that_failed_throughout_says_so(tmp_path):
    rows = learn_rows().with_columns(status=pl.lit("failed"), remark=pl.lit("first line\nsecond line"))
    page = write_report([study_of(tmp_path, rows)])
    source = page.read_text(encoding="utf-8")
    assert f"{rows.height} of {rows.height} tasks failed: first line. " in source
    assert "They cannot be drawn as a figure." in source
    assert ["status", "status"] in data_of(page)["shown"]


def test_settings_that_all_rows_share_are_told_once(tmp_path):
    """Results are shown though they agree; settings that never vary are not."""
    rows = limit_study(tmp_path).with_columns(scaling=pl.lit("1/n"), kl_to_limit=pl.lit(0.5))
    page = write_report([study_of(tmp_path, rows)])
    shown = [name for name, _ in data_of(page)["shown"]]
    assert {"width", "kl_to_limit"} <= set(shown)
    assert not {"heads", "scaling", "verb"} & set(shown)
    source = page.read_text(encoding="utf-8")
    assert "The same in all rows: verb limit, heads 2, scaling 1/n." in source
    name, value = re.search(r'placeholder="[^"]*: (\w+)&gt;([^"]+)"', source).groups()
    kept = [other for other in rows[name].to_list() if other is not None and other > float(value)]
    assert 0 < len(kept) < rows.height  # what the filter suggests does filter


BAD = {
    "nothing there": lambda folder: [folder],
    "two directories and no place": lambda folder: [folder, folder],
    "torn manifest": lambda folder: [torn(folder, "attnlaw.json")],
    "torn rows": lambda folder: [torn(study_of(folder, learn_rows()), "rows.parquet")],
    "torn table": lambda folder: [torn(study_of(folder, limit_study(folder)), "densities.parquet")],
    "no rows": lambda folder: [study_of(folder, pl.DataFrame({"verb": [], "status": [], "task": []}))],
    "other columns": lambda folder: [study_of(folder, pl.DataFrame({"x": [1]}))],
}


def torn(folder, name):
    (folder / name).write_text("torn")
    return folder


@pytest.mark.parametrize("case", BAD)
def test_bad_directories_are_told_in_one_line(case, tmp_path):
    with pytest.raises(attnlaw.InputError) as raised:
        write_report(BAD[case](tmp_path))
    assert "\n" not in str(raised.value)
    assert "; " in str(raised.value)


def test_a_study_that_is_not_exported_is_told_how(tmp_path):
    (tmp_path / STORE).touch()
    with pytest.raises(attnlaw.InputError) as raised:
        write_report([tmp_path])
    todo = f"once a task is finished, run: attnlaw study export FILE --out {tmp_path}"
    assert str(raised.value) == f"{tmp_path}: this directory has a study without exported rows; {todo}"


def test_lines_of_a_case_that_is_not_there_are_refused(audited, tmp_path):
    folder = copied(audited, tmp_path)
    table = pl.read_parquet(audited / "matrices.parquet").with_columns(case=pl.lit(1))
    table.write_parquet(tmp_path / "matrices.parquet")
    with pytest.raises(attnlaw.InputError, match=r"matrices\.parquet: found rows of case 1 of 1"):
        write_report([folder])


@pytest.mark.slow
def test_a_study_of_audits_shows_its_models_like_an_audit(tmp_path):
    rng = np.random.default_rng(1)
    paths = []
    for name in ("one", "two"):
        weights = {
            "in_proj_weight": rng.standard_normal((24, 8)),
            "out_proj.weight": rng.standard_normal((8, 8)),
        }
        paths.append(tmp_path / f"{name}.safetensors")
        save_file(weights, paths[-1])
    names = "\n".join(f'    "{path}",' for path in paths)
    file = tmp_path / "atlas.toml"
    file.write_text(f'verb = ["audit", "fit"]\n[fixed]\nheads = 2\n[grid]\nmodel = [\n{names}\n]\n')
    study.run(read_study(file), tmp_path / "atlas", study.Backend())
    data = data_of(write_report([tmp_path / "atlas"]))
    direct = [attnlaw.audit(path, heads=2) for path in paths]
    assert [model["name"] for model in data["models"]] == [str(path) for path in paths]
    norms = [norm for audit in direct for norm in audit.matrices["spectral_norm"]]
    assert data["columns"]["spectral_norm"] == norms
    saved = load(tmp_path / "atlas")
    assert [case.summary["proxies"] for case in saved] == [audit.summary["proxies"] for audit in direct]
    assert set(data["columns"]["law"]) <= {*LAWS}
    assert data["fits"] is not None


def test_many_audited_models_are_compared_by_their_rows(audited, tmp_path):
    """A page of an audit shows few models of a study; more have a row each."""
    audit = load(audited)
    several = audit
    for _ in range(MOST_MODELS - 1):
        several += audit
    names = [model["name"] for model in data_of(write_report([several.save(tmp_path / "few")]))["models"]]
    assert names == ["same", *(f"same ({number})" for number in range(2, MOST_MODELS + 1))]
    many = several + audit
    assert len(data_of(write_report([many.save(tmp_path / "command")]))["models"]) == MOST_MODELS + 1
    of_study = replace(many, rows=many.rows.with_columns(task=pl.lit("0")))
    data = data_of(write_report([of_study.save(tmp_path / "many")]))
    assert len(data["columns"]["family"]) == MOST_MODELS + 1


def copied(audited, folder):
    for path in audited.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def _as_0_1(folder, path):
    """Write the version 0.1.0 into a table of a directory."""
    rows = pl.read_parquet(folder / path).with_columns(attnlaw_version=pl.lit("0.1.0"))
    rows.write_parquet(folder / path)
    return folder


def _audit_of_0_2(audited, folder):
    """An audit as 0.2.0 wrote it: no rows, and tables without `case`."""
    copied(audited, folder)
    (folder / "rows.parquet").unlink()
    (folder / "attnlaw.json").write_text('{"verb": "audit", "version": "0.2.0"}')
    return folder


def _study_of_0_2(audited, folder):
    (folder / "rows").mkdir()
    learn_rows().write_parquet(folder / "rows" / "rows.parquet")
    return folder


def _steps_of_0_2(audited, folder):
    pl.DataFrame({"step": [1], "model": ["m"]}).write_parquet(folder / "steps.parquet")
    return folder


OLD_LAYOUTS = {
    "audit": _audit_of_0_2,
    "study": _study_of_0_2,
    "training run": _steps_of_0_2,
    "rows of 0.1": lambda audited, folder: _as_0_1(copied(audited, folder), "rows.parquet"),
    "tables of 0.1": lambda audited, folder: _as_0_1(copied(audited, folder), "matrices.parquet"),
}


@pytest.mark.parametrize("layout", OLD_LAYOUTS)
def test_what_older_versions_wrote_is_refused_in_one_line(layout, audited, tmp_path):
    folder = OLD_LAYOUTS[layout](audited, tmp_path)
    with pytest.raises(attnlaw.InputError, match=r"attnlaw 0\.3|0\.3.* or later|expected 0\.3") as caught:
        write_report([folder])
    assert "\n" not in str(caught.value)
    assert "; " in str(caught.value)


def test_columns_that_are_missing_are_shown_as_null(audited, tmp_path):
    folder = copied(audited, tmp_path)
    fewer = pl.read_parquet(folder / "matrices.parquet").drop("expert", "effective_rank")
    fewer.write_parquet(folder / "matrices.parquet")
    columns = data_of(write_report([folder]))["columns"]
    assert set(columns["expert"]) == set(columns["effective_rank"]) == {None}


def test_a_proxy_that_a_row_lacks_is_missing_and_moves_no_other(audited, tmp_path):
    folder = copied(audited, tmp_path)
    lost, whole = "spectrum_adaptive_continuous", load(audited).summary["proxies"]
    rows = pl.read_parquet(folder / "rows.parquet").drop(f"log10_{lost}")
    rows.write_parquet(folder / "rows.parquet")
    for order in ([audited, folder], [folder, audited]):
        source = write_report(order, tmp_path / "both").read_text(encoding="utf-8")
        cells = re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td><td>([^<]*)</td>', source)
        values = {name: set(texts) for name, *texts in cells}
        assert values[BOUNDS["edelman"].label] == {f"{whole['edelman']['log10']:.4f}"}
        assert values[BOUNDS[lost].label] == {f"{whole[lost]['log10']:.4f}", "–"}


@pytest.mark.parametrize("text", ["5", "[]", "{}", "torn"])
def test_a_page_is_made_of_rows_and_not_of_the_summary(text, audited, tmp_path):
    folder = copied(audited, tmp_path)
    before = (folder / "report.html").read_bytes()
    (folder / "summary.json").write_text(text)
    assert write_report([folder]).read_bytes() == before


def test_columns_of_other_types_are_refused_in_one_line(audited, tmp_path):
    folder = copied(audited, tmp_path)
    bad = pl.read_parquet(folder / "matrices.parquet").with_columns(spectral_norm=pl.lit("<b>"))
    bad.write_parquet(folder / "matrices.parquet")
    with pytest.raises(attnlaw.InputError, match="spectral_norm is a column of type String"):
        write_report([folder])


@pytest.mark.slow
def test_half_of_the_fits_is_refused(tmp_path):
    rng = np.random.default_rng(2)
    state = {"in_proj_weight": rng.standard_normal((24, 8)), "out_proj.weight": rng.standard_normal((8, 8))}
    whole = attnlaw.audit(state, heads=2).save(tmp_path / "whole")
    assert data_of(whole / "report.html")["fits"] is not None
    for lost in ("fits", "curves"):
        (tmp_path / lost).mkdir()
        folder = copied(whole, tmp_path / lost)
        (folder / f"{lost}.parquet").unlink()
        with pytest.raises(InputError, match=rf"found no file {lost}\.parquet"):
            write_report([folder])


@pytest.mark.slow
def test_a_page_of_several_runs_names_them(tmp_path):
    result = attnlaw.learn(alpha=[0.1, 0.2])
    for name in ("a/run", "b/run", "second"):
        result.save(tmp_path / name)
    page, *drawn = write_files([tmp_path / "a/run", tmp_path / "second"], tmp_path / "both", "svg")
    assert {path.name.partition("_")[0] for path in drawn} == {"run", "second"}
    source = page.read_text()
    assert "run: What attention learns</h2>" in source
    assert "second: What attention learns</h2>" in source
    assert '"run": ["run", "run", "second", "second"]' in source
    page = write_report([tmp_path / "a/run", tmp_path / "b/run"], tmp_path / "alike")
    assert "a/run: What attention learns</h2>" in page.read_text()  # two that end alike


def test_rows_in_hand_are_drawn_as_those_that_were_written(tmp_path):
    learn = find_verb("learn")
    cases = learn.cases({"alpha": [0.1, 0.2, 0.3], "noise": 0.5})
    records = [*learn.run(cases[:2], no_progress), InputError("of no use")]
    trained = learn.simulation(alpha=[0.2, 0.3], noise=0.5, simulate=6, seeds=2)
    result = Result.collect(learn, zip(cases, records, strict=True), trained)
    result.save(tmp_path)
    hand, saved = figures_of(result), figures_of(load(tmp_path))
    assert [figure.name for figure in hand] == [figure.name for figure in saved]
    for figure, other in zip(hand, saved, strict=True):
        assert figure.draw().to_dict() == other.draw().to_dict()
        assert figure.caption_text == other.caption_text
    before = (tmp_path / "report.html").read_bytes()
    assert write_report([tmp_path]).read_bytes() == before


def test_what_is_no_number_is_not_drawn():
    learn = find_verb("learn")
    cases = learn.cases({"alpha": [0.1, 0.2, 0.3]})
    predictions = list(learn.run(cases, no_progress))
    predictions[1] = replace(predictions[1], estimation_error=Estimate(math.nan, math.nan))
    figure, *_ = figures_of(Result.collect(learn, zip(cases, predictions, strict=True)))
    (rows, *_) = values_of(figure.draw().to_dict())
    assert [row["x"] for row in rows] == [0.1, 0.3]


def test_a_page_of_several_directories_starts_with_the_answer_of_each(tmp_path):
    folders = [study_of(tmp_path / name, limit_study(tmp_path / name)) for name in ("first", "second")]
    source = write_report(folders, tmp_path / "out").read_text(encoding="utf-8")
    lines = re.findall(r'<p class="answer-line">(?:<b[^>]*>\w+</b> )?([^<]*)', source)
    assert [line.split(": ")[0] for line in lines] == ["first", "second"]
    assert all("infinite-width limit" in line for line in lines)
    assert source.index("answer-line") < source.index("Drawn from")


def test_what_is_the_same_in_all_rows_stands_below_the_answer(tmp_path):
    source = write_report([study_of(tmp_path, limit_study(tmp_path))]).read_text(encoding="utf-8")
    assert source.index("answer-line") < source.index("The same in all rows") < source.index("<figure")
