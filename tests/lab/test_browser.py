"""The lab in a real browser (Debian's chromium), with every other machine out of reach."""

import json
import re
import shlex
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from accessible import CHROMIUM, LOOKS, asking_only, open_browser, violations
from command.in_process import invoke

import attnlaw
import attnlaw.verbs
from attnlaw.analysis.audit.audit import spectrum_at
from attnlaw.analysis.fit.fit import fit_law
from attnlaw.core.estimate import format_value
from attnlaw.core.settings import setting_fields
from attnlaw.lab.controls import slider_steps
from attnlaw.lab.serve import HOST, build_server, open_socket, page_address
from attnlaw.theory.learn.simulate import simulate
from attnlaw.verbs.learn import LearnSettings

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]
TOKEN = "the-token"
FOREIGN = "evil.example"
LONG = 60_000  # milliseconds: a busy machine


@contextmanager
def serving(page, path):
    """Addresses of pages of a server in this process."""
    main = sys.modules["__main__"]  # a kernel puts its own there, and leaves it
    place = open_socket(None)
    begun = threading.Event()
    made = build_server(page, path, TOKEN, begun.set)
    thread = threading.Thread(target=made.run, args=([place],), daemon=True)
    thread.start()
    assert begun.wait(60)
    yield lambda name: page_address(place, TOKEN, name)
    made.should_exit = True
    thread.join(20)
    sys.modules["__main__"] = main
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def served():
    """A server of the lab, with the toy verb."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(attnlaw.verbs.VERBS, "coin", ("house.coin", "Toss a coin many times."))
        with serving("audit", "examples/tiny-decoder") as address:
            yield address


@pytest.fixture(scope="module")
def chromium():
    with open_browser(f"--host-resolver-rules=MAP {FOREIGN} {HOST}") as browser:
        yield browser


@pytest.fixture(scope="module")
def opened(served, chromium):
    """A page with its numbers there, of `served` or another server; a request elsewhere fails the test."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})

    def load(name, address=served):
        page = context.new_page()
        page.set_default_timeout(LONG)
        page.goto(address(name))
        page.wait_for_selector(".lab-table")
        return page

    with asking_only(context, f"http://{HOST}:"):
        yield load


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


def violations_by_look(page):
    """What axe-core finds on an open page, in the looks where it finds something."""
    broken_rules = {}
    for look, (options, asked) in LOOKS.items():
        page.set_viewport_size(options["viewport"])
        page.emulate_media(color_scheme=options["color_scheme"], reduced_motion="reduce")
        page.locator(f"body.{options['color_scheme']}").wait_for()
        page.wait_for_timeout(300)  # colours fade
        broken_rules[look] = violations(page, asked)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            f"{look}: cut at the right"
        )
    return {look: broken for look, broken in broken_rules.items() if broken}


def test_a_slider_moves_the_numbers_and_the_words_repeat_them(opened):
    page = opened("learn")
    before = attnlaw.learn(thresholds=True)
    assert number(page, "estimation_error") == format_value(before.estimation_error)
    drawn = page.locator("figure svg").first.inner_html()
    alpha = slider_steps(setting_fields(LearnSettings)["alpha"])
    after = attnlaw.learn(alpha=alpha[alpha.index(0.2) + 1], thresholds=True)
    slider(page, "alpha").press("ArrowRight")
    wait_for(page, "estimation_error", format_value(after.estimation_error))
    assert number(page, "threshold_bayes") == format_value(after.threshold_bayes)
    page.wait_for_function("(before) => document.querySelector('figure svg').innerHTML !== before", arg=drawn)
    curve = page.get_by_role("group", name="Error for each number of samples").inner_text()
    assert f"now: α = {after.row()['alpha']:g}, E = {after.estimation_error.value:.3g}" in curve
    assert "samples / d² (α)" in curve

    names = {}
    exec(page.inner_text('[data-words="python"]'), names)
    assert names["found"].estimation_error == after.estimation_error
    words = shlex.split(page.inner_text('[data-words="command"]'))
    case = json.loads(invoke(*words[1:], "--json").stdout)
    assert case["quantities"]["estimation_error"]["value"] == after.estimation_error.value

    slider(page, "simulate").press("Home")
    slider(page, "seeds").press("Home")
    page.get_by_role("button", name="Start").click()
    wait_for(page, "estimation_error", format_value(after.estimation_error))
    trained = simulate(after.record.problem, size=10, seeds=1)
    wait_for(page, "estimation_error", format_value(trained.estimation_error), place=1)
    assert "trained students: done" in page.inner_text("body")
    assert violations_by_look(page) == {}
    page.close()


def test_a_page_says_at_once_that_it_starts_and_then_that_it_computes(served, chromium):
    page = chromium.new_context().new_page()
    page.set_default_timeout(LONG)
    page.goto(served("learn"), wait_until="commit")
    line = page.locator("#lab-wait")
    line.wait_for(state="visible")
    assert line.inner_text() == "Starting the lab ..."
    assert page.locator(".lab-head").count() == 0
    page.wait_for_function("document.querySelector('#lab-wait').textContent === 'Computing ...'")
    page.wait_for_selector(".lab-table")
    line.wait_for(state="hidden")
    slow = page.locator("[data-setting=output] select").first
    slow.select_option("softmax")
    slider(page, "tokens").press("ArrowRight")
    line.wait_for(state="visible")
    assert line.inner_text() == "Computing ..."
    line.wait_for(state="hidden")
    page.context.close()


def test_no_move_is_lost_while_the_page_is_busy(opened):
    page = opened("learn")
    for name in ("alpha", "noise", "weight_decay", "target_rank"):
        slider(page, name).press("ArrowRight")
    after = attnlaw.learn(alpha=0.219, noise=0.02, weight_decay=0.12, target_rank=0.52, thresholds=True)
    wait_for(page, "estimation_error", format_value(after.estimation_error))
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
    spectrum = spectrum_at("examples/tiny-decoder", layer=3, head=1, kind="qk")
    wait_for(page, "heavy-tailed-ks", format_value(fit_law(spectrum, "heavy-tailed").ks))
    assert number(page, "spectral_norm") == format_value(float(spectrum.spectral))
    page.locator("[data-setting=power-law] [role=switch]").first.click()
    wait_for(page, "power-law-ks", format_value(fit_law(spectrum, "power-law").ks))
    assert "heavy-tailed" in page.locator("figure svg").inner_html()
    assert violations_by_look(page) == {}
    page.close()


def test_nobody_is_kept_out_of_limit(opened):
    page = opened("limit")
    assert violations_by_look(page) == {}
    page.close()


@pytest.mark.long
def test_nobody_is_kept_out_of_dynamics_and_init(opened):
    with serving("init", "examples/tiny-decoder/config.json") as address:
        for name in ("dynamics", "init"):
            page = opened(name, address)
            assert violations_by_look(page) == {}
            page.close()


def test_a_simulation_stops_by_its_button(opened):
    page = opened("learn")
    slider(page, "simulate").press("End")
    slider(page, "seeds").press("End")
    page.get_by_role("button", name="Start").click()
    progress = page.get_by_role("progressbar", name="trained students")
    progress.wait_for()
    page.get_by_role("button", name="Stop").click()
    status = page.get_by_role("status").filter(has_text="stopped")
    done, of = re.search(r"stopped after (\d+) of (\d+)", status.inner_text()).groups()
    assert int(done) < int(of)
    assert progress.count() == 0
    assert page.locator('[data-quantity="estimation_error"]').count() == 1  # the theory, and no students

    slider(page, "simulate").press("Home")
    slider(page, "seeds").press("Home")
    page.get_by_role("button", name="Start").click()
    trained = simulate(attnlaw.learn().record.problem, size=10, seeds=1)
    wait_for(page, "estimation_error", format_value(trained.estimation_error), place=1)
    page.close()


ATTACK = """async ([socket, post]) => {
  const opened = await new Promise((resolve) => {
    const line = new WebSocket(socket);
    line.onopen = () => resolve("opened");
    line.onerror = () => resolve("refused");
  });
  await fetch(post, {method: "POST", mode: "no-cors", body: "{}"});
  return opened;
}"""


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<h1>You have won</h1>")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def foreign():
    """The port of a server with a page of somebody else."""
    with ThreadingHTTPServer((HOST, 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize("name", [FOREIGN, "localhost", HOST])
@pytest.mark.parametrize("knows_token", [False, True])
def test_a_page_of_another_origin_is_refused(served, chromium, foreign, name, knows_token):
    """Even if it has learned the token. A page of the lab does the same in the same browser."""
    origin = f"http://{name}:{foreign}"
    address = served("learn") if knows_token else served("learn").replace(f"/{TOKEN}/", "/")
    socket = f"{address.replace('http:', 'ws:')}ws?session_id=s_attack"
    post = f"{address}api/kernel/set_ui_element_value"
    page = chromium.new_context().new_page()
    page.goto(origin)
    with page.expect_response(post) as response:
        assert page.evaluate(ATTACK, [socket, post]) == "refused"
    assert (response.value.status, response.value.request.all_headers()["origin"]) == (403, origin)
    page.goto(served("learn"))
    page.wait_for_selector(".lab-table", timeout=LONG)
    with page.expect_response(f"{served('learn')}api/kernel/set_ui_element_value") as response:
        own = f"{served('learn').replace('http:', 'ws:')}ws?session_id=s_own"
        assert page.evaluate(ATTACK, [own, f"{served('learn')}api/kernel/set_ui_element_value"]) == "opened"
    assert response.value.status != 403
    page.context.close()


def test_who_may_ask_the_lab(served):
    """Only its own pages, by its own names, and only who has the token."""
    import http.client

    place = served("learn").split("/")[2]
    port = place.split(":")[1]
    page, here = f"/{TOKEN}/learn/", {"Host": place}
    post = f"/{TOKEN}/learn/api/kernel/set_ui_element_value"

    def status(method, path, headers):
        link = http.client.HTTPConnection(place)
        link.request(method, path, headers=headers)
        response = link.getresponse()
        link.close()
        return response.status, response.getheader("Location")

    assert status("GET", page, here) == (200, None)
    assert status("GET", f"/{TOKEN}/", here) == (307, page.replace("learn", "audit"))
    for path in ("/", "/learn/", "/wrong/learn/", "/the-tokens/learn/", "/%ff/learn/", "//"):
        assert status("GET", path, here) == (403, None), path
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
        assert status("GET", page, {"Host": host}) == (403, None), host
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1",
        f"https://{place}",
        f"http://localhost:{port}",
    ):
        assert status("POST", post, {**here, "Origin": origin}) == (403, None), origin
    assert status("POST", post, here) == (403, None)
    assert status("POST", post, {**here, "Origin": f"http://{place}"})[0] != 403
