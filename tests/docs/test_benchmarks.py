"""README's figures are those of the page that the benchmarks write."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_readme_repeats_the_measured_rows_that_have_a_peer():
    page, shown = (
        (ROOT / name)
        .read_text()
        .split("<!-- measured -->\n")[1]
        .split("<!-- end of measured -->")[0]
        .splitlines()
        for name in ("docs/benchmarks.md", "README.md")
    )
    assert len(shown) > 8
    assert shown == [line for line in page if line.startswith("|") and "| no peer |" not in line]
