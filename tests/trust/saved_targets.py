"""What attnlaw wrote and reads again, as functions of bytes: manifests, rows, a study's store."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from study.sample_verbs import study

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.report import write_report
from attnlaw.study import run, status
from attnlaw.study.export import export
from attnlaw.study.store import open_store
from attnlaw.verbs import find_verb
from attnlaw.verbs.views import figures_of, load, page_of

SEED_STUDY = 'verb = "draw"\n[grid]\nx = [1, 2, 3]\n'
TABLES = ("matrices", "layers", "fits")
DONE = {"status": "done"}
LEARN = {"tokens": 2, "output": "linear", "noise": 0.1, "weight_decay": 0.1, "student": "direct"}
FOUND = {"estimation_error": 0.3, "relative_error": 0.6}
DISTANCES = {"kl_to_limit": 0.1, "kl_to_limit_error": 0.01, "w1_to_limit": 0.2, "w1_to_limit_error": 0.01}
PATHS = {f"path_{name}": [1.0, 0.5] for name in ("squared_length", "cosine")}
PATH_ERRORS = {f"{name}_error": [0.1, 0.1] for name in PATHS}


@cache
def _audit_files() -> dict[str, bytes]:
    """The files of a small audit with fits."""
    rng = np.random.default_rng(0)
    weights = {"in_proj_weight": rng.standard_normal((24, 8)), "out_proj.weight": rng.standard_normal((8, 8))}
    with TemporaryDirectory() as folder:
        attnlaw.audit(weights, heads=2, name="one").save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def write_audit(folder: Path) -> None:
    """The audit, as it was saved."""
    for name, data in _audit_files().items():
        (folder / name).write_bytes(data)


def manifests() -> list[bytes]:
    """The file that says what it is."""
    return [_audit_files()["attnlaw.json"]]


def with_manifest(folder: Path, data: bytes) -> Path:
    (folder / "attnlaw.json").write_bytes(data)
    return folder


def audit_tables() -> list[bytes]:
    """The numbers of its tables, as JSON."""
    files = _audit_files()
    tables = {name: pl.read_parquet(files[f"{name}.parquet"]).head(3).to_dicts() for name in TABLES}
    return [json.dumps(tables, indent=0).encode()]


def with_tables(folder: Path, data: bytes) -> Path:
    """The audit with rows of its tables from JSON; what is no table of them stands there as it is."""
    try:
        content = json.loads(data)
        tables = {name: _parquet(content[name]) for name in TABLES}
    except (KeyError, IndexError, TypeError, ValueError, RecursionError):
        tables = dict.fromkeys(TABLES, data)
    with_manifest(folder, json.dumps({"verb": "audit", "version": attnlaw.__version__}).encode())
    for name, table in tables.items():
        (folder / f"{name}.parquet").write_bytes(table)
    return folder


def study_rows() -> list[bytes]:
    """Rows of studies that draw every kind of figure."""
    studies = (_learned(), _learned()[3:], _phases(), _powers(), _limits())
    return [json.dumps(rows, indent=0).encode() for rows in studies]


def _learned() -> list[dict[str, Any]]:
    theory = [
        {"verb": "learn", "task": f"a{alpha}", "alpha": alpha / 10, "target_rank": 0.5} | LEARN | FOUND
        for alpha in (1, 2, 4)
    ]
    theory[0] |= {"atom_at_zero": 0.5, "outlier": 2.0, "threshold_perfect": 0.3, "threshold_peak_error": 1.0}
    trained = [
        {**row, "verb": "learn.simulate", "task": f"s{number}", "simulate": 20, "seed": number}
        for number, row in enumerate(theory)
    ]
    return [row | DONE for row in theory + trained]


def _phases() -> list[dict[str, Any]]:
    return [
        {"verb": "learn", "task": f"p{alpha}{rank}", "alpha": alpha / 10, "target_rank": rank / 4}
        | {"threshold_perfect": rank / 5, **LEARN, **FOUND, **DONE}
        for alpha in (1, 2, 3)
        for rank in (1, 2, 3)
    ]


def _powers() -> list[dict[str, Any]]:
    target = {"target_exponent": 0.7, "target_dimension": 200, "leading_error": 0.2}
    target |= {"predicted_exponent": -0.4, "target_rank": 1.0}
    return [
        {"verb": "learn", "task": f"w{alpha}", "alpha": alpha / 10} | LEARN | FOUND | target
        | {"estimation_error": 1 / alpha, **DONE}
        for alpha in (1, 2, 4, 8)
    ]  # fmt: skip


def _limits() -> list[dict[str, Any]]:
    shape = {
        "tokens": 4,
        "activation": "softmax",
        "mask": "none",
        "depth": 1,
        "scaling": "sqrt",
        "head_width": 8.0,
    }
    more = {"kl_to_gaussian": 0.1, "kl_to_gaussian_error": 0.01, "kernel_kl_to_limit": 0.1}
    return [
        {"verb": "limit", "task": f"l{heads}x{width}", "heads": heads, "width": float(width)}
        | {**shape, **DISTANCES, **more, **PATHS, **PATH_ERRORS, **DONE}
        for heads in (1, 2)
        for width in (16, 64)
    ]


def write_tables_beside(folder: Path) -> None:
    """The tables of the first case: densities, predicted spectra and eigenvalues."""
    x, density, case = [0.0, 1.0, 2.0], [0.1, 0.5, 0.1], [0, 0, 0]
    spectrum = {"x": x, "density": density, "interval": case, "case": case}
    law = {"y": x, "density": density, "gaussian_density": density, "ratio": density, "case": case}
    eigenvalues = {"eigenvalue": x, "case": case}
    tables = {"predicted_spectra": spectrum, "eigenvalues": eigenvalues, "densities": law}
    for name, columns in tables.items():
        (folder / f"{name}.parquet").write_bytes(_parquet(columns))


def with_rows(folder: Path, data: bytes) -> Path:
    """A study's rows from JSON, by their verbs; what is no table stands there as it is."""
    (folder / "simulation.parquet").unlink(missing_ok=True)
    try:
        rows: dict[str, list[Any]] = {}
        for row in json.loads(data):
            rows.setdefault(row["verb"], []).append(dict.fromkeys(find_verb(row["verb"]).schema) | row)
        verb = find_verb(next(iter(rows)))
        tables = {"rows": _parquet(rows[verb.name])}
        if verb.simulation is not None and verb.simulation.name in rows:
            tables["simulation"] = _parquet(rows[verb.simulation.name])
    except (KeyError, AttributeError, StopIteration, TypeError, ValueError, RecursionError, InputError):
        verb, tables = find_verb("learn"), {"rows": data}
    for name, table in tables.items():
        (folder / f"{name}.parquet").write_bytes(table)
    (folder / "attnlaw.json").write_text(json.dumps({"verb": verb.name, "version": attnlaw.__version__}))
    return folder


def _parquet(rows: Any) -> bytes:
    if not isinstance(rows, list | dict):
        raise TypeError
    try:
        table = pl.DataFrame(rows, infer_schema_length=None, strict=False)
        buffer = io.BytesIO()
        table.write_parquet(buffer)
    except (OverflowError, AttributeError, pl.exceptions.PolarsError) as error:
        raise ValueError from error
    return buffer.getvalue()


def report(folder: Path) -> None:
    write_report([folder], folder / "page")


def draw_study(folder: Path) -> None:
    """A report without the drawings themselves, which take most of its time."""
    result = load(folder)
    for figure in figures_of(result):
        figure.draw().to_dict(validate=False)
    page_of(result, [])


def write_study(folder: Path) -> None:
    """A finished study of three tasks in `out`, beside its file."""
    run(study(folder, SEED_STUDY), folder / "out")


def stores() -> list[bytes]:
    """Its store."""
    with TemporaryDirectory() as folder:
        write_study(Path(folder))
        return [Path(folder, "out", "store.sqlite").read_bytes()]


def with_store(folder: Path, data: bytes) -> Path:
    for name in ("store.sqlite-wal", "store.sqlite-shm"):
        (folder / "out" / name).unlink(missing_ok=True)
    (folder / "out" / "store.sqlite").write_bytes(data)
    return folder


def read_store(folder: Path) -> None:
    sample_study = study(folder, SEED_STUDY)
    status(sample_study, folder / "out")
    with open_store(folder / "out") as store:
        export(sample_study, store)
