"""Compare the command line with what 0.1.0 gave: `python tests/frozen/compare.py [--old-words] [NAME...]`.

Every number and word of the recorded output is looked for in the new one through the table of names.py and
must be the same in every bit; what is meant to differ, or to be near, stands in that table with its reason.
`--old-words` runs the words of 0.1.0 and expects its names; `--show` prints both texts of a command that
prints a table.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from frozen.commands import COMMANDS
from frozen.names import near, new_cases, old_cases, places, reason, told
from frozen.record import recorded
from frozen.running import Run, machine, run
from real_checkpoints import Unavailable

MAIN = "attnlaw.command:main"
OTHER_MACHINE = "last bits may differ"
SHOWN = 12  # differences of a command that are printed
Flat = dict[str, Any]


@dataclass
class Comparison:
    """What became of the values of one command."""

    equal: int = 0
    differing: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    allowed: Counter[str] = field(default_factory=Counter)

    @property
    def passed(self) -> bool:
        return not self.differing and not self.missing

    def line(self) -> str:
        counts = f"{self.equal:6} equal {len(self.differing):5} differ {len(self.missing):5} missing"
        return f"{counts} {self.allowed.total():5} allowed"


def flat(given: Run, verb: str, is_old: bool) -> Flat:
    """All values of a run by their paths, and how many cases and rows there are."""
    found: Flat = {"exit/code": given.status}
    cases = old_cases if is_old else new_cases
    documents = {f"{name}:": content for name, content in given.documents.items()}
    for before, content in (documents if given.json is None else {"": given.json} | documents).items():
        for name, objects in cases(verb, content).items():
            found |= _leaves(objects, before + name)
            found |= {f"count/{before}{name}": len(objects)}
    for name, table in given.tables.items():
        found[f"count/{name}"] = max(map(len, table.values()), default=0)
        for column, values in table.items():
            for row, value in enumerate(values):
                found |= _leaves(value, f"{name}/{row}/{column}")
    return found | {f"wrote/{name}": True for name in given.files}


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(inner, f"{path}/{key}")
    else:
        yield path, math.inf if value == "inf" else value


def compare(name: str, before: Flat, after: Flat, old_words: bool) -> Comparison:
    """Every old value beside the new one; a value that was null may be left out."""
    result = Comparison()
    for path, old in (before if old_words else told(before)).items():
        at = [path] if old_words else list(places(path))
        held = next((place for place in at if after.get(place) is not None), None)
        new = None if held is None else after[held]
        if same(old, new):
            result.equal += old is not None
        elif why := reason(name, path, is_null=old is None) or near(name, path, old, new):
            result.allowed[why] += 1
        elif held is None:
            result.missing.append(f"{path} = {old!r}; looked for {' or '.join(at) or 'nowhere'}")
        else:
            result.differing.append(f"{path} = {old!r}, now {new!r}{_relative(old, new)} at {held}")
    return result


def same(old: Any, new: Any) -> bool:
    """Whether two values are one: floats in every bit; a whole number may have become a float.

    >>> same(0.1, 0.1), same(0.0, -0.0), same(2, 2.0), same(True, 1), same(math.nan, math.nan)
    (True, False, True, False, True)
    """
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, float) and isinstance(new, float):
        return repr(old) == repr(new)
    return bool(old == new)


def _relative(old: Any, new: Any) -> str:
    if not all(isinstance(value, int | float) for value in (old, new)) or not old:
        return ""
    return f" (relative difference {abs(new - old) / abs(old):.1e})"


def main() -> int:
    """Compare the named commands, all unless given; 1 where something differs without a reason."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(COMMANDS))
    parser.add_argument("--old-words", action="store_true", help="the words and names of 0.1.0")
    parser.add_argument("--show", action="store_true", help="print the tables of 0.1.0 and of now")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in COMMANDS]:
        parser.error(f"no command is called {', '.join(unknown)}; choose from {', '.join(COMMANDS)}")
    kept = recorded()
    if kept["machine"] != machine():
        print(f"recorded with {kept['machine']}, compared with {machine()}: {OTHER_MACHINE}")
    failed, reasons = False, Counter[str]()
    for name in given.names or COMMANDS:
        before = Run(**kept["runs"][name])
        try:
            after = run(COMMANDS[name], MAIN, given.old_words)
        except Unavailable as why:
            print(f"{name:26} left out: {why}")
            continue
        found = _compared(name, before, after, given.old_words)
        print(f"{name:26} {found.line()}   CPU {before.cpu:.1f} -> {after.cpu:.1f} s", flush=True)
        for line in [*found.differing[:SHOWN], *found.missing[:SHOWN]]:
            print(f"    {line}")
        if after.status != before.status:
            print(f"    {after.text.strip()}")
        if given.show and before.text:
            print(f"0.1.0:\n{before.text}\nnow:\n{after.text}")
        failed |= not found.passed
        reasons += found.allowed
    for why, count in reasons.items():
        print(f"allowed {count}: {why}")
    return int(failed)


def _compared(name: str, before: Run, after: Run, old_words: bool) -> Comparison:
    """All values of two runs; of the same words also the tables they print, whose lines may end elsewhere."""
    verb = COMMANDS[name].verb
    old, new = flat(before, verb, is_old=True), flat(after, verb, is_old=old_words)
    if old_words:
        old["printed/text"], new["printed/text"] = " ".join(before.text.split()), " ".join(after.text.split())
    return compare(name, old, new, old_words)


if __name__ == "__main__":
    sys.exit(main())
