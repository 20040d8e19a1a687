"""Record what the frozen commands print and write: `python tests/frozen/record.py [NAME...]`.

Run it on the version that later ones must agree with. It writes `outputs.json.gz`; names on the command line
are recorded again, and the others keep their record.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from frozen.commands import COMMANDS
from frozen.running import machine, run

OUTPUTS = Path(__file__).with_name("outputs.json.gz")


def read_record() -> dict[str, Any]:
    """Return the recording machine under `machine`, and the run of every command under `runs`."""
    record: dict[str, Any] = json.loads(gzip.decompress(OUTPUTS.read_bytes()))
    return record


def write_record(names: list[str]) -> None:
    """Run the commands of these names, or all of them, and write what they gave."""
    runs = read_record()["runs"] if names else {}
    for name in names or COMMANDS:
        runs[name] = run(COMMANDS[name]).to_dict()
        print(f"{name:28} exit {runs[name]['status']}  CPU {runs[name]['cpu']:6.2f} s", flush=True)
    record = {"machine": machine(), "runs": {name: runs[name] for name in COMMANDS if name in runs}}
    text = json.dumps(record, separators=(",", ":"))
    OUTPUTS.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    write_record(sys.argv[1:])
