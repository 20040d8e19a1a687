"""What an attack is: files that it writes, the path that a user would then give, and what must be said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoints.spoiled import CONFIG


@dataclass(frozen=True)
class Attack:
    """`write(folder)` returns the path to open; the refusal is one line that names it and says `says`."""

    name: str
    write: Callable[[Path], Path]
    says: str


def with_config(folder: Path, **changes: Any) -> Path:
    """A folder with a good config.json, so that nothing but the attack can be refused."""
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return folder
