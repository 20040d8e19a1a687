"""Jupyter for real: a kernel runs the cells, nbconvert makes the page, chromium shows it, offline."""

import re
from pathlib import Path
from types import SimpleNamespace

import nbclient
import nbformat
import pytest
from accessible import CHROMIUM, open_browser
from docs.sessions import blocks, link_models
from notebooks.cells import notebook_of
from real_checkpoints import Unavailable

import attnlaw
import attnlaw.verbs.views
from attnlaw.core.progress import no_progress
from attnlaw.render.terminal import console as notebook

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SLOW = """
import attnlaw.render.terminal.console as shown
shown.FIRST_DRAW_DELAY = shown.REDRAW_INTERVAL = 0.0
with shown.notebook_progress("work <b>") as report:
    for done in range(4):
        report(done, 3)
"""
UNFINISHED = """
watching = shown.notebook_progress("work <b>")
report = watching.__enter__()
report(1, 3)
report(2, 3)
"""


def execute(notebook, folder):
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()


@pytest.fixture(scope="module")
def executed():
    whole = notebook_of((ROOT / "examples/notebooks/results.py").read_text(encoding="utf-8"))
    whole.cells += [nbformat.v4.new_code_cell(SLOW), nbformat.v4.new_code_cell(UNFINISHED)]
    execute(whole, ROOT)
    return whole


def last(executed, number):
    """The last output of a cell: progress may stand before it."""
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    return cells[number].outputs[-1]


def test_a_result_is_a_table_and_a_line(executed):
    output = last(executed, 0)
    same = attnlaw.learn(alpha=0.3, noise=0.5, target_spike=6)
    assert output.data["text/html"] == same._repr_html_()
    assert output.data["text/plain"] == repr(same)
    assert "<table" in last(executed, 4).data["text/html"]


@pytest.mark.parametrize(("cell", "words"), [(1, "eigenvalue"), (2, "samples / d²"), (5, "layer")])
def test_a_chart_is_a_drawing_and_no_script(executed, cell, words):
    output = last(executed, cell)
    assert words in output.data["image/svg+xml"]
    assert "text/html" not in output.data


def test_progress_is_one_place_that_changes_and_ends_empty(executed):
    output = last(executed, 6)  # further drawings replaced the first
    assert output.data["text/html"] == ""
    assert output.output_type == "display_data"


def test_progress_is_the_bar_of_rich(executed):
    (output,) = [cell for cell in executed.cells if cell.cell_type == "code"][7].outputs
    words = re.sub(r"\x1b\[[0-9;]*m", "", output.data["text/plain"])
    assert re.fullmatch(r"work <b> [━╸╺]+ 2/3 about \d:\d\d:\d\d left\n", words)
    assert "work &lt;b&gt; " in output.data["text/html"]


def test_progress_waits_draws_now_and_then_and_takes_itself_away(monkeypatch):
    now, drawn = [0.0], []
    monkeypatch.setattr(notebook.time, "monotonic", lambda: now[0])
    place = SimpleNamespace(update=drawn.append)
    display = SimpleNamespace(HTML=str, display=lambda bar, display_id: drawn.append(bar) or place)
    with notebook._jupyter_progress("work", display) as report:
        for second, done in ((0.1, 1), (0.6, 2), (0.7, 3), (0.9, 4), (1.0, 9)):
            now[0] = second
            report(done, 9)
    bar, again, removed = drawn
    assert bar is again
    assert removed == ""


def test_without_a_notebook_nothing_is_shown():
    with attnlaw.verbs.views.progress("learn") as report:
        assert report is no_progress


def test_the_page_of_the_notebook_needs_no_network(executed, tmp_path):
    if CHROMIUM is None:
        pytest.skip("no chromium")
    from nbconvert import HTMLExporter

    page = tmp_path / "results.html"
    exporter = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="")
    page.write_text(exporter.from_notebook_node(executed)[0], encoding="utf-8")
    with open_browser() as browser:
        context = browser.new_context(viewport={"width": 1000, "height": 1400})
        context.set_offline(True)
        tab = context.new_page()
        tab.goto(page.as_uri())
        drawn = [box.bounding_box() for box in tab.locator(".jp-OutputArea svg, .jp-RenderedSVG img").all()]
        words = tab.inner_text("body")
        tab.screenshot(path=tmp_path / "results.png", full_page=True)
    assert len(drawn) == 3
    assert all(box["width"] > 200 and box["height"] > 100 for box in drawn)
    assert "Error" not in words
    assert "What attention learns" in words


def test_the_tour_shows_what_its_page_prints(tmp_path):
    page = (ROOT / "docs/start/tour.md").read_text(encoding="utf-8")
    try:
        for block in blocks(page):
            link_models(block, tmp_path)
    except Unavailable as error:
        pytest.skip(str(error))
    tour = notebook_of((ROOT / "examples/notebooks/tour.py").read_text(encoding="utf-8"))
    execute(tour, tmp_path)

    cells = [cell for cell in tour.cells if cell.cell_type == "code"]
    *others, trained, curves = [cell.outputs[-1] for cell in cells]
    audit, heads, quantised, change, changed_heads, gate = [output.data for output in others]
    for drawing in (heads, changed_heads, curves.data):
        assert "image/svg+xml" in drawing
    shown = {
        "No problems found (28 checks).": audit,
        "Trained: 120 of 120 weight matrices": audit,
        "Trained: 628 of 630 weight matrices": quantised,
        "Dense update in all 72 matrices": change,
        "14 of 88 rows hold": gate,
    }
    for words, data in shown.items():
        assert words in page
        assert words in data["text/html"]
    assert trained.text == "theory 0.3652, trained 0.365 ± 0.020\n"
