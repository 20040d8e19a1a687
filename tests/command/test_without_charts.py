"""Without the extra `charts`, commands do their main job, and one line says how to get figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command.in_process import invoke

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.render.charts import packages
from attnlaw.verbs import VERBS, find_verb
from attnlaw.verbs.views import find_part

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "examples" / "tiny-decoder"
INSTALL = "pip install 'attnlaw[charts]'"
LEARN = ("learn", "--alpha", "0.1:0.5:3")
NOTE = "This page has no figures"


@pytest.fixture(params=packages.PACKAGES)
def missing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The package that cannot be imported: each of the extra in turn."""
    monkeypatch.setitem(sys.modules, request.param, None)
    packages.warn_without_packages.cache_clear()
    return request.param


def lines_about_figures(text: str) -> list[str]:
    return [line for line in text.splitlines() if "figures" in line]


@pytest.mark.usefixtures("missing")
def test_the_screen_and_json_are_complete() -> None:
    assert "No problems found" in invoke("audit", TINY, "--layers", "0").stdout
    ended = invoke("audit", TINY, "--layers", "0", "--json")
    assert json.loads(ended.stdout)["verb"] == "audit"
    assert ended.stderr == ""
    assert "Gate passed" in invoke("check", TINY).stdout


@pytest.mark.parametrize("words", [("audit", TINY), ("fit", TINY, "--only", "qk"), LEARN])
def test_out_writes_rows_and_a_page_and_warns_once(
    words: tuple[object, ...], tmp_path: Path, missing: str
) -> None:
    ended = invoke(*words, "--out", tmp_path / "results")
    (warning,) = lines_about_figures(ended.stderr)
    assert warning.startswith(f"attnlaw: warning: the page has no figures, because {missing} is not")
    assert INSTALL in warning
    assert attnlaw.load(tmp_path / "results").rows.height > 0
    page = (tmp_path / "results" / "report.html").read_text(encoding="utf-8")
    assert NOTE in page
    assert "pip install &#39;attnlaw[charts]&#39;" in page
    assert "<figcaption>" not in page


@pytest.mark.parametrize("option", [("--figure", "curve.pdf"), ("--out", "results", "--figures", "svg")])
def test_a_figure_is_refused_before_the_work(
    option: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("the refusal comes before the work")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attnlaw.command.execute._run_cases", work)
    for words in (LEARN, ("audit", TINY)):
        ended = invoke(*words, *option, status=1)
        assert ended.stderr == f"attnlaw: {option[-2]} needs {missing}; install it with: {INSTALL}\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("missing")
def test_a_study_runs_exports_and_gets_a_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, out = tmp_path / "study.toml", tmp_path / "rows"
    file.write_text('verb = "learn"\n[grid]\nalpha = [0.1, 0.2, 0.3]\n')
    refused = invoke("study", "run", file, "--out", out, "--figures", "pdf", status=1).stderr
    assert INSTALL in refused
    assert refused.count("\n") == 1
    assert not out.exists()
    invoke("study", "run", file, "--out", out)
    assert "wrote" in invoke("study", "export", file, "--out", out).stderr
    assert not (out / "report.html").exists()
    # One result, then two on one page.
    assert caplog.messages == []
    invoke("report", out)
    (warning,) = caplog.messages
    assert INSTALL in warning
    assert NOTE in (out / "report.html").read_text(encoding="utf-8")
    invoke(*LEARN, "--out", tmp_path / "curve")
    invoke("report", out, tmp_path / "curve", "--out", tmp_path / "both")
    both = (tmp_path / "both" / "report.html").read_text(encoding="utf-8")
    assert NOTE in both
    assert "3 rows in rows" in both
    assert "Drawn from" not in both
    assert INSTALL in invoke("report", out, "--figures", "pdf", status=1).stderr


@pytest.mark.usefixtures("missing")
def test_reproduce_compares_and_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    invoke("reproduce", "limit-low-rank", "--quick", "--out", tmp_path / "paper")
    assert len(caplog.messages) == 1
    folder = tmp_path / "paper" / "limit-low-rank"
    assert NOTE in (folder / "report.html").read_text(encoding="utf-8")
    assert not (folder / "figures").exists()


def test_the_lab_names_its_extra(missing: str) -> None:
    ended = invoke("lab", "learn", "--no-browser", status=1)
    assert ended.stderr == f"attnlaw: the lab needs {missing}; install it with: pip install 'attnlaw[lab]'\n"


def test_python_names_the_extra(tmp_path: Path, missing: str) -> None:
    curve = attnlaw.learn(alpha=[0.1, 0.2])
    for draw in (curve.plot, lambda: curve.save(tmp_path / "curve", figures="pdf")):
        with pytest.raises(InputError) as refused:
            draw()
        assert str(refused.value).endswith(f" needs {missing}; install it with: {INSTALL}")
    assert not (tmp_path / "curve").exists()
    assert "<table" in curve._repr_html_()


@pytest.mark.usefixtures("missing")
def test_every_verb_lists_its_figures_without_the_packages() -> None:
    for name in VERBS:
        verb = find_verb(name)
        module = find_part(verb, "charts")
        assert all(callable(getattr(module, chart)) for chart in verb.charts)


def test_only_one_file_imports_altair() -> None:
    files = (ROOT / "src" / "attnlaw").rglob("*.py")
    direct = [file.name for file in files if "import altair" in file.read_text(encoding="utf-8")]
    assert direct == ["packages.py"]
