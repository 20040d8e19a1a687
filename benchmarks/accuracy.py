"""What float32 changes in an audit, beside what storing the weights in bfloat16 changed.

    python benchmarks/accuracy.py [NAME...]

Real checkpoints, those of float32 rounded to bfloat16 first. Each is audited in both precisions: the largest
relative change of every quantity stands beside the change that rounding made (of a checkpoint that comes in
16 bits or less that is not known). What is counted must not change at all: else the exit status is 1.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from claims import Claims

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from real_checkpoints import NAMES, Unavailable, fetch, rounded

import attnlaw

ROUNDED = tuple(name for name in NAMES if name not in ("whisper-tiny.en", "smollm2"))
COUNTED = ("numerical_rank", "outliers", "p")
LEVEL = 0.01  # of the null test


def changes(first: attnlaw.Result, second: attnlaw.Result) -> dict[str, float]:
    """The largest relative change of every quantity of a row, of singular values, and of the proxies.

    Logarithms change by their difference times ln 10: the relative change of what they are the logarithm of.
    """
    largest = {}
    for name, kind in first.matrices.schema.items():
        if kind == pl.Float64 and not name.endswith("_error") and name not in COUNTED:
            before, after = (audit.matrices[name].to_numpy() for audit in (first, second))
            largest[name] = _largest(before, after, name.startswith(("log10", "continuous_log10")))
    for name in ("singular_values", "singular_values_applied"):
        before, after = (audit.spectra[name].explode().drop_nulls().to_numpy() for audit in (first, second))
        largest[name] = _largest(before, after, logarithm=False)
    for name, value in first.values().items():
        if name.startswith("log10_") and value is not None:
            pair = [audit.values()[name] for audit in (first, second)]
            largest[name] = _largest(
                *(np.array([getattr(total, "value", total)]) for total in pair), logarithm=True
            )
    return largest


def _largest(before: np.ndarray, after: np.ndarray, logarithm: bool) -> float:
    with np.errstate(invalid="ignore", divide="ignore"):
        change = np.abs(before - after) * np.log(10) if logarithm else np.abs(before / after - 1)
    return float(np.nanmax(change, initial=0.0))


def recounted(first: attnlaw.Result, second: attnlaw.Result) -> int:
    """How many rows count something else, and findings that differ."""
    tables = [
        audit.matrices.select(*COUNTED, rejected=pl.col("random_p_value") <= LEVEL).rows()
        for audit in (first, second)
    ]
    rows = sum(before != after for before, after in zip(*tables, strict=True))
    return rows + (
        not first.findings.drop("value", "meaning").equals(second.findings.drop("value", "meaning"))
    )


def main() -> int:
    worst: dict[str, tuple[float, float]] = {}
    again, single, maps = 0, 0, 0
    for name in sys.argv[1:] or NAMES:
        try:
            source = fetch(name)
        except Unavailable as error:
            print(f"{name}: {error}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            narrow = rounded(source, Path(folder)) if name in ROUNDED else source
            storage = attnlaw.audit(narrow)
            double = attnlaw.audit(narrow, precision="double")
        before = attnlaw.audit(source, precision="double") if name in ROUNDED else None
        arithmetic = changes(storage, double)
        storing = changes(double, before) if before is not None else {}
        again += recounted(storage, double)
        feed_forward = storage.matrices.filter(pl.col("kind").str.starts_with("ffn"))
        took = int((feed_forward["precision"] == "float32").sum())
        single, maps = single + took, maps + feed_forward.height
        print(f"{name}: {took} of {feed_forward.height} feed-forward matrices in float32", flush=True)
        for quantity, change in arithmetic.items():
            known = worst.get(quantity, (0.0, 0.0))
            worst[quantity] = max(known[0], change), max(known[1], storing.get(quantity, 0.0))
    print("\n| quantity | float32 changes | rounding to bfloat16 changed |\n|---|---|---|")
    for quantity, (change, before) in worst.items():
        print(f"| `{quantity}` | {change:.1e} | {before:.1e} |")
    claims = Claims()
    claims.add(
        "rows of real checkpoints that count something else in float32",
        f"{single} of {maps} feed-forward matrices in float32",
        "all in float64",
        again,
        0,
        least=False,
    )
    share = max(change / before for change, before in worst.values() if before)
    claims.add(
        "largest change by float32 over the change that rounding to bfloat16 made, of any quantity",
        "float32",
        "float64",
        share,
        1.0,
        least=False,
    )
    return claims.finish()


if __name__ == "__main__":
    sys.exit(main())
