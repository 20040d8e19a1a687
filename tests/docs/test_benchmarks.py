"""The page of benchmarks has the rows of the record, and README three of them."""

import importlib.util
import json
import re

import pytest
from docs.sessions import ROOT


@pytest.fixture(scope="module", name="page")
def _page():
    """Return the lines of the page as the site has it."""
    spec = importlib.util.spec_from_file_location("measured", ROOT / "docs" / "hooks" / "measured.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    text = (ROOT / "docs" / "theory" / "benchmarks.md").read_text(encoding="utf-8")
    return hook.on_page_markdown(text).splitlines()


def in_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split("<!-- measured -->\n")[1].split("<!-- end of measured -->")[0].splitlines()


def test_the_page_has_every_row_of_the_record(page):
    runs = json.loads((ROOT / "benchmarks" / "measured.json").read_text(encoding="utf-8"))
    recorded = [row for run in runs.values() for row in run["rows"]]
    start = page.index("| task | attnlaw | against | measured | claimed |") + 2
    shown = page[start : page.index("", start)]
    assert len(shown) == len(recorded) >= 70
    for line, row in zip(shown, recorded, strict=True):
        _, task, ours, peer, measured, claimed, _ = (cell.strip() for cell in line.split("|"))
        assert (task, ours, peer) == (row["task"], row["ours"], row["peer"])
        digits = 0.5 if row["measured"] >= 100 else 0.006 * abs(row["measured"])
        assert float(measured.strip("*").replace(",", "")) == pytest.approx(row["measured"], abs=digits)
        assert claimed.startswith("at least" if row["least"] else "at most")
        assert claimed.endswith("MISSED") == (not row["holds"])
    for name, run in runs.items():
        assert any(name in note and run["day"] in note and run["machine"] in note for note in page)


def test_readme_has_three_rows_of_the_record(page):
    shown = in_readme()
    assert shown[:2] == ["| | attnlaw | other tool |", "|---|---|---|"]
    assert len(shown) == 2 + 3
    for line in shown[2:]:
        _, task, ours, theirs, _ = line.split("|")
        tool, number = theirs.strip().split(": ")
        for value in (ours.strip(), number):
            assert re.fullmatch(r"[0-9.,]+ (s|MB)", value), line
        (row,) = [row for row in page if f"| {ours.strip()} |" in row and f": {number} |" in row]
        assert tool in row, task
