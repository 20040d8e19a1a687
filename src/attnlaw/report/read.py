"""Whatever attnlaw wrote into a directory, checked before anything is drawn.

| directory | holds |
|---|---|
| a command with `--out` | `attnlaw.json` (verb, version), `rows.parquet`, `TABLE.parquet` with `case` |
| a study | `rows/rows.parquet` (of several verbs), `tables/TABLE/TASK.parquet` |
| an audit | `summary.json`, `matrices.parquet`, `spectra.parquet`, `layers.parquet`, and of fits as below |
| fits | `fits.parquet`, `curves.parquet` |
| a monitored training run | `steps.parquet` |

A declared column that is missing, as in rows of an older version, is null; one of another kind is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnlaw.base.errors import InputError, require_found, telling
from attnlaw.base.files import read_json
from attnlaw.base.results import STORE, STUDY_ROWS, WRITTEN
from attnlaw.report.read_audit import read_audited, read_fits
from attnlaw.report.read_rows import read_command, read_study
from attnlaw.report.saved import Saved
from attnlaw.report.step_charts import step_figures
from attnlaw.training.quantities import read_steps

MONITOR = "write it again with attnlaw.training.SpectralMonitor"


def read_saved(folder: Path) -> Saved:
    """What the directory holds, by the verb in `attnlaw.json` or by the files in it."""
    with telling(f"{folder}: cannot be looked at", "give a directory that attnlaw wrote"):
        known = next((name for name, (file, _) in READERS.items() if (folder / file).exists()), None)
        name = _written(folder / WRITTEN) if (folder / WRITTEN).exists() else known
        running = (folder / STORE).exists()
    if name is not None:
        return READERS[name][1](folder) if name in READERS else read_command(folder, name)
    if running:
        raise InputError(
            f"{folder}: holds a study that is not exported yet; attnlaw study export FILE --out {folder}"
        )
    files = ", ".join(str(file) for file, _ in READERS.values())
    raise InputError(f"{folder}: found neither {WRITTEN} nor {files}; give a directory that attnlaw wrote")


def _written(path: Path) -> str:
    """The verb that `attnlaw.json` names."""
    found = read_json(path, "write the directory again")
    if not isinstance(found, dict) or not isinstance(found.get("verb"), str):
        raise InputError(f"{path}: names no verb; write the directory again")
    return str(found["verb"])


def _steps(folder: Path) -> Saved:
    path = folder / "steps.parquet"
    rows = read_steps(path, MONITOR)
    require_found(rows.height, path, "rows", MONITOR)
    return Saved(folder, "Training run", rows, figures=tuple(step_figures(rows)))


READERS: dict[str, tuple[Path, Callable[[Path], Saved]]] = {
    "audit": (Path("summary.json"), read_audited),
    "study": (STUDY_ROWS, read_study),
    "monitor": (Path("steps.parquet"), _steps),
    "fit": (Path("fits.parquet"), read_fits),
}
