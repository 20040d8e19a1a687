"""Every page that attnlaw writes passes axe-core: in light, in dark and at the width of a phone, offline."""

from __future__ import annotations

import pytest
from accessible import CHROMIUM, open_browser, violations, violations_in_all_looks
from docs.sessions import attnlaw_here, write_standin

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="browser tests are left out: no chromium; enable them with: apt-get install chromium",
    ),
]
NONE = {"light": [], "dark": [], "phone": []}
# What writes each page, to `--out DIR`; A and B are small models.
PAGES = {
    "audit": "audit A",
    "fit": "fit A",
    "diff": "diff A B",
    "check": "check A",
    "lens": "lens A --ids 1,2,3,4,5 --entrywise 1,4",
    "margins": "margins A --ids @ids.txt --kappa",
    "limit": "limit --width 16,inf --draws 500",
    "attention": "attention --tokens 40 --draws 1",
    "init": "init gpt2 --tokens 4 --depth 2 --draws 2",
    "learn": "learn --alpha 0.1,0.3 --noise 0.5 --student factorized,bayes --thresholds",
    "dynamics": "dynamics --times 0.01:0.1:3",
    "study": "study run study.toml",
}
STUDY = 'verb = "learn"\n[fixed]\nnoise = 0.5\n[grid]\nalpha = [0.1, 0.2]\n'


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Writes the page of a kind and gives its path; what an earlier one needs is there."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("A", "B"):
            write_standin(folder / name)
        (folder / "study.toml").write_text(STUDY)
        (folder / "ids.txt").write_text("\n".join(f"{i},{i + 1},{i + 2},7" for i in range(12)))

        def write(kind):
            if not (folder / kind).exists():
                run(*PAGES[kind].split(), "--out", kind)
                if kind == "study":
                    run("report", "study")
            return folder / kind / "report.html"

        yield write


def run(*words):
    status, printed = attnlaw_here(list(words))
    assert status in (0, 3), printed  # 3: a gate failed


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("playwright.sync_api", reason="pip install 'attnlaw[test]'")
    with open_browser() as opened:
        yield opened


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_has_no_violations(kind, written, browser):
    page = written(kind)
    assert violations_in_all_looks(browser, page.as_uri(), "html[data-ready]") == NONE


def test_a_page_of_several_runs_has_no_violations(written, browser):
    for kind in ("audit", "learn"):
        written(kind)
    run("report", "audit", "learn", "--out", "combined")
    page = written("audit").parents[1] / "combined" / "report.html"
    assert violations_in_all_looks(browser, page.as_uri(), "html[data-ready]") == NONE


def test_a_page_that_breaks_rules_is_found(browser):
    page = browser.new_page()
    page.set_content('<html><body><img src="x.png"><p style="color: #eee">pale</p></body></html>')
    rules = {violation.partition(" ")[0] for violation in violations(page)}
    assert {"image-alt", "color-contrast", "html-has-lang"} <= rules
    page.close()
