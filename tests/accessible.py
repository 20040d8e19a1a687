"""axe-core on pages in a real browser: what keeps a reader with a screen reader, a keyboard or weak eyes out.

`axe-playwright-python` ships axe-core inside its wheel, so that no network is asked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
# How a page is looked at, and which rules of axe-core are asked: a dark theme changes colours and nothing
# else, the width of a phone everything but colours.
CONTRAST = "color-contrast"
LOOKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "light": ({"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}, {}),
    "dark": ({"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"}, {"runOnly": [CONTRAST]}),
    "phone": (
        {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
        {"rules": {CONTRAST: {"enabled": False}}},
    ),
}


@contextmanager
def open_browser(*switches: str) -> Iterator[Any]:
    """chromium, closed at the end."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'attnlaw[test]'")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *switches])
        yield browser
        browser.close()


@contextmanager
def asking_only(place: Any, address: str) -> Iterator[None]:
    """A page, or a context, that reaches what begins with an address; a request elsewhere fails the test."""
    asked = []

    def guard(route: Any) -> None:
        if route.request.url.startswith(address):
            route.continue_()
        else:
            asked.append(route.request.url)
            route.abort()

    place.route("**/*", guard)
    yield
    assert asked == []


def violations(page: Any, asked: Mapping[str, Any] | None = None) -> list[str]:
    """What axe-core finds on a page that is loaded: the rule, and the first place that breaks it."""
    source = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page.evaluate(f"{source}; undefined")  # past the page's policy, which allows no script but its own
    report = page.evaluate(
        "(asked) => axe.run(document, asked)", {"resultTypes": ["violations"], **(asked or {})}
    )
    return [
        f"{rule['id']} ({rule['help']}): {len(rule['nodes'])}, such as {rule['nodes'][0]['html'][:200]}"
        for rule in report["violations"]
    ]


def violations_in_all_looks(browser: Any, address: str, ready: str = "body") -> dict[str, list[str]]:
    """What axe-core finds on the page of an address, with the network cut, once `ready` is there."""
    broken_rules = {}
    for look, (options, asked) in LOOKS.items():
        context = browser.new_context(offline=True, reduced_motion="reduce", **options)
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector(ready, state="attached")
        broken_rules[look] = violations(page, asked)
        context.close()
    return broken_rules
