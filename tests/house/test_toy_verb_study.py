"""The toy verb in a study: keys, rows and tables are read off its declaration, in process and on Dask."""

from __future__ import annotations

from pathlib import Path

import pytest
from house.coin import VERB

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.core.tables import to_schema
from attnlaw.study import Backend, Study, read_study, run
from attnlaw.verbs import VERBS

STUDY = """
verb = "coin"
[fixed]
tosses = 1000
wear = 0.0625
[grid]
metal = ["gold", "paper"]
bias = [0.125, 0.25, 0.5]
[run]
retries = 0
"""


@pytest.fixture(name="tossed")
def _tossed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    monkeypatch.setitem(VERBS, "coin", ("house.coin", "Toss a coin many times."))
    (tmp_path / "coins.toml").write_text(STUDY)
    return read_study(tmp_path / "coins.toml")


def test_rows_have_the_schema_of_the_verb(tmp_path: Path, tossed: Study) -> None:
    """A coin of bias 0.125 rolls away; paper does not wear."""
    standing = run(tossed, tmp_path / "out")
    assert (standing.done, len(standing.failures)) == (4, 2)
    result = attnlaw.load(tmp_path / "out")
    rows = result.rows
    assert {name: rows.schema[name] for name in VERB.schema} == to_schema(VERB.schema)
    shown = rows.select("metal", "bias", "wear", "mean", "heads", "status").rows()
    assert shown == [
        ("gold", 0.125, 0.0625, None, None, "failed"),
        ("gold", 0.25, 0.0625, 0.1875, 250, "done"),
        ("gold", 0.5, 0.0625, 0.4375, 500, "done"),
        ("paper", 0.125, None, None, None, "failed"),
        ("paper", 0.25, None, 0.1875, 250, "done"),
        ("paper", 0.5, None, 0.4375, 500, "done"),
    ]
    assert rows["remark"][0] == "a coin of bias 0.125 rolls away; choose another"
    assert rows["mean_error"][1] == pytest.approx((0.25 * 0.75 / 1000) ** 0.5)
    sides = result[1].sides
    assert sides.select("side", "share").rows() == [("heads", 0.1875), ("tails", 0.8125)]
    assert set(result.sides["case"]) == {1, 2, 4, 5}


def test_a_worker_finds_the_same_bits(tmp_path: Path, tossed: Study) -> None:
    run(tossed, tmp_path / "here")
    run(tossed, tmp_path / "there", Backend(jobs=1))
    for name in ("attnlaw.json", "rows.parquet", "sides.parquet"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.125,", "-0.25,", "[grid] bias: found -0.25, expected a number above 0 and of at most 1"),
        ("tosses", "toses", "[fixed] toses is not a setting of coin; did you mean tosses?"),
        ('"gold", ', "", "[fixed] wear needs metal gold"),
        ("0.0625", "0.375", "[fixed] wear: found 0.375, expected at most the bias, 0.125"),
    ],
)
def test_bad_values_are_one_line(tossed: Study, old: str, new: str, message: str) -> None:
    tossed.path.write_text(STUDY.replace(old, new))
    with pytest.raises(InputError) as caught:
        read_study(tossed.path)
    assert str(caught.value) == f"{tossed.path}: {message}"
