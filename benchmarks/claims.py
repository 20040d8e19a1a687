"""Claims that a benchmark makes: printed where they are measured, collected by table.py where it asks."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Claims:
    """The claims of one benchmark; `finish` prints them and gives the exit status."""

    rows: list[dict[str, object]] = field(default_factory=list)

    def add(self, task: str, ours: str, peer: str, measured: float, goal: float, least: bool = True) -> None:
        """A ratio that should be at least `goal` (or a quantity at most `goal`, with least=False)."""
        measured = float(measured)
        holds = measured >= goal if least else measured <= goal
        self.rows.append(
            {
                "task": task,
                "ours": ours,
                "peer": peer,
                "measured": measured,
                "goal": goal,
                "least": least,
                "holds": holds,
            }
        )

    def finish(self) -> int:
        for row in self.rows:
            bound = "at least" if row["least"] else "at most"
            verdict = "" if row["holds"] else "  MISSED"
            print(f"{row['measured']:10.4g}  {row['task']}: {row['ours']}, {row['peer']} ", end="")
            print(f"(claimed: {bound} {row['goal']:g}){verdict}")
        if "ATTNLAW_CLAIMS" in os.environ:
            with Path(os.environ["ATTNLAW_CLAIMS"]).open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in asdict(self)["rows"])
        return int(not all(row["holds"] for row in self.rows))
