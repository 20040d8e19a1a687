"""The studies that come with attnlaw: the TOML files in this folder, by the names of the files."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path


def shipped_studies() -> dict[str, Path]:
    """Return the files of the studies that come with attnlaw, by name.

    >>> shipped_studies()["learn-curves"].name
    'learn-curves.toml'
    """
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}


def study_description(file: Path) -> str:
    """Return the comment at the head of a study file.

    >>> study_description(shipped_studies()["init-depth"])
    'How similar tokens become with depth before training, in GPT-2 (pre-norm) and in BERT (post-norm).'
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    return " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
