"""Record what the frozen commands print and write: `python tests/frozen/record.py [--words] [NAME...]`.

Run it on the version that later ones must agree with. It writes `outputs.json.gz`; names on the command line
are recorded again, and the others keep their record. With `--words` only words are recorded again: what a
terminal shows, pages, figures, and sentences inside JSON and tables. Numbers, names and exit statuses keep
the record of version 0.2.0.
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

SHOWN_TO_PEOPLE = ("text", "texts", "images")
OUTPUTS = Path(__file__).with_name("outputs.json.gz")


def read_record() -> dict[str, Any]:
    """Return the recording machine under `machine`, and the run of every command under `runs`."""
    record: dict[str, Any] = json.loads(gzip.decompress(OUTPUTS.read_bytes()))
    return record


def replace_words(old: Any, new: Any) -> Any:
    """Return `old` with the sentences of `new`. A text without a space is a name and stays.

    >>> replace_words({"x": 1.0, "law": "random", "says": "told of it"}, {"x": 2.0, "says": "a law fits"})
    {'x': 1.0, 'law': 'random', 'says': 'a law fits'}
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: replace_words(value, new.get(key)) for key, value in old.items()}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [replace_words(*pair) for pair in zip(old, new, strict=True)]
    is_sentence = isinstance(old, str) and isinstance(new, str) and " " in old
    return new if is_sentence else old


def write_record(names: list[str], only_words: bool = False) -> None:
    """Run the commands of these names, or all of them, and write what they gave."""
    runs = read_record()["runs"] if names or only_words else {}
    for name in names or COMMANDS:
        new = run(COMMANDS[name]).to_dict()
        if only_words:
            new = replace_words(runs[name], new) | {part: new[part] for part in SHOWN_TO_PEOPLE}
        runs[name] = new
        print(f"{name:28} exit {runs[name]['status']}  CPU {runs[name]['cpu']:6.2f} s", flush=True)
    made_on = read_record()["machine"] if only_words else machine()
    record = {"machine": made_on, "runs": {name: runs[name] for name in COMMANDS if name in runs}}
    text = json.dumps(record, separators=(",", ":"))
    OUTPUTS.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    words = sys.argv[1:]
    write_record([word for word in words if word != "--words"], only_words="--words" in words)
