"""The versions that `make floors` tests are the oldest that pyproject.toml allows."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
TOOLS = ("docs", "test", "bench")  # extras of those who work on attnlaw, not of those who use it


def test_the_floors_are_those_that_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    used = [names for extra, names in project["optional-dependencies"].items() if extra not in TOOLS]
    declared = {
        requirement.name: Version(bound.version)
        for names in [project["dependencies"], *used]
        for requirement in map(Requirement, names)
        for bound in requirement.specifier
        if requirement.name != project["name"]
    }
    lines = [line for line in (ROOT / "floors.txt").read_text().splitlines() if not line.startswith("#")]
    tested = {name: Version(version) for name, version in (line.split("==") for line in lines)}
    # distributed comes as an extra of dask.
    assert tested.pop("distributed") == declared["dask"]
    assert tested == declared
