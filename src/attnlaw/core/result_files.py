"""Results in a directory: rows, what wrote them, and the page that the report makes of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from attnlaw.core.files import as_write_error, require_replaceable, to_json, writable_directory, write_all
from attnlaw.core.version import version

# Names the verb and the version that wrote a directory.
MANIFEST_FILE = "attnlaw.json"
ROWS = "rows.parquet"
# Of a study: its rows, and those that a run has kept so far.
STUDY_ROWS = Path("rows", ROWS)
STORE = "store.sqlite"


def save_results(
    directory: str | os.PathLike[str], verb: str, files: Mapping[str, bytes], figures: str | None = None
) -> Path:
    """Write the files of a result, attnlaw.json and report.html; with `figures` ("pdf") figures/ too.

    The report, which nothing below it imports, is asked by name, here alone. It draws from a copy of the
    rows: what cannot be drawn leaves an earlier run whole.
    """
    folder = writable_directory(directory)
    about = to_json({"verb": verb, "version": version()})
    contents = {require_replaceable(folder / name): data for name, data in files.items()}
    contents[require_replaceable(folder / MANIFEST_FILE)] = f"{about}\n".encode()
    with as_write_error(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".rows.") as copy:
        for path, data in contents.items():
            (Path(copy) / path.name).write_bytes(data)
        import_module("attnlaw.report.write").write_report([copy], out=folder, figures=figures)
    write_all(contents)
    return folder
