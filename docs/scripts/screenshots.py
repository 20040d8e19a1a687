"""Pictures of a report, light and dark, and the attention map of a lens: docs/screenshots/*.png,
docs/figures/lens-heads.png.

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
MODEL = ROOT / "examples" / "tiny-decoder"
TEXT = "the cat sat on the mat and the cat slept"
PIXELS_PER_INCH = 130
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
        return attnlaw.audit(MODEL.relative_to(ROOT)).save(folder)


def draw_attention(folder: Path, file: Path) -> None:
    """Draw where the heads that stand out look, as the report of a lens shows it."""
    from gallery import lean

    import attnlaw
    from attnlaw.render.charts import engine

    attnlaw.lens(MODEL, text=TEXT, only="heads").save(folder, figures="svg")
    drawing = (folder / "figures" / "head_attention.svg").read_text(encoding="utf-8")
    crisp = drawing.replace("<svg ", '<svg shape-rendering="crispEdges" ', 1)  # no seams between cells
    file.write_bytes(lean(engine.vl_convert.svg_to_png(crisp, ppi=PIXELS_PER_INCH)))
    print("wrote", file)


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
        draw_attention(Path(scratch) / "lens", ROOT / "docs" / "figures" / "lens-heads.png")


if __name__ == "__main__":
    main()
