"""Pictures of a report: light, dark and on a phone, as docs/screenshots/*.png.

    python docs/scripts/screenshots.py [DIR]

DIR is what `attnlaw audit ... --out DIR` wrote; without it two real checkpoints are audited, a chemistry BERT
before and after its fine-tuning (fetched once from PyPI). Needs chromium and the `test` extra.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAIR = ("rxnfp-pretrained", "rxnfp-finetuned")
# Name: size of the window, theme, section, quantity, kind of matrix.
SHOTS = {
    "report-light": ((1280, 940), "light", "heads", "spectral_norm", "QK"),
    "report-dark": ((1280, 940), "dark", "heads", "law", "VO"),
    "report-summary": ((1280, 860), "light", "summary", "spectral_norm", "QK"),
    "report-phone": ((390, 844), "light", "detail", "spectral_norm", "QK"),
}


def audited_pair(folder: Path) -> Path:
    """Audit the two checkpoints and save them side by side."""
    import attnlaw

    sys.path.insert(0, str(ROOT / "tests"))
    from real_checkpoints import fetch

    before, after = (attnlaw.audit(fetch(name), name=name) for name in PAIR)
    return (before + after).save(folder)


def take(page: Path, out: Path) -> None:
    """One picture per entry of SHOTS."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, ((width, height), theme, section, quantity, kind) in SHOTS.items():
            tab = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme=theme,
                device_scale_factor=1.5,
                reduced_motion="reduce",
            )
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready]", state="attached")
            tab.select_option("#quantity", quantity)
            tab.click(f"[data-kind={kind}]")
            tab.evaluate(f"document.getElementById('{section}').scrollIntoView()")
            tab.screenshot(path=out / f"{name}.png")
            print("wrote", out / f"{name}.png")
            tab.close()
        browser.close()


def main() -> None:
    out = ROOT / "docs" / "screenshots"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else audited_pair(Path(scratch))
        take(folder / "report.html", out)


if __name__ == "__main__":
    main()
