"""A run of a study in a process of its own, to be killed: python driver.py FILE DIR [JOBS]."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

CPU_SECONDS = 120  # far more than any of these runs needs

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from study.sample_verbs import find

    from attnlaw.study import Place, read_study, run

    file, out, *rest = sys.argv[1:]
    standing = run(read_study(file, find), out, Place(jobs=int(rest[0]) if rest else None))
    sys.stdout.write(json.dumps(standing.describe()))
