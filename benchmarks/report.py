"""A report of 32 layers and 32 heads: its size, what writing it costs, and when it answers in chromium.

Limits: 15 MB, 10 CPU seconds, and 3 s of a wall clock (median of five loads of the page from disk, in a new
browser context each).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
from claims import Claims

import attnlaw
from attnlaw.core.quantity import column_kinds
from attnlaw.core.result import Result
from attnlaw.core.tables import to_frame, to_schema
from attnlaw.theory.bounds import BOUNDS
from attnlaw.verbs.audit import VERB
from attnlaw.verbs.views import figures_of, page_of

DEPTH, HEADS, HEAD_WIDTH, HIDDEN, INNER = 32, 32, 128, 4096, 11008
MEGABYTES, WRITTEN, SECONDS, LOADS = 15.0, 10.0, 3.0, 5


SCHEMAS = {spec.name: to_schema(column_kinds(spec.columns)) for spec in VERB.tables}


def audit() -> Result:
    """An audit of LLaMA-7B's shapes with made-up spectra, laws fitted to all of them."""
    rng = np.random.default_rng(0)
    places = [(layer, kind, head) for layer in range(DEPTH) for kind in ("qk", "vo") for head in range(HEADS)]
    places += [(layer, kind, None) for layer in range(DEPTH) for kind in ("ffn_in", "ffn_gate", "ffn_out")]
    matrices, spectra, fits, curves = [], [], [], []
    for layer, kind, head in places:
        count = HIDDEN if head is None else HEAD_WIDTH
        values = np.sort(rng.lognormal(0.0, 1.0, count))[::-1]
        place = {"model": "7B", "layer": layer, "head": head, "kind": kind}
        matrices.append(
            {
                **place,
                "family": "llama",
                "tensors": [f"model.layers.{layer}.self_attn.{kind}.weight"],
                "rows": HIDDEN,
                "cols": INNER if head is None else HIDDEN,
                **{
                    name: float(rng.random())
                    for name, kind_ in SCHEMAS["matrices"].items()
                    if kind_ == pl.Float64()
                },
                "log10_curve": rng.random(11).tolist(),
            }
        )
        spectra.append({**place, "singular_values": values.tolist()})
        numbers = {
            name: float(rng.random()) for name, kind_ in SCHEMAS["fits"].items() if kind_ == pl.Float64()
        }
        fits.append({**place, **numbers, "law": "heavy-tailed", "null_shape": f"{count}", "outliers": 3})
        curve = {"x": np.linspace(0, 5, 64).tolist(), "density": rng.random(64).tolist()}
        curves.append({**place, "curve": "law", "law": "heavy-tailed", **curve})
    for count in (HIDDEN, HEAD_WIDTH):
        curve = {"x": np.linspace(0, 2, 64).tolist(), "density": rng.random(64).tolist()}
        curves.append({"curve": "null", "null_shape": f"{count}", "law": "random", **curve})
    layers = [{"model": "7B", "layer": layer, "log10_alpha": 2.0 * (DEPTH - layer)} for layer in range(DEPTH)]
    shares = dict.fromkeys(("share_qk", "share_vo", "share_ffn"), 0.33)
    tables = {"matrices": matrices, "spectra": spectra, "fits": fits, "curves": curves}
    tables["layers"] = [layer | shares for layer in layers]
    made = {
        name: to_frame(lines, SCHEMAS[name]).with_columns(case=pl.lit(0)) for name, lines in tables.items()
    }
    return Result(VERB, _row(len(matrices)), made)


def _row(count: int) -> pl.DataFrame:
    decoder = Path(__file__).resolve().parents[1] / "examples" / "tiny-decoder"
    sizes = {"depth": DEPTH, "hidden_size": HIDDEN, "head_count": HEADS, "matrix_count": count}
    values = dict.fromkeys((f"log10_{name}" for name in BOUNDS), 8.0) | {"value_of_adaptivity": 1.5} | sizes
    texts = {"model": "7B", "family": "llama", "meaning": "made-up rows"}
    row = attnlaw.audit(decoder, only="qk").row() | values | texts | {"rank_count": False}
    return to_frame([row], to_schema(VERB.schema))


def seconds_to_interactive(page: Path, chromium: str) -> list[float]:
    """From the navigation's start to a page whose every part is drawn and answers a click."""
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(LOADS):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            tab = context.new_page()
            start = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("html[data-ready]", state="attached")
            tab.locator(".cell").nth(500).click()
            times.append(time.perf_counter() - start)
            context.close()
        browser.close()
    return times


def main() -> int:
    result = audit()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        start = time.process_time()
        page.write_text(page_of(result, figures_of(result)), encoding="utf-8")
        written = time.process_time() - start
        megabytes = page.stat().st_size / 1e6
        claims = Claims()
        task = f"report of {result.matrices.height} matrices (32 layers, 32 heads)"
        claims.add(f"{task}, MB", f"{megabytes:.1f} MB", "no peer", megabytes, MEGABYTES, least=False)
        claims.add(
            f"{task}, CPU seconds to write it", f"{written:.1f} s", "no peer", written, WRITTEN, least=False
        )
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        if chromium is None:
            print("time to interactive: left out, no chromium; enable it with: apt-get install chromium")
            return claims.finish()
        took = median(seconds_to_interactive(page, chromium))
        claims.add(f"{task}, seconds to interactive", "", "no peer", took, SECONDS, least=False)
        return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
