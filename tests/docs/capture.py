"""Write into the pages what their commands print now:  python tests/docs/capture.py [PAGE...]

Output that still agrees stays as it is, with its `...`. What differs is replaced: whole, or, if only a `...`
at its end leaves lines out, as many lines as before.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from docs.sessions import PAGES, ROOT, Exchange, Session


def capture(page: Path) -> list[Exchange]:
    """Run a page and correct it; what was replaced."""
    with tempfile.TemporaryDirectory() as folder:
        replaced = [done for done in Session(page, Path(folder)).run() if not done.agrees]
    lines = page.read_text(encoding="utf-8").splitlines()
    for done in reversed(replaced):  # from the bottom, so that line numbers above stay true
        new = [(" " * done.indent + line).rstrip() for line in done.printed.splitlines()]
        old = lines[done.first : done.first + done.count]
        gaps = [number for number, line in enumerate(old) if line.strip() == "..."]
        if gaps == [len(old) - 1] and len(new) > len(old):
            new = [*new[: len(old) - 1], old[-1]]
        lines[done.first : done.first + done.count] = new
    if replaced:
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return replaced


def main() -> None:
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        for done in capture(page):
            sys.stdout.write(f"{page.relative_to(ROOT)}:{done.first}: {done.source.splitlines()[0]}\n")


if __name__ == "__main__":
    main()
