"""README's figures are those of the page that the benchmarks write."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def between_marks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.split("<!-- measured -->\n")[1].split("<!-- end of measured -->")[0].splitlines()


def test_readme_has_three_rows_of_the_table_of_all_claims():
    page, shown = between_marks("docs/theory/benchmarks.md"), between_marks("README.md")
    assert shown[:2] == ["| | attnlaw | other tool |", "|---|---|---|"]
    assert len(shown) == 2 + 3
    for line in shown[2:]:
        _, task, ours, theirs, _ = line.split("|")
        tool, number = theirs.strip().split(": ")
        for value in (ours.strip(), number):
            assert re.fullmatch(r"[0-9.,]+ (s|MB)", value), line
        (row,) = [row for row in page if f"| {ours.strip()} |" in row and f": {number} |" in row]
        assert tool in row, task
