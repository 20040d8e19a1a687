"""The page of a comparison: what it says without a script, and in a browser with the network cut."""

import re
import shutil

import numpy as np
import pytest
from accessible import CHROMIUM, open_browser
from checkpoints.small import bert_weights
from markupsafe import escape

import attnlaw
from attnlaw.report import write_report

HOSTILE = '<img src=x onerror="document.title=1"></script>&amp;'
WIDTH, HEADS = 24, 4


def weights(seed):
    rng = np.random.default_rng(seed)
    state = bert_weights(rng, 3, WIDTH)
    return state | {HOSTILE: rng.standard_normal(3)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A base against a model that moved a little everywhere, and most in one head."""
    folder = tmp_path_factory.mktemp("page")
    base, noise = weights(0), weights(1)
    model = {name: tensor + 0.1 * noise[name] for name, tensor in base.items()}
    value = "bert.encoder.layer.2.attention.self.value.weight"
    model[value][6:12] += 2 * noise[value][6:12]  # head 1
    comparison = attnlaw.diff(base, model, heads=HEADS, name=HOSTILE, jobs=1)
    comparison.save(folder)
    return folder, comparison


def test_the_verdict_heads_the_page_and_names_are_escaped(saved):
    folder, comparison = saved
    text = (folder / "report.html").read_text()
    first = str(escape(comparison.verdict.partition(". ")[0]))
    titles = ["Heads and matrices", "Which layers changed", "Stored tensors that changed most"]
    places = [f">{words}" for words in (first, *(f"{title}</h" for title in titles))]
    assert [text.index(part) for part in places] == sorted(text.index(part) for part in places)
    assert "<img" not in text
    assert "&lt;img src=x" in text


def test_the_page_is_written_again_from_its_rows(saved, tmp_path):
    folder, _ = saved
    again = write_report([folder], out=tmp_path)
    assert again.read_bytes() == (folder / "report.html").read_bytes()


def test_damaged_rows_are_one_line(saved, tmp_path):
    folder, _ = saved
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "diff.parquet").write_bytes(b"no table")
    with pytest.raises(attnlaw.InputError, match=r"diff\.parquet: cannot be read"):
        write_report([copy])


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("browser tests are left out: no chromium; enable them with: apt-get install chromium")
    with open_browser() as chromium:
        yield chromium


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_the_largest_update_is_chosen_first_and_another_by_a_click(browser, saved, width):
    folder, comparison = saved
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    page, messages = context.new_page(), []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto((folder / "report.html").as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.inner_text("#detail-title").strip() == "Layer 2 · head 1 · VO"
    assert "noise of the same size" in page.inner_text("#spectrum")
    before = page.locator("#spectrum svg[role=img]").inner_html()
    page.locator(".grid .cell").nth(0).click()
    assert page.inner_text("#detail-title").strip() == "Layer 0 · head 0 · VO"
    assert page.locator("#spectrum svg[role=img]").inner_html() != before
    page.select_option("#quantity", "rank")
    assert "above rounding errors of the file" in page.inner_text("#map-caption")
    sizes = [float(text) for text in page.locator("#rows tbody tr td:nth-child(4)").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == pytest.approx(comparison.diff["size"].max(), rel=1e-3)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title() != "1"
    assert messages == []
    context.close()
    assert re.search("layer 2 VO head 1", comparison.worst_map)
