"""The table of quantised checkpoints in the docs has the numbers that decoding gives now."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs" / "scripts"))
import codes_page

from attnlaw.checkpoints.quantization.leftover import REASONS

PAGE = codes_page.PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_table_is_measured() -> None:
    table = PAGE.split(codes_page.START)[1].split(codes_page.END)[0]
    assert table == codes_page.table(codes_page.rows())


def test_every_code_that_is_not_read_is_listed_with_its_reason() -> None:
    names = {"exl2": "EXL2", "quip": "QuIP#", "quip_sharp": "QuIP#", "fp_quant": "FP-Quant", "eetq": "EETQ"}
    listed = PAGE.split("| code | why attnlaw cannot open it |")[1]
    for method in REASONS:
        assert names.get(method, method).lower() in listed.lower(), method
