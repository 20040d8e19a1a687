"""Run a small part of every study that ships:  python studies.py TESTS [NAME...]

TESTS is the folder of the tests, which say what a small part is. A study that needs an extra which is not
installed is refused in words that name it, and is listed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from attnlaw.study import Backend, run
from attnlaw.study.shipped import shipped_studies


def main(tests: str, *names: str) -> None:
    sys.path.append(tests)
    from study.small_studies import SMALL, small

    failed, refused = [], []
    for name in names or sorted(set(SMALL) & set(shipped_studies())):
        with tempfile.TemporaryDirectory() as folder:
            failures = run(small(name), Path(folder), Backend()).failures
        message = " ".join(str(failure.error) for failure in failures)
        if failures:
            (refused if "pip install 'attnlaw[" in message else failed).append(f"{name}: {message[:200]}")
        print(f"{name}: {'done' if not failures else message[:200]}", flush=True)
    print(f"{len(refused)} need an extra")
    sys.exit(f"failed: {failed}" if failed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
