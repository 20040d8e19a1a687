"""marimo for real: its server runs a notebook, chromium shows it, others are out of reach."""

import threading
import time

import pytest
from report.test_browser import CHROMIUM

import attnlaw
from attnlaw.base.shown import cell
from attnlaw.lab.serve import HOST, listening

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import attnlaw
    import attnlaw.base.progress as progress

    prediction = attnlaw.learn(alpha=0.3, noise=0.5, target_spike=6)
    prediction
    return attnlaw, prediction, progress


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
def _(progress):
    progress.WAIT = 0.0
    watch = progress.watched("work")
    watch(1, 3)
    return
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    import marimo
    import uvicorn

    path = tmp_path_factory.mktemp("marimo") / "results.py"
    path.write_text(NOTEBOOK, encoding="utf-8")
    app = marimo.create_asgi_app(quiet=True).with_app(path="/nb", root=str(path)).build()
    place = listening(None)
    made = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=made.run, args=([place],), daemon=True)
    thread.start()
    while not made.started:
        time.sleep(0.05)
    yield f"http://{HOST}:{place.getsockname()[1]}/"
    made.should_exit = True
    thread.join(20)


def test_results_are_tables_and_charts(address, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    asked = []

    def guard(route):
        if route.request.url.startswith(address):
            route.continue_()
        else:
            asked.append(route.request.url)
            route.abort()

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1600})
        page.set_default_timeout(90_000)
        page.route("**/*", guard)
        page.goto(f"{address}nb/")
        page.wait_for_selector("text=1 of 3")
        page.wait_for_function("document.querySelectorAll('marimo-vega, .vega-embed, svg.marks').length >= 2")
        page.wait_for_timeout(1500)
        words = page.inner_text("body")
        bar = page.locator("progress").first.evaluate("one => [one.value, one.max]")
        page.screenshot(path=tmp_path / "marimo.png", full_page=True)
        browser.close()
    assert asked == []
    assert bar == [1, 3]
    for alpha, noise in ((0.3, 0.5), (0.4, 0.5)):
        spike = {"target_spike": 6} if alpha == 0.3 else {}
        assert cell(attnlaw.learn(alpha=alpha, noise=noise, **spike).estimation_error) in words
    assert "|Ŝ − S*|²/d" in words
