"""A table of attacks against `attnlaw audit` in one process: one line for each, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trust.attack import Attack
from trust.command import CORE, Interpreter, Outcome, run


def attacked(attacks: Sequence[Attack], folder: Path, interpreter: Interpreter = CORE) -> Outcome:
    """Audit what every attack writes, each in a folder of its own, all in one command."""
    paths = []
    for attack in attacks:
        place = folder / attack.name
        place.mkdir()
        paths.append(attack.write(place))
    return run("audit", *paths, "--jobs", "1", folder=folder, interpreter=interpreter)


def refusal(attack: Attack, outcome: Outcome) -> str:
    """The one line that an attack ended in; it is printable, short, and says what to do."""
    (line,) = (
        line for line in outcome.refusals() if f"/{attack.name}/" in line or line.endswith(f"/{attack.name}")
    )
    assert line.startswith("attnlaw: ")
    assert line.isprintable()
    assert len(line) < 2500
    assert ";" in line
    assert attack.says in line
    return line
