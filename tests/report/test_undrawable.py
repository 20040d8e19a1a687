"""Figures that cannot be drawn, and names that would end the drawing engine: the rest is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from report.charts_of import named
from trust.command import GIGABYTE, run

import attnlaw
from attnlaw.core.child_process import ChildProcess
from attnlaw.core.errors import InputError
from attnlaw.core.result import Result
from attnlaw.render.charts import style
from attnlaw.render.charts.encodings import inline_data
from attnlaw.render.charts.paper import chart_bytes
from attnlaw.render.charts.style import inline_svg
from attnlaw.report import write_report
from attnlaw.verbs import views

MODEL = Path(__file__).parents[2] / "examples" / "tiny-decoder"
# What XML cannot hold, and what is drawn in its place.
CONTROLS = {"\0": "␀", "\x01": "␁", "\b": "␈", "\v": "␋", "\f": "␌", "\x0e": "␎", "\x1b": "␛", "\x1f": "␟"}
CONTROLS |= {"\ufffe": "\ufffd", "\uffff": "\ufffd"}


@pytest.fixture(scope="module", name="result")
def _result() -> Result:
    return attnlaw.learn(alpha=[0.2, 0.5])


@pytest.fixture(name="broken")
def _broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drawing engine that ends its process."""
    engine = tmp_path / "engine.py"
    engine.write_text("import os\ndef compile_to_vega(spec):\n    os.abort()\n")
    style._compile_outline.cache_clear()
    monkeypatch.setattr(style, "ENGINE", ChildProcess(engine, seconds=60))


def chart_of(text: str) -> Any:
    """A chart that has a text in its data, its legend, its title and the title of an axis."""
    colours = alt.Color("name:N", scale=alt.Scale(domain=[text], range=["#000000"]))
    return (
        alt.Chart(inline_data([{"name": text, "x": 1, "back": "\\u001b\n"}]), title=text)
        .mark_point()
        .encode(x=alt.X("x:Q", title=text), y="name:N", color=colours)
    )


@pytest.mark.parametrize("char", CONTROLS, ids=ascii)
def test_control_characters_are_written_out(char: str) -> None:
    svg = inline_svg(chart_of(f"a{char}b"), "chart")
    assert re.findall(r">(a[^<]*b)\s?</text>", svg) == [f"a{CONTROLS[char]}b"] * 4


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_papers_have_them_too(ending: str, tmp_path: Path) -> None:
    text = "a" + "".join(CONTROLS)
    assert len(chart_bytes(chart_of(text), tmp_path / f"figure.{ending}")) > 1000


def test_other_texts_are_drawn_as_they_are() -> None:
    text = "\\u001b 'é' \"q\" \U0001f600 \\"
    assert style.without_controls({"title": text, "data": {"values": json.dumps(text)}}) == {
        "title": text,
        "data": {"values": json.dumps(text)},
    }


def test_an_engine_that_ends_is_a_warning(
    broken: None, result: Result, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = result.save(tmp_path / "out", figures="pdf")
    assert attnlaw.load(folder).rows.equals(result.rows)
    page = (folder / "report.html").read_text()
    assert "figure: cannot be drawn (the process that draws ended with signal 6); to draw it later" in page
    on_page, in_files = caplog.messages
    reason = "cannot be drawn (the process that draws ended with signal 6); to draw it later from saved"
    assert on_page.startswith(f"attnlaw: warning: figure learning: {reason}")
    assert in_files.startswith(f"attnlaw: warning: figures {', '.join(named(result))}: {reason}")
    assert not (folder / "figures").exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_one_figure_that_was_asked_for_is_an_error(broken: None, result: Result, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^figure: cannot be drawn \(the process that draws ended with signal 6"
    ):
        chart_bytes(result.plot(), tmp_path / "figure.pdf")


def test_rows_are_saved_before_anything_is_drawn(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no page of an earlier result is left beside them."""
    folder = attnlaw.learn(alpha=0.3).save(tmp_path)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(views, "figures_of", stop)
    with pytest.raises(KeyboardInterrupt):
        result.save(folder)
    assert attnlaw.load(folder).rows.equals(result.rows)
    assert not (folder / "report.html").exists()


def test_linked_figures_are_refused(result: Result, tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", result.save(tmp_path / "out")
    victim.mkdir()
    (folder / "figures").symlink_to(victim)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for write in (lambda: write_report([folder], figures="svg"), lambda: result.save(folder, figures="svg")):
        with pytest.raises(
            InputError,
            match=f"figures: this directory is a link to {victim}; remove the link, or give another",
        ):
            write()
    assert not list(victim.iterdir())
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("gigabytes", [8, 2])
def test_an_address_limit_costs_only_the_figures(gigabytes: int, tmp_path: Path) -> None:
    words = ("audit", MODEL, "--no-laws", "--out", "out")
    outcome = run(*words, folder=tmp_path, memory=gigabytes * GIGABYTE)
    assert outcome.status == 0, outcome.errors
    *warnings, last = outcome.refusals()
    assert last == "wrote out/report.html and its tables"
    assert warnings
    for warning in warnings:
        assert "cannot be drawn (the process that draws ran out of memory)" in warning
        assert "`ulimit -v`" in warning
    (tmp_path / "again").mkdir()
    drawn = run("report", "out", "--out", "again", folder=tmp_path, memory=None)
    assert (drawn.status, drawn.errors) == (0, "wrote again/report.html\n")
