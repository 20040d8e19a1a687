"""The reactions on which values of rxnfp were published, as its tokenizer for reactions reads them."""

from __future__ import annotations

import re
from pathlib import Path

FILE = Path(__file__).parents[2] / "published" / "margins" / "reactions.txt"
TOKENS = r"\%\([0-9]{3}\)|\[[^\]]+]|Br?|Cl?|[NOSPFIbcnosp]|[|().=#+\\/:~@?*$-]|>>?|\%[0-9]{2}|[0-9]"


def reactions(folder: Path) -> list[list[int]]:
    """Token ids: [CLS] 12, the tokens by their line in vocab.txt, [SEP] 13."""
    numbers = {token: i for i, token in enumerate((folder / "vocab.txt").read_text().split("\n"))}
    lines = FILE.read_text().split()
    return [[12, *(numbers[token] for token in re.findall(TOKENS, line)), 13] for line in lines]
