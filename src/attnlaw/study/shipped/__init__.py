"""The studies that come with attnlaw, found by their names: a file of this folder each, nothing else to say.

The comment at the head of a file is what `attnlaw study list` tells of it.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path


def shipped_studies() -> dict[str, Path]:
    """The files by name.

    >>> shipped_studies()["learn-curves"].name
    'learn-curves.toml'
    """
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}


def study_description(file: Path) -> str:
    """What the comment at the head of a study file says.

    >>> study_description(shipped_studies()["limit-relu"])
    'The distance to the limit with ReLU tokens (arXiv 2506.00846), 100,000 draws for each seed.'
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    return " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
