"""README's figures are those of the page that the benchmarks write."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_readme_repeats_the_measured_rows_that_have_a_peer():
    page = (ROOT / "docs" / "benchmarks.md").read_text().splitlines()
    readme = (ROOT / "README.md").read_text()
    shown = readme.split("<!-- measured -->\n")[1].split("<!-- end of measured -->")[0].splitlines()
    assert len(shown) > 8
    assert shown == [line for line in page if line.startswith("|") and "| no peer |" not in line]
