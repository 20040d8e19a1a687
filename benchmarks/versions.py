"""Audits compared with those of another version, such as 0.2.0: numbers, findings, and time of commands.

    python benchmarks/versions.py SRC [BEFORE]

SRC is the folder `src` of the other version. Both versions audit MiniLM, rxnfp, Whisper tiny and MPNet and
fit their laws, each in a process of its own. Every norm, rank and condition must agree to 1e-12, (1,1) norms
to 1e-8, and edges and scales of random references to 1e-4. At most one matrix in a hundred may have another
number of outliers, by one. Matrices whose p-value crosses 0.01 are listed.

BEFORE is a version that has the same rules of findings (SRC is used if it is missing). Both must have the
same findings in the shipped example, in damaged copies of it, and in all kinds of damage that
tests/analysis/findings/planted.py plants in rxnfp. At last, three commands on the tiny decoder take turns in
CPU seconds of fresh processes, and `audit --out` must save the same fits. Exits with status 1 when a claim
does not hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from claims import Claims
from paths import process_seconds
from safetensors.numpy import save_file

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
sys.path.append(str(TESTS))

CHECKPOINTS = ("minilm", "rxnfp-pretrained", "whisper-tiny.en", "mpnet")
NUMBERS = (
    *("spectral_norm", "frobenius_norm", "nuclear_norm", "norm_21", "stable_rank", "effective_rank"),
    *("numerical_rank", "condition", "spectral_norm_applied", "frobenius_norm_applied"),
)
REFERENCES = ("null_edge", "null_scale", "edge_scale")
PLACE = ("layer", "stack", "kind", "head", "expert")
FINDING = ("rule", "level", *PLACE, "tensor")
LEVEL = 0.01
DECODER = str(ROOT / "examples" / "tiny-decoder")
# Commands that take turns with those of the other version, and how many times as fast they must be. `limit`
# shows a table of polars since 0.3, whose import costs as much as those of scipy that it no longer needs.
COMMANDS: dict[str, tuple[list[str], float]] = {
    "audit --out": (["audit", DECODER, "--jobs", "1", "--out"], 1.5),
    "check": (["check", DECODER, "--jobs", "1"], 1.0),
    "limit": (["limit", "--embeddings", DECODER, "--ids", "1,2,3", "--width", "16,64,inf"], 0.75),
}


def write_tables(folder: str, models: list[str]) -> None:
    """Audit models with the version that this process imports, and write what is compared."""
    import attnlaw

    for name, path in (model.split("=", 1) for model in models):
        result = attnlaw.audit(path, jobs=1)
        result.matrices.write_parquet(f"{folder}/{name}.matrices")
        fits = attnlaw.fit(path, jobs=1)
        table = fits.fits if hasattr(fits, "fits") else fits.matrices  # as 0.2.0 named it
        table.write_parquet(f"{folder}/{name}.fits")


def write_findings(folder: str, models: list[str]) -> None:
    """Write the findings of each model, or that it has NaN or infinity, which an audit refuses."""
    import attnlaw

    findings: dict[str, list[str]] = {}
    for model in models:
        try:
            table = attnlaw.audit(model, jobs=1).findings
            findings[model] = sorted(str(row) for row in table.select(FINDING).iter_rows())
        except attnlaw.InputError:
            findings[model] = ["an error"]
    Path(folder, "findings.json").write_text(json.dumps(findings))


def run_both(side: str, source: str, folder: Path, models: list[str]) -> tuple[Path, Path]:
    """Run a side with this version and with the other one, and return the folders with what they wrote."""
    folders = folder / f"{side}-ours", folder / f"{side}-theirs"
    for out, path in zip(folders, (str(ROOT / "src"), source), strict=True):
        out.mkdir()
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--side", side, str(out), *models]
        subprocess.run(command, check=True, env=environment)
    return folders


def real_models() -> Iterator[str]:
    from real_checkpoints import Unavailable, fetch, fetch_mpnet

    for name in CHECKPOINTS:
        try:
            yield f"{name}={fetch_mpnet() if name == 'mpnet' else fetch(name)}"
        except Unavailable as error:
            print(f"{name}: {error}")


def damaged_models(folder: Path) -> Iterator[str]:
    """Write damaged copies of two models, and yield their folders after that of the shipped example."""
    from analysis.findings.damages import DAMAGES
    from analysis.findings.planted import KINDS
    from real_checkpoints import Unavailable

    from attnlaw.checkpoints.open import open_model

    example = ROOT / "examples" / "tiny-decoder"
    yield str(example)
    for damage in DAMAGES.values():
        tensors = damage(open_model(example), 2).tensors
        path = folder / damage.name.replace(" ", "-")
        path.mkdir()
        arrays = {name: np.ascontiguousarray(tensors.read(name)) for name in tensors.shapes}
        save_file(arrays, path / "model.safetensors")
        (path / "config.json").write_bytes((example / "config.json").read_bytes())
        yield str(path)
    try:
        for number, kind in enumerate(KINDS.values()):
            yield str(kind.write(folder / f"planted-{number}"))
    except Unavailable as error:
        print(f"planted damage: {error}")


def largest_change(ours: pl.DataFrame, theirs: pl.DataFrame, columns: tuple[str, ...]) -> float:
    """Return the largest relative change of any number in some columns; infinity if one is missing."""
    largest = 0.0
    for name in columns:
        first, second = (table[name].cast(pl.Float64).to_numpy() for table in (ours, theirs))
        if (np.isnan(first) != np.isnan(second)).any():
            return np.inf
        different = first != second
        with np.errstate(divide="ignore", invalid="ignore"):
            largest = max(largest, float(np.nanmax(np.abs(first / second - 1)[different], initial=0.0)))
    return largest


def compare_numbers(claims: Claims, source: str, folder: Path) -> None:
    models = list(real_models())
    folders = run_both("tables", source, folder, models)
    names = [model.split("=")[0] for model in models]
    ours, theirs = (
        {kind: pl.concat(pl.read_parquet(out / f"{name}.{kind}") for name in names) for kind in TABLES}
        for out in folders
    )
    first, second = ours["matrices"], theirs["matrices"]
    limits = {
        "norms, ranks and conditions": ("matrices", NUMBERS, 1e-12),
        "(1,1) norms": ("matrices", ("norm_11",), 1e-8),
        "edges and scales of random references": ("fits", REFERENCES, 1e-4),
    }
    what = f"{first.height} matrices of {len(names)} real checkpoints"
    for label, (kind, columns, limit) in limits.items():
        change = largest_change(ours[kind], theirs[kind], columns)
        claims.add(f"{label} of {what}", "", "the version before", change, limit, least=False)
    changed = (first["outliers"] - second["outliers"]).abs()
    assert (changed.fill_null(0) <= 1).all(), "a matrix has two more or fewer outliers"
    claims.add(
        f"matrices with another number of outliers, of {what}",
        f"{int(changed.sum())} matrices",
        "the version before",
        int(changed.sum()) / first.height,
        0.01,
        least=False,
    )
    crossed = (first["random_p_value"] <= LEVEL) != (second["random_p_value"] <= LEVEL)
    for row in first.filter(crossed).select("model", *PLACE).iter_rows(named=True):
        print("p-value crosses 0.01:", row)
    print(f"{int(crossed.sum())} p-values cross 0.01")


def compare_findings(claims: Claims, source: str, folder: Path) -> None:
    models = list(damaged_models(folder))
    ours, theirs = (
        json.loads((out / "findings.json").read_text())
        for out in run_both("findings", source, folder, models)
    )
    different = [model for model in models if ours[model] != theirs[model]]
    for model in different:
        print(model, "now:", ours[model], "before:", theirs[model], sep="\n  ")
    claims.add(
        f"models with other findings, of {len(models)} sound and damaged ones",
        f"{len(different)} models",
        "the version before",
        len(different),
        0,
        least=False,
    )


TABLES = ("matrices", "fits")
SIDES = {"tables": write_tables, "findings": write_findings}


def compare_commands(claims: Claims, source: str, runs: int = 2) -> None:
    """Compare commands with those of another version in the folder `source`. They take turns."""
    with tempfile.TemporaryDirectory() as name:
        folders = Path(name) / "ours", Path(name) / "theirs"
        for command, (words, goal) in COMMANDS.items():
            seconds = {folder: float("inf") for folder in folders}
            for _ in range(runs):
                for folder, path in zip(folders, (str(ROOT / "src"), source), strict=True):
                    out = [str(folder)] if words[-1] == "--out" else []
                    took = process_seconds(["-m", "attnlaw", *words, *out], 1, path)
                    seconds[folder] = min(seconds[folder], took)
            ours, theirs = seconds.values()
            claims.add(
                f"`attnlaw` {command} on the tiny decoder, CPU seconds of a fresh process",
                f"{ours:.2f} s",
                f"the version before: {theirs:.2f} s",
                theirs / ours,
                goal,
            )
        claims.add(
            "rows of fits.parquet of the tiny decoder that differ",
            "",
            "the version before",
            different_fits(*(pl.read_parquet(folder / "fits.parquet") for folder in folders)),
            0,
            least=False,
        )


def different_fits(ours: pl.DataFrame, theirs: pl.DataFrame) -> int:
    """Count the rows of which a number differs by more than a millionth, or anything else at all."""
    names = [name for name in theirs.columns if name in ours.columns and name != "attnlaw_version"]
    if ours.height != theirs.height:
        return max(ours.height, theirs.height)
    different = np.zeros(ours.height, dtype=bool)
    for name in names:
        first, second = ours[name], theirs[name]
        if first.dtype == pl.Float64:
            near = np.isclose(first.to_numpy(), second.to_numpy(), rtol=1e-6, atol=0, equal_nan=True)
            different |= ~near
        else:
            different |= ~first.eq_missing(second).to_numpy()
    return int(different.sum())


def main() -> int:
    claims = Claims()
    with tempfile.TemporaryDirectory() as name:
        compare_numbers(claims, sys.argv[1], Path(name))
        compare_findings(claims, sys.argv[-1], Path(name))
    compare_commands(claims, sys.argv[1])
    return claims.finish()


if __name__ == "__main__":
    if sys.argv[1] == "--side":
        SIDES[sys.argv[2]](sys.argv[3], sys.argv[4:])
    else:
        sys.exit(main())
