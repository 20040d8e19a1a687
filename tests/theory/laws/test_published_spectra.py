"""Table D.2 of arXiv 2610.10033 from the shipped studies: softmax attention and its Gaussian equivalent."""

from __future__ import annotations

import csv
from math import sqrt
from pathlib import Path

import pytest

from attnlaw.study import read_study

ROOT = Path(__file__).resolve().parents[3]
with (ROOT / "tests/published/multi-head-attention/table-d2.csv").open(encoding="utf-8") as file:
    TABLE = {row["name"]: row for row in csv.DictReader(file)}
STUDENT = 2.262  # 95% of ten draws
TASKS = {
    task.case.name: task
    for name in ("limit-spectrum", "limit-spectrum-large")
    for task in read_study(name).tasks
}


def test_the_studies_are_those_of_the_table() -> None:
    assert TASKS.keys() == TABLE.keys()
    for name, row in TABLE.items():
        case = TASKS[name].case
        assert (case.tokens, case.heads, case.head_size) == tuple(
            int(row[key]) for key in ("tokens", "heads", "head_size")
        )
        # The output is as wide as all values, as in the table.
        assert case.output_size is None
        assert case.heads * case.head_size == int(row["width"])
        assert (case.sharing == "across") == (int(row["key_heads"]) == 1)
        assert (case.sharing == "tied") == ("K = V" in name)
        assert (case.beta, case.matrix, case.centring, case.draws) == (1.0, "output", "mean", 10)


# The others take minutes each: `attnlaw study run limit-spectrum`.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["DINOv3-L", *(pytest.param(name, marks=pytest.mark.long) for name in ("BERT-base", "ModernBERT-L"))],
)
def test_distances_to_the_equivalent_are_those_of_the_table(name: str) -> None:
    task, row = TASKS[name], TABLE[name]
    (result,) = task.verb.run([task.case], lambda done, total: None)
    w1, ks = result.draws.equivalent_w1, result.draws.equivalent_distance
    published, error = float(row["w1_percent"]) / 100, float(row["w1_half_width"]) / 100 / STUDENT
    assert w1.value == pytest.approx(published, abs=4 * sqrt(w1.error**2 + error**2))
    # Within two deviations of a published draw.
    assert w1.value == pytest.approx(published, abs=2 * error * sqrt(10))
    # Steps of 1/n; the published mean has an error like ours.
    assert ks.value == pytest.approx(float(row["ks"]), abs=4 * sqrt(2) * ks.error + 5e-5)
