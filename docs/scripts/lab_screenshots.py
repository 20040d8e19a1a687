"""Pictures of the lab and of a notebook, as docs/screenshots/*.png.

    python docs/scripts/lab_screenshots.py

The lab's page of `learn` as it opens, and after sliders moved with trained students beside the theory; its
page of an audit; and examples/notebooks/results.py as Jupyter shows it. Needs chromium and the `test` extra.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "screenshots"
NOTEBOOK = ROOT / "examples" / "notebooks" / "results.py"
MODEL = "examples/tiny-decoder"


def press(page: Any, name: str, key: str, times: int) -> None:
    """Move a slider, each step once the one before is drawn."""
    slider = page.locator(f"[data-setting={name}] [role=slider]").first
    slider.wait_for()  # one behind a switch appears with it
    for _ in range(times):
        before = slider.get_attribute("aria-valuenow")
        slider.press(key)
        while slider.get_attribute("aria-valuenow") == before:
            page.wait_for_timeout(20)


def wait_for_words(page: Any, *words: str) -> None:
    """Wait until the page's command has some words."""
    for word in words:
        page.wait_for_function(
            "(word) => document.querySelector('[data-words=\"command\"]')?.innerText.includes(word)", arg=word
        )


def lab(browser: Any) -> None:
    """The pages of the lab, from a server in a thread."""
    from attnlaw.lab.serve import build_server, open_socket, page_address

    place, token, begun = open_socket(None), "example", threading.Event()
    made = build_server("audit", MODEL, token, begun.set)
    thread = threading.Thread(target=made.run, args=([place],), daemon=True)
    thread.start()
    begun.wait()
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(120_000)
    page.goto(page_address(place, token, "learn"))
    page.wait_for_selector(".lab-table")
    page.wait_for_timeout(2000)
    shot(page, "lab-learn")
    press(page, "alpha", "ArrowRight", 5)
    press(page, "noise", "ArrowRight", 25)
    page.locator("[data-setting=target_spike] [role=switch]").first.click()
    press(page, "target_spike", "ArrowRight", 7)
    wait_for_words(page, "--alpha 0.317", "--noise 0.5", "--target-spike 6.0")
    page.get_by_role("button", name="Start").click()
    wait_for_words(page, "--simulate 40")
    page.wait_for_timeout(2000)
    print(page.inner_text('[data-words="command"]'))
    page.locator(".lab-head").scroll_into_view_if_needed()
    shot(page, "lab-learn-moved")
    page.goto(page_address(place, token, "audit"))
    page.wait_for_selector(".lab-table")
    press(page, "layer", "ArrowRight", 2)
    page.wait_for_timeout(4000)
    shot(page, "lab-audit")
    page.close()
    made.should_exit = True
    thread.join()


def notebook(browser: Any) -> None:
    """The notebook, run by a kernel and made a page by nbconvert."""
    import nbclient
    from nbconvert import HTMLExporter

    sys.path.insert(0, str(ROOT / "tests"))
    from notebooks.cells import notebook_of

    cells = notebook_of(NOTEBOOK.read_text(encoding="utf-8"))
    nbclient.NotebookClient(cells, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.html"
        exporter = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="")
        path.write_text(exporter.from_notebook_node(cells)[0], encoding="utf-8")
        page = browser.new_page(viewport={"width": 900, "height": 1400})
        page.goto(path.as_uri())
        page.screenshot(path=OUT / "notebook.png", full_page=True)
        page.close()


def shot(page: Any, name: str) -> None:
    page.screenshot(path=OUT / f"{name}.png")


def main() -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for part in (notebook, lab):
            part(browser)
        browser.close()


if __name__ == "__main__":
    main()
