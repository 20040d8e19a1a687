"""The table of all claims about speed and accuracy: `<!-- measured -->`, on a line of its own.

Its rows are those of benchmarks/measured.json, which benchmarks/table.py keeps.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PLACE = "\n<!-- measured -->\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with its table."""
    return markdown.replace(PLACE, f"\n{claims()}") if PLACE in markdown else markdown


def claims() -> str:
    """Return the table as benchmarks/table.py makes it."""
    spec = importlib.util.spec_from_file_location("table", BENCHMARKS / "table.py")
    assert spec is not None
    assert spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    return str(table.claims_table(table.kept()))
