"""marimo for real: its server runs a notebook, chromium shows it, others are out of reach."""

import contextlib
import socket
import subprocess
import sys
import time

import pytest
from accessible import CHROMIUM, asking_only, open_browser

import attnlaw
from attnlaw.lab.serve import HOST, open_socket

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]
NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import attnlaw
    import attnlaw.render.terminal.console as notebook

    prediction = attnlaw.learn(alpha=0.3, noise=0.5, target_spike=6)
    prediction
    return attnlaw, notebook, prediction


@app.cell
def _(prediction):
    prediction.plot()
    return


@app.cell
def _(attnlaw):
    curve = attnlaw.learn(alpha=[0.1, 0.2, 0.4], noise=0.5)
    curve
    return (curve,)


@app.cell
def _(curve):
    curve.plot()
    return


@app.cell
def _(notebook):
    import time

    notebook.FIRST_DRAW_DELAY = 0.0
    watching = notebook.notebook_progress("work in stages")
    report = watching.__enter__()
    for done in range(3):
        report(done, 2)
    report(0, 3)
    time.sleep(0.5)  # marimo draws now and then
    report(1, 3)
    return


@app.cell
def _(notebook):
    with notebook.notebook_progress("work that ended") as watch:
        watch(1, 5)
    return
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where `marimo run` shows the notebook."""
    path = tmp_path_factory.mktemp("marimo") / "results.py"
    path.write_text(NOTEBOOK, encoding="utf-8")
    with open_socket(None) as place:
        port = place.getsockname()[1]
    words = ["run", str(path), "--headless", "--no-token", "--host", HOST, "--port", str(port)]
    server = subprocess.Popen([sys.executable, "-m", "marimo", *words], stdout=subprocess.DEVNULL)
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            break
        time.sleep(0.1)
    yield f"http://{HOST}:{port}/"
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()


def test_results_are_tables_and_charts(address, tmp_path):
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 1600})
        page.set_default_timeout(90_000)
        with asking_only(page, address):
            page.goto(address)
            page.wait_for_selector("marimo-progress[data-progress='1']")
            page.wait_for_function("document.querySelectorAll('img[src^=\"data:image/svg\"]').length === 2")
            widths = page.evaluate("[...document.querySelectorAll('img')].map((one) => one.naturalWidth)")
            words = page.inner_text("body")
            bars = page.locator("marimo-progress").evaluate_all("bars => bars.map((bar) => bar.dataset)")
            page.screenshot(path=tmp_path / "marimo.png", full_page=True)
    (bar,) = bars
    assert (bar["title"], bar["total"]) == ('"work in stages"', "3")
    assert min(widths) > 200
    for alpha, noise in ((0.3, 0.5), (0.4, 0.5)):
        spike = {"target_spike": 6} if alpha == 0.3 else {}
        error = attnlaw.learn(alpha=alpha, noise=noise, **spike).estimation_error
        assert f"{error.value:.3g}" in words  # three digits on a screen
    assert "squared Frobenius distance between the learned and the target matrix" in words
