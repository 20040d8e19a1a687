"""Record what the commands of 0.1.0 print and write: `PYTHONPATH=OLD/src python tests/frozen/record.py`.

OLD is a checkout of 0.1.0. The file beside this one is written anew, the same for the same numbers but for
CPU times; names given on the command line are recorded anew, and the others kept.
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
MAIN = "attnlaw.cli:main"


def recorded() -> dict[str, Any]:
    """The machine under `machine`, and what every command gave under `runs`."""
    found: dict[str, Any] = json.loads(gzip.decompress(OUTPUTS.read_bytes()))
    return found


def record(names: list[str]) -> None:
    """Run the old commands of these names, all of them unless given, and write what they gave."""
    runs = recorded()["runs"] if names else {}
    for name in names or COMMANDS:
        runs[name] = run(COMMANDS[name], MAIN, old_words=True).describe()
        print(f"{name:28} exit {runs[name]['status']}  CPU {runs[name]['cpu']:6.2f} s", flush=True)
    content = {"machine": machine(), "runs": {name: runs[name] for name in COMMANDS if name in runs}}
    text = json.dumps(content, separators=(",", ":"))
    OUTPUTS.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    record(sys.argv[1:])
