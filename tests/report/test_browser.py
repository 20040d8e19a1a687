"""The report in a real browser (Debian's chromium), with the network cut: what a reader sees and does."""

import csv
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from accessible import CHROMIUM, open_browser
from report.charts_of import page_html, with_tables

import attnlaw
from attnlaw.render.pages.page import rows_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="browser tests are left out: no chromium; enable them with: apt-get install chromium",
    ),
]
HOSTILE = '<img src=x onerror="document.title=1"></script><script>document.title=2</script>&amp;'


def weights(seed):
    rng = np.random.default_rng(seed)
    shapes = {
        **{f"attention.self.{part}": (24, 24) for part in ("query", "key", "value")},
        "attention.output.dense": (24, 24),
        "intermediate.dense": (48, 24),
        "output.dense": (24, 48),
    }
    return {
        f"bert.encoder.layer.{layer}.{name}.weight": 0.3 * rng.standard_normal(shape) * (1 + layer)
        for layer in range(3)
        for name, shape in shapes.items()
    }


def audited(seed, name, heads=4):
    return attnlaw.audit(weights(seed), heads=heads, jobs=1, name=name)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Files: two fitted models side by side, and one whose names are hostile."""
    folder = tmp_path_factory.mktemp("pages")
    pair = (audited(0, "runs/before") + audited(1, "runs/after")).for_saving()
    bad = audited(2, HOSTILE)
    texts = pl.lit([HOSTILE], dtype=pl.List(pl.String))
    proxies = [name for name in bad.rows.columns if f"per_application_{name}" in bad.rows.columns]
    again = [pl.col(name).alias(f"per_application_{name}") for name in proxies]
    hostile = replace(
        with_tables(bad, matrices=bad.tables["matrices"].with_columns(tensors=texts)),
        rows=bad.rows.with_columns(*again, family=pl.lit(HOSTILE), warnings=texts),
    )
    unlike = replace(
        pair,
        rows=pair.rows.with_columns(
            hidden_size=pl.Series([24, 48]),
            head_count=pl.Series([4, 6]),
            log10_spectrum_adaptive=pl.Series([7.556, pair.rows["log10_spectrum_adaptive"][1]]),
            log10_spectrum_adaptive_error=pl.Series([0.0234, None]),
        ),
    )
    for name, audit in (("pair", pair), ("hostile", hostile), ("unlike", unlike)):
        (folder / f"{name}.html").write_text(page_html(audit), encoding="utf-8")
    widths = {
        "width": [64.0, float("inf"), 256.0, float("inf"), float("nan")],
        "kl": [0.1, 0.25, 12.0, 3.0, 0.0],
    }
    outcome = {"status": [*["done"] * 4, "failed"], "remark": [*[None] * 4, HOSTILE]}
    rows = rows_page("Widths", ["Some of them."], [], pl.DataFrame(widths | outcome))
    (folder / "rows.html").write_text(rows, encoding="utf-8")
    return folder, pair


@pytest.fixture(scope="module")
def browser():
    with open_browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def seen():
    """Requests and console messages of all pages so far."""
    return []


@pytest.fixture(scope="module")
def new_tab(browser, pages, seen):
    """A tab for one page, in a context of its own with the network cut; and how to load the page there."""

    def opened(name="pair", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_offline(True)
        page = context.new_page()
        address = (pages[0] / f"{name}.html").as_uri()
        page.route("**/*", lambda route: route.continue_() if route.request.url == address else route.abort())
        page.on(
            "request", lambda request: request.url == address or seen.append(f"request {request.url[:90]}")
        )
        page.on("console", lambda message: seen.append(f"console {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"error {error}"))

        def load(hash=""):
            page.goto("about:blank")  # or another hash would not load it anew
            page.goto(f"{address}#{hash}" if hash else address)
            page.wait_for_selector("html[data-ready]", state="attached")
            return page

        return load

    return opened


@pytest.fixture(autouse=True)
def _nothing_asked_and_nothing_said(seen):
    yield
    messages, seen[:] = list(seen), []
    assert messages == []


@pytest.fixture(scope="module")
def visit(new_tab):
    """A page to act on, loaded anew; one tab for each page, but for other options."""
    tabs = cache(new_tab)

    def loaded(name="pair", hash="", **options):
        return (new_tab(name, **options) if options else tabs(name))(hash)

    return loaded


@pytest.fixture(scope="module")
def look(new_tab):
    """A page that nobody changes, loaded once."""
    return cache(lambda name="pair": new_tab(name)())


def cells(page):
    return page.locator(".grid").first.locator(".cell")


def spectrum(page):
    return page.locator("#spectrum svg[role=img]").inner_html()


def test_click_on_a_head_shows_its_spectrum(visit, pages):
    page, pair = visit(), pages[1]
    before = spectrum(page)
    cells(page).nth(4 * 2 + 1).click()  # layer 2, head 1
    assert page.inner_text("#detail-title").strip() == "Layer 2 · head 1 · QK"
    assert spectrum(page) != before
    row = pair.matrices.row(
        by_predicate=(pl.col("model") == "runs/before")
        & (pl.col("layer") == 2)
        & (pl.col("head") == 1)
        & (pl.col("kind") == "qk"),
        named=True,
    )
    assert f"{row['spectral_norm']:.4g}" in page.inner_text("#detail")
    text = page.inner_text("#spectrum")
    assert "random matrices of this shape" in text
    assert "largest value of a random matrix" in text
    page.click("text=By rank")
    assert "logarithmic axis" in page.inner_text("#spectrum")


def test_the_histogram_and_the_null_of_the_page_have_unit_mass(look):
    masses = look().evaluate(
        """() => {
          const data = readData();
          const mass = (points) => points.slice(1).reduce(
            (sum, [x, y], i) => sum + (x - points[i][0]) * (y + points[i][1]) / 2, 0);
          const values = data.spectrum(0);
          const bars = histogram(values, 0, values[0] * 1.01, 14, false);
          const logs = histogram(values, values.at(-1) * 0.99, values[0] * 1.01, 14, true);
          return [bars.reduce((sum, [l, r, , h]) => sum + (r - l) * h, 0),
                  logs.reduce((sum, [l, r, , h]) => sum + Math.log(r / l) * h, 0), mass(data.fits.null(0))];
        }"""
    )
    assert masses[:2] == pytest.approx([1.0, 1.0], abs=1e-9)
    # The null's curve has points in the middle of 7 intervals of equal mass: half of two is lost at its ends.
    assert 0.8 < masses[2] < 1.01


def test_arrow_keys_move_over_the_map(visit):
    page = visit()
    cells(page).nth(0).click()
    for key, title in (
        ("ArrowDown", "Layer 1 · head 0 · QK"),
        ("ArrowRight", "Layer 1 · head 1 · QK"),
        ("End", "Layer 1 · head 3 · QK"),
        ("ArrowUp", "Layer 0 · head 3 · QK"),
        ("Home", "Layer 0 · head 0 · QK"),
    ):
        page.keyboard.press(key)
        assert page.inner_text("#detail-title").strip() == title
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("Layer 0 · head 0 · QK: spectral norm ")
    assert page.locator(".cell[tabindex='0']").count() == 1


def test_quantity_and_kind_change_the_map(visit):
    page = visit()
    colours = "() => [...document.querySelectorAll('.cell')].map((cell) => cell.style.background)"
    first = page.evaluate(colours)
    page.select_option("#quantity", "stable_rank")
    assert page.evaluate(colours) != first
    assert "a single direction carries the matrix" in page.inner_text("#map-caption")
    page.click("[data-kind=VO]")
    assert page.inner_text("#detail-title").strip().endswith("VO")
    page.click("[data-kind=FFN]")
    assert page.locator(".grid").first.locator(".cell").count() == 3 * 2
    page.select_option("#quantity", "law")
    assert "random" in page.inner_text("#legend")


def test_table_sorts_filters_and_chooses(visit, pages):
    page, pair = visit(), pages[1]
    norms = page.locator("#table tbody td:nth-child(5)")
    page.click("[data-sort=spectral_norm]")
    shown = [float(text) for text in norms.all_inner_texts()]
    expected = pair.matrices["spectral_norm"].sort(descending=True).head(25).to_list()
    assert shown == pytest.approx(expected, rel=5e-4)  # four digits are shown
    page.click("[data-sort=spectral_norm]")
    assert page.get_attribute("#table th:nth-child(5)", "aria-sort") == "ascending"
    page.fill("#filter", "after vo layer=1 head>=2")
    assert page.inner_text("#count") == "1–2 of 2 rows"
    page.locator("#table tbody tr").last.click()
    assert re.fullmatch(r"Layer 1 · head \d · VO", page.inner_text("#detail-title").strip())
    page.fill("#filter", "nothing-like-this")
    assert page.inner_text("#count") == "No rows match this filter"


def test_rows_are_downloaded_whole(visit, pages, tmp_path):
    page, pair = visit(), pages[1]
    page.fill("#filter", "qk")
    with page.expect_download() as waiting:
        page.click("#download")
    waiting.value.save_as(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    matrices = pair.matrices.filter(pl.col("kind") == "qk")
    assert [float(row["spectral_norm"]) for row in rows] == matrices["spectral_norm"].to_list()
    assert [row["model"] for row in rows] == matrices["model"].to_list()


def test_infinite_widths_are_shown_sorted_filtered_and_downloaded(visit):
    page = visit("rows")
    column = page.locator("#table tbody td:nth-child(1)")
    assert column.all_inner_texts() == ["64", "∞", "256", "∞", "–"]
    page.click("[data-sort=width]")
    assert column.all_inner_texts() == ["∞", "∞", "256", "64", "–"]
    page.click("[data-sort=width]")
    assert column.all_inner_texts() == ["64", "256", "∞", "∞", "–"]
    for condition, count in (("width>100", 3), ("width=inf", 2), ("width<∞", 2)):
        page.fill("#filter", condition)
        assert page.locator("#table tbody tr").count() == count
    page.fill("#filter", "")
    table = pl.read_csv(page.evaluate("new Table(page, null).csv()").encode())
    assert table["width"].to_list() == [64.0, float("inf"), 256.0, float("inf"), None]


def test_a_failed_row_shows_its_error(look):
    last = look("rows").locator("#table tbody tr").last.locator("td")
    assert last.all_inner_texts()[2:] == ["failed", HOSTILE]


def test_numbers_of_a_column_end_at_one_decimal(look):
    page = look("rows")
    assert page.locator("#table tbody td:nth-child(2)").all_inner_texts() == [
        "0.10",
        "0.25",
        "12.00",
        "3.00",
        "0",
    ]
    # Four digits are told and no more, powers of ten stay.
    texts = page.evaluate(
        "() => { const x = [1.5, 0.012345, 123.45, 1e-9, 2e7, null]; return x.map(aligner({x}, 'x')); }"
    )
    assert texts == ["1.500", "0.01235", "123.5", "1e-9", "2e7", "–"]


@pytest.mark.parametrize("log", [True, False])
def test_a_spectrum_keeps_its_own_bars_beside_far_larger_ones(look, log):
    """The other model's values are a thousand times larger: bars of its own range, each area one."""
    spec, values = look().evaluate(
        """(log) => {
          const found = page.spectrum, changed = (value) => 1000 * value;
          const spectrum = (row) => (page.columns.model[row] ? found(row).map(changed) : found(row));
          const values = found(0);
          return [new Detail({...page, spectrum}).density(0, values, log), Array.from(values)];
        }""",
        log,
    )
    bars, outline = spec["layers"][0]["data"], spec["layers"][1]["data"]
    assert len(bars) >= 7
    assert (bars[0][0], bars[-1][1]) == pytest.approx((0.98 * min(values), 1.02 * max(values)), rel=1e-6)
    width = (lambda left, right: np.log(right / left)) if log else (lambda left, right: right - left)
    assert sum(height * width(left, right) for left, right, _, height in bars) == pytest.approx(1.0, rel=1e-6)
    steps = outline[1:-1]
    areas = [y * width(left, right) for (left, y), (right, _) in zip(steps[::2], steps[1::2], strict=True)]
    assert sum(areas) == pytest.approx(1.0, rel=1e-6)
    assert (outline[-1][0] > spec["x"]["domain"][1]) == (not log)
    assert ("continue outside of the chart" in spec["caption"]) == (not log)


def test_lines_of_other_models_stay_inside_the_chart(visit):
    """The other model's values nearly agree, so that its line is far taller than the chart."""
    page = visit()
    inside = page.evaluate(
        """() => {
          const found = page.spectrum, changed = (value) => 1 + 1e-4 * value;
          page.spectrum = (row) => (page.columns.model[row] ? found(row).map(changed) : found(row));
          new Detail(page).show(0);
          const chart = document.querySelector("#spectrum .plot > svg"), frame = chart.querySelector("svg");
          const { x, y, width, height } = frame, line = frame.querySelector("path").getBBox();
          const frames = [x, y, width, height].map((length) => length.baseVal.value);
          return [getComputedStyle(frame).overflow, frame.getAttribute("viewBox") === frames.join(" "),
                  frames[1] > 0 && frames[1] + frames[3] < chart.height.baseVal.value, line.y < 0];
        }"""
    )
    assert inside == ["hidden", True, True, True]  # the last: without the frame it would leave the chart


def test_models_of_different_shapes_are_compared_with_a_remark(look):
    assert look().locator("#shapes").count() == 0
    assert look("unlike").inner_text("#shapes").startswith("These models differ in hidden size, heads. ")


def test_dark_and_light(visit, look):
    background = "getComputedStyle(document.body).backgroundColor"
    light = look().evaluate(background)
    page = visit(color_scheme="dark")
    dark = page.evaluate(background)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)))
    page.click("#theme")
    assert page.evaluate(background) == light


def test_hostile_names_stay_text(look):
    page = look("hostile")
    assert page.title() == "Spectral audit · attnlaw"
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text(".lead >> nth=0")
    assert HOSTILE in page.inner_text("#tensors")
    assert page.evaluate("document.scripts.length") == 2
    assert "log10, per application" in page.inner_text("#proxies")


def test_a_phone_needs_no_sideways_scrolling(visit):
    page = visit(viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.explorer')).gridTemplateColumns").count("px")
        == 1
    )


def test_every_chart_has_a_caption(look):
    page = look()
    for figure in page.locator("figure").all():
        assert len(figure.locator("figcaption").inner_text()) > 30


def test_the_policy_stops_a_script_that_was_slipped_in(browser, pages, tmp_path):
    source = (pages[0] / "hostile.html").read_text(encoding="utf-8")
    forged = tmp_path / "forged.html"
    forged.write_text(
        source.replace("<main", "<script>document.title='taken'</script><main", 1), encoding="utf-8"
    )
    page = browser.new_context().new_page()
    page.goto(Path(forged).as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.title() == "Spectral audit · attnlaw"


def test_proxies_have_four_decimals_as_in_the_terminal(look):
    texts = look().locator("#proxies tbody td").all_inner_texts()
    assert len(texts) == 2 * 7
    assert all(re.fullmatch(r"-?\d+\.\d{4}", text) for text in texts)


def test_proxies_that_are_approximate_show_their_error(look):
    assert look("unlike").locator("#proxies tbody td").first.inner_text() == "7.56 ± 0.02"


def test_the_least_p_value_of_a_null_is_a_bound(look):
    """One of 200 draws or fewer cannot be told: 1/201 is shown as a bound, 2/201 as it is."""
    texts = look().evaluate(
        "() => { const columns = { random_p_value: [1 / 201, 2 / 201], null_draws: [200, 200] };"
        " return [0, 1].map((row) => cellText(columns, 'random_p_value', row)); }"
    )
    assert texts == ["≤ 0.005", "0.00995"]


def test_an_address_lands_on_its_section(visit):
    page = visit(hash="rows")
    page.wait_for_timeout(300)
    top = page.evaluate("document.getElementById('rows').getBoundingClientRect().top")
    assert 0 <= top < 100  # below the bar that stays on top
    assert visit("rows", hash="%E0%A4%A").title() == "Widths · attnlaw"  # no text in any encoding
