"""Whatever attnlaw wrote into a directory, checked before anything is drawn.

| directory | holds |
|---|---|
| a command with `--out` | `attnlaw.json` (verb, version), `rows.parquet`, `TABLE.parquet` with `case` |
| a study | `rows/rows.parquet` (of several verbs), `tables/TABLE/TASK.parquet` |
| an audit | `summary.json`, `matrices.parquet`, `spectra.parquet`, `layers.parquet`, and of fits as below |
| fits | `fits.parquet`, `curves.parquet` |
| a monitored training run | `steps.parquet` |

attnlaw 0.2.0 or later must have written it. A declared column that is missing is null; one of another kind is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnlaw.core.errors import InputError, as_input_error, require_some
from attnlaw.core.files import read_json
from attnlaw.core.result_files import MANIFEST_FILE, STORE, STUDY_ROWS
from attnlaw.report.read_audit import read_fits, read_saved_audit
from attnlaw.report.read_rows import read_command, read_study
from attnlaw.report.saved import SavedResults
from attnlaw.training.charts import step_figures
from attnlaw.training.columns import read_steps

MONITOR_REMEDY = "write it again with attnlaw.training.SpectralMonitor"


def read_saved(folder: Path) -> SavedResults:
    """What the directory holds, by the verb in `attnlaw.json` or by the files in it."""
    with as_input_error(f"{folder}: cannot be looked at", "give a directory that attnlaw wrote"):
        known = next((name for name, file in FILES.items() if (folder / file).exists()), None)
        name = _read_verb_name(folder / MANIFEST_FILE) if (folder / MANIFEST_FILE).exists() else known
        running = (folder / STORE).exists()
    if name is not None:
        return READERS[name](folder) if name in READERS else read_command(folder, name)
    if running:
        raise InputError(
            f"{folder}: holds a study that is not exported yet; attnlaw study export FILE --out {folder}"
        )
    files = " nor ".join(map(str, (MANIFEST_FILE, *FILES.values())))
    raise InputError(f"{folder}: found neither {files}; give a directory that attnlaw 0.2.0 or later wrote")


def _read_verb_name(path: Path) -> str:
    """The verb that `attnlaw.json` names."""
    document = read_json(path, "write the directory again")
    if not isinstance(document, dict) or not isinstance(document.get("verb"), str):
        raise InputError(f"{path}: names no verb; write the directory again")
    return str(document["verb"])


def _read_run(folder: Path) -> SavedResults:
    path = folder / "steps.parquet"
    rows = read_steps(path, MONITOR_REMEDY)
    require_some(rows.height, path, "rows", MONITOR_REMEDY)
    return SavedResults(folder, "Training run", rows, figures=tuple(step_figures(rows)))


# What tells a directory without attnlaw.json.
FILES = {"study": STUDY_ROWS, "monitor": Path("steps.parquet")}
READERS: dict[str, Callable[[Path], SavedResults]] = {
    "audit": read_saved_audit,
    "fit": read_fits,
    "study": read_study,
    "monitor": _read_run,
}
