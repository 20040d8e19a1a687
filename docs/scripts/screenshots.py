"""Pictures of a report, light and dark, as docs/screenshots/*.png.

    python docs/scripts/screenshots.py [DIR]

DIR is what `attnlaw audit ... --out DIR` wrote. Without it, the script audits examples/tiny-decoder, the
model of the README and of the first pages. Needs chromium and the `test` extra.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = "examples/tiny-decoder"
# Name: size of the window and theme.
SHOTS = {
    "report-light": ((1280, 1385), "light"),
    "report-dark": ((1280, 1385), "dark"),
    "report-summary": ((1280, 860), "light"),
}


def audit_model(folder: Path) -> Path:
    """Audit the small decoder and save the result."""
    import attnlaw

    with contextlib.chdir(ROOT):
        return attnlaw.audit(MODEL).save(folder)


def take(page: Path, out: Path) -> None:
    """Take one picture of the top of the page for each entry of SHOTS."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, ((width, height), theme) in SHOTS.items():
            tab = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme=theme,
                device_scale_factor=1.5,
                reduced_motion="reduce",
            )
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]", state="attached")
            # The comparison with other models would hide the map of heads.
            if name != "report-summary":
                tab.evaluate("document.querySelectorAll('details').forEach(part => part.open = false)")
            tab.screenshot(path=out / f"{name}.png")
            print("wrote", out / f"{name}.png")
            tab.close()
        browser.close()


def main() -> None:
    out = ROOT / "docs" / "screenshots"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else audit_model(Path(scratch))
        take(folder / "report.html", out)


if __name__ == "__main__":
    main()
