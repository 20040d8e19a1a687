"""README's figures are those of the page that the benchmarks write."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def between_marks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.split("<!-- measured -->\n")[1].split("<!-- end of measured -->")[0].splitlines()


def test_readme_has_the_first_row_with_a_peer_of_ten_benchmarks():
    page, shown = between_marks("docs/theory/benchmarks.md"), between_marks("README.md")
    *head_and_rows, empty, held = shown
    rows = [line for line in page if line.startswith("|")]
    assert head_and_rows[:2] == rows[:2]
    assert 8 < len(head_and_rows) <= 2 + 10
    first = [
        next((row["task"] for row in benchmark["rows"] if row["peer"] != "no peer"), None)
        for benchmark in json.loads((ROOT / "benchmarks" / "measured.json").read_text()).values()
    ]
    places = [rows.index(line) for line in head_and_rows]
    assert places == sorted(places)
    assert {line.split(" | ")[0].removeprefix("| ") for line in head_and_rows[2:]} <= set(first)
    missed = sum(", MISSED |" in line for line in rows)
    assert (empty, held) == ("", f"{len(rows) - 2 - missed} of all {len(rows) - 2} claims hold.")
