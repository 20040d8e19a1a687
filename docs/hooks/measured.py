"""Tables of measurements, from their records: `<!-- measured -->`, `<!-- ranking -->`, each on its own line.

benchmarks/table.py keeps the claims about speed and accuracy in benchmarks/measured.json. The ranking is the
first table of docs/experiments/ranking/tables.txt, which ranking_study.py prints.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MEASURED_PLACE = "\n<!-- measured -->\n"
RANKING_PLACE = "\n<!-- ranking -->\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with its tables."""
    if MEASURED_PLACE in markdown:
        markdown = markdown.replace(MEASURED_PLACE, f"\n{claims()}")
    return markdown.replace(RANKING_PLACE, f"\n{ranking()}\n")


def claims() -> str:
    """Return the table of all claims as benchmarks/table.py makes it."""
    spec = importlib.util.spec_from_file_location("table", ROOT / "benchmarks" / "table.py")
    assert spec is not None
    assert spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    return str(table.claims_table(table.kept()))


def ranking() -> str:
    """Return the agreement of every measure with the generalization gap."""
    tables = ROOT / "docs" / "experiments" / "ranking" / "tables.txt"
    return tables.read_text(encoding="utf-8").split("\n\n")[0].strip()
