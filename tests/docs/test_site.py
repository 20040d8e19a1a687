"""The site builds without a warning, asks nobody for anything, and has an entry for every public name."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from accessible import CHROMIUM, open_browser, violations_in_all_looks
from docs.sessions import ROOT

import attnlaw

pytestmark = pytest.mark.slow

# Links that a reader may follow; everything else would be fetched by the page itself.
FOLLOWED = {("a", "href")}
FETCHED = ("src", "srcset", "href", "poster", "data", "action")


class Addresses(HTMLParser):
    """Collects (tag, attribute, address) of whatever a page refers to, and its ids."""

    def __init__(self):
        super().__init__()
        self.found, self.ids = [], set()

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in FETCHED and value:
                self.found.append((tag, name, value))
            if name == "id":
                self.ids.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it would hide warnings from --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    parsed = {}
    for file in site.rglob("*.html"):
        parsed[file.relative_to(site).as_posix()] = page = Addresses()
        page.feed(file.read_text(encoding="utf-8"))
    return parsed


def test_no_page_fetches_from_elsewhere(pages, site):
    assert len(pages) > 20
    for name, page in pages.items():
        strangers = [
            address
            for address in page.found
            if address[:2] not in FOLLOWED and address[2].lower().startswith(("http:", "https:", "//"))
        ]
        assert strangers == [], name
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert "@import" not in text, style.name
        assert "url(http" not in text, style.name


def test_light_pictures_have_dark_copies(pages, site):
    shown = {address for page in pages.values() for _, name, address in page.found if name == "src"}
    light = {address for address in shown if address.endswith("#only-light")}
    assert len(light) > 10
    for address in light:
        dark = address.replace("-light", "-dark")
        assert dark in shown
        assert next(site.rglob(dark.rpartition("/")[2].partition("#")[0]), None)


def test_every_public_name_has_an_entry(pages):
    known = set().union(*(page.ids for page in pages.values()))
    entries = {entry.rpartition(".")[2] for entry in known if entry and entry.startswith("attnlaw.")}
    assert set(attnlaw.__all__) - {"__version__"} <= entries


def test_examples_of_docstrings_are_code(site):
    texts = [file.read_text(encoding="utf-8") for file in (site / "python").glob("*.html")]
    assert all("<blockquote>" not in text for text in texts)
    assert sum(text.count('<span class="gp">&gt;&gt;&gt; </span>') for text in texts) > 80


ELSEWHERE = {"monitor_trainer": "how-to/watch-training.md"}  # functions whose example is on another page
VERB_PAGE = "contribute/add-a-verb.md"  # runs what python/verbs.md describes


def test_every_documented_function_has_an_example():
    missing = []
    for page in sorted((ROOT / "docs" / "python").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"^::: (\S+)", text, re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            member = getattr(importlib.import_module(module), attribute)
            if not inspect.isfunction(member) or ">>>" in (inspect.getdoc(member) or ""):
                continue
            other = ELSEWHERE.get(attribute, VERB_PAGE if page.name == "verbs.md" else None)
            shown = (text if other is None else (ROOT / "docs" / other).read_text()).split("```python")[1:]
            if not any(f"{attribute}(" in block.partition("```")[0] for block in shown):
                missing.append(name)
    assert missing == []


needs_chromium = pytest.mark.skipif(
    CHROMIUM is None,
    reason="browser tests are left out: no chromium; enable them with: apt-get install chromium",
)


# The home page, the tour, and a page with wide tables, equations and code.
@needs_chromium
@pytest.mark.parametrize("page", ["index.html", "start/tour.html", "commands/learn.html"])
def test_pages_have_no_violations(site, page):
    pytest.importorskip("playwright.sync_api", reason="pip install 'attnlaw[test]'")
    with open_browser() as browser:
        # The theme's script names blocks of code, and makes those that scroll reachable.
        violations = violations_in_all_looks(browser, (site / page).as_uri(), "pre[id]")
    assert violations == {"light": [], "dark": [], "phone": []}


@needs_chromium
def test_a_reader_searches_from_the_disk_with_the_network_cut(site):
    seen = []
    with open_browser() as browser:
        context = browser.new_context(color_scheme="dark", offline=True)
        page = context.new_page()
        page.on("request", lambda request: request.url.startswith("file:") or seen.append(request.url))
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.goto((site / "how-to" / "cluster.html").as_uri())
        assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
        page.click(".md-search__input")
        page.keyboard.type("what audit prints")
        links = page.locator(".md-search-result__item a")
        links.first.wait_for()
        assert any("audit.html" in links.nth(i).get_attribute("href") for i in range(links.count()))
        page.goto((site / "commands" / "audit.html").as_uri())
        assert "tiny-decoder" in page.inner_text("article")
    assert seen == []
