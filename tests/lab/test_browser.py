"""The lab in a real browser (Debian's chromium), with every other machine out of reach."""

import json
import shlex
import threading

import pytest
from accessible import violations
from command.in_process import invoke
from report.test_browser import CHROMIUM

import attnlaw
import attnlaw.verbs
from attnlaw.base.settings import declared
from attnlaw.base.shown import cell
from attnlaw.lab.controls import slider_steps
from attnlaw.lab.serve import HOST, listening, server
from attnlaw.verbs.learn import Learn

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
LONG = 60_000  # milliseconds: a busy machine


@pytest.fixture(scope="module")
def served():
    """Addresses of pages of a server in this process, the toy verb among them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(attnlaw.verbs.VERBS, "coin", ("house.coin", "Toss a coin many times."))
        place = listening(None)
        begun = threading.Event()
        made = server("audit", "examples/tiny-decoder", begun.set)
        thread = threading.Thread(target=made.run, args=([place],), daemon=True)
        thread.start()
        assert begun.wait(60)
        yield lambda name: f"http://{HOST}:{place.getsockname()[1]}/{name}/"
        made.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def opened(served):
    """A page with its numbers there; a request to another machine fails the test."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'attnlaw[test]'")
    asked = []

    def guard(route):
        if route.request.url.startswith(served("")[:-2]):
            route.continue_()
        else:
            asked.append(route.request.url)
            route.abort()

    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = chromium.new_context(viewport={"width": 1400, "height": 1000})
        context.route("**/*", guard)

        def load(name):
            page = context.new_page()
            page.set_default_timeout(LONG)
            page.goto(served(name))
            page.wait_for_selector(".lab-table")
            return page

        yield load
        chromium.close()
    assert asked == []


def number(page, name, place=0):
    return page.locator(f'[data-quantity="{name}"]').nth(place).inner_text()


def wait_for(page, name, text, place=0):
    page.wait_for_function(
        "([name, text, place]) =>"
        " document.querySelectorAll(`[data-quantity='${name}']`)[place]?.innerText === text",
        arg=[name, text, place],
    )


def slider(page, name):
    return page.locator(f"[data-setting={name}] [role=slider]").first


def test_a_slider_moves_the_numbers_and_the_words_repeat_them(opened):
    page = opened("learn")
    before = attnlaw.learn(thresholds=True)
    assert number(page, "estimation_error") == cell(before.estimation_error)
    assert violations(page) == []
    drawn = page.locator("figure svg").inner_html()
    alpha = slider_steps(declared(Learn)["alpha"])
    after = attnlaw.learn(alpha=alpha[alpha.index(0.2) + 1], thresholds=True)
    slider(page, "alpha").press("ArrowRight")
    wait_for(page, "estimation_error", cell(after.estimation_error))
    assert number(page, "threshold_bayes") == cell(after.threshold_bayes)
    page.wait_for_function("(before) => document.querySelector('figure svg').innerHTML !== before", arg=drawn)

    names = {}
    exec(page.inner_text('[data-words="python"]'), names)
    assert names["found"].estimation_error == after.estimation_error
    words = shlex.split(page.inner_text('[data-words="command"]'))
    told = json.loads(invoke(*words[1:], "--json").stdout)
    assert told["quantities"]["estimation_error"]["value"] == after.estimation_error.value

    slider(page, "simulate").press("Home")
    slider(page, "seeds").press("Home")
    page.get_by_role("button", name="Start").click()
    wait_for(page, "estimation_error", cell(after.estimation_error))
    trained = attnlaw.simulate(after.problem, size=10, seeds=1)
    wait_for(page, "estimation_error", cell(trained.estimation_error), place=1)
    assert "trained students: done" in page.inner_text("body")
    page.close()


def test_no_move_is_lost_while_the_page_is_busy(opened):
    page = opened("learn")
    for name in ("alpha", "noise", "weight_decay", "target_rank"):
        slider(page, name).press("ArrowRight")
    after = attnlaw.learn(alpha=0.219, noise=0.02, weight_decay=0.12, target_rank=0.52, thresholds=True)
    wait_for(page, "estimation_error", cell(after.estimation_error))
    page.close()


def test_the_toy_verb_has_its_page_by_its_declaration(opened):
    page = opened("coin")
    assert number(page, "mean") == "0.50(5)"
    slider(page, "bias").press("End")
    wait_for(page, "mean", "1")
    slider(page, "wear").press("End")
    wait_for(page, "mean", "0")
    page.locator("[data-setting=metal] select").first.select_option("paper")
    wait_for(page, "mean", "1")
    page.locator(".lab-wear").wait_for(state="hidden")
    assert "attnlaw coin --bias 1.0 --metal paper" in page.inner_text('[data-words="command"]')
    page.close()


def test_laws_lie_over_the_spectrum_of_a_head(opened):
    page = opened("audit")
    slider(page, "layer").press("End")
    slider(page, "head").press("ArrowRight")
    spectrum = attnlaw.spectrum_at("examples/tiny-decoder", layer=3, head=1, kind="qk")
    wait_for(page, "heavy-tailed-ks", cell(attnlaw.fit_law(spectrum, "heavy-tailed").ks))
    assert number(page, "spectral_norm") == cell(float(spectrum.spectral))
    page.locator("[data-setting=power-law] [role=switch]").first.click()
    wait_for(page, "power-law-ks", cell(attnlaw.fit_law(spectrum, "power-law").ks))
    assert "heavy-tailed" in page.locator("figure svg").inner_html()
    page.set_viewport_size({"width": 390, "height": 844})
    assert violations(page) == []
    page.close()


def test_a_name_of_elsewhere_finds_nothing_here(served):
    import http.client

    place = served("learn").split("/")[2]
    for host, status in ((place, 200), ("evil.example", 400), (f"evil.example:{place.split(':')[1]}", 400)):
        link = http.client.HTTPConnection(place)
        link.request("GET", "/learn/", headers={"Host": host})
        assert link.getresponse().status == status
        link.close()
