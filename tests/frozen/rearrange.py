"""Rearrange the record of 0.2.0 to the layout of 0.3: `python tests/frozen/rearrange.py`, run once.

Values are moved, none is changed. Rows of a simulation go to `simulation.parquet`, rows of a study from `rows/rows.parquet` to
`rows.parquet` (further verbs: `VERB/rows.parquet`), and `tokens.parquet` of a lens becomes `input_tokens.parquet`. Columns of
another verb are dropped; the script fails if one holds a value.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from frozen.record import OUTPUTS, read_record

from attnlaw.verbs import find_verb

record = read_record()
for name, run in record["runs"].items():
    tables = run["tables"]
    old = "rows/rows.parquet" if "rows/rows.parquet" in tables else "rows.parquet"
    if old in tables:
        rows = tables.pop(old)
        verbs = list(dict.fromkeys(rows["verb"]))
        whole = {verb for verb in verbs if "." not in verb} or set(verbs)
        first = next(verb for verb in verbs if verb in whole)
        for verb in verbs:
            places = [i for i, other in enumerate(rows["verb"]) if other == verb]
            columns = {column: [values[i] for i in places] for column, values in rows.items()}
            known = {*find_verb(verb).schema, "task"}
            for column in [column for column in columns if column not in known]:
                values = columns.pop(column)
                if column != "case" and not column.endswith("_part") and any(value is not None for value in values):
                    raise ValueError(f"{name}: {column} of {verb} holds {values}")
            target = "rows.parquet" if verb == first else f"{verb}/rows.parquet"
            tables["simulation.parquet" if verb == f"{first}.simulate" else target] = columns
            for spec in find_verb(verb).tables:
                table = tables.get(f"{spec.name}.parquet", {})
                if "case" in table:
                    table["case"] = [places.index(case) for case in table["case"]]
    if "tokens.parquet" in tables:
        tables["input_tokens.parquet"] = tables.pop("tokens.parquet")
    run["tables"] = dict(sorted(tables.items()))
OUTPUTS.write_bytes(gzip.compress(json.dumps(record, separators=(",", ":")).encode(), mtime=0))
