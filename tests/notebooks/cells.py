"""Scripts in `# %%` form as notebooks of Jupyter."""

from __future__ import annotations

import re
from typing import Any

import nbformat


def notebook_of(source: str) -> Any:
    """The notebook whose cells a script holds; those of `[markdown]` are comments."""
    cells = []
    for part in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        text = body.strip()
        if "[markdown]" in head:
            cells.append(nbformat.v4.new_markdown_cell(re.sub(r"^# ?", "", text, flags=re.MULTILINE)))
        else:
            cells.append(nbformat.v4.new_code_cell(text))
    return nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    )
