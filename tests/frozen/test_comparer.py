"""The comparer finds what changed: one bit, a value that is gone, and old values under their new names."""

from __future__ import annotations

import math

from frozen.commands import COMMANDS
from frozen.compare import compare, flat
from frozen.record import recorded
from frozen.running import Run

ENDS = {"status": "done", "remark": None, "version": "0.2.0"}


def kept(name: str) -> Run:
    return Run(**recorded()["runs"][name])


def given(json: object) -> Run:
    return Run(0, 1.0, json, "", {}, {}, [])


def test_every_command_is_recorded_and_equals_itself():
    runs = recorded()["runs"]
    assert list(runs) == list(COMMANDS)
    for name, command in COMMANDS.items():
        values = flat(Run(**runs[name]), command.verb, is_old=True)
        found = compare(name, values, values, old_words=True)
        assert found.passed
        assert not found.allowed


def test_one_bit_and_a_lost_value_are_found():
    old = flat(kept("audit-out"), "audit", is_old=True)
    path = "matrices.parquet/17/share"
    found = compare("audit-out", old, old | {path: math.nextafter(old[path], 1.0)}, old_words=True)
    assert [line.split(" = ")[0] for line in found.differing] == [path]
    del (less := dict(old))[path]
    found = compare("audit-out", old, less, old_words=True)
    assert [line.split(" = ")[0] for line in found.missing] == [path]


def test_learn_and_its_simulation_are_two_cases():
    old = kept("learn-simulate")
    theory, trained = old.json["prediction"], old.json["simulation"]
    spectrum = theory.pop("spectrum")
    settings = {name: value for name, value in old.json["problem"].items() if name != "target"}
    quantities = {name: {"value": value, "error": None} for name, value in theory.items() if name != "status"}
    quantities |= {f"threshold_{name}": value for name, value in old.json["thresholds"].items()}
    quantities |= {
        "atom_at_zero": spectrum["atom_at_zero"],
        "edges": [end for pair in spectrum["edges"] for end in pair],
    }
    means = {
        name: {"value": value["mean"], "error": value["standard_error"]}
        for name, value in trained.items()
        if isinstance(value, dict)
    }
    plain = {name: trained[name] for name in ("samples", "solver", "residual")}
    new = [
        {
            "verb": "learn",
            "settings": settings | {"target_rank": 0.5},
            "quantities": quantities,
            **ENDS,
        },
        {
            "verb": "learn.simulate",
            "settings": {"simulate": 20, "seeds": 3, "seed": 1, "sensing": "tokens"},
            "quantities": means | plain,
            **ENDS,
        },
    ]
    before = flat(kept("learn-simulate"), "learn", is_old=True)
    found = compare("learn-simulate", before, flat(given(new), "learn", is_old=False), old_words=False)
    assert found.differing == found.missing == []
    for apart, differ in ((2**-52, 0), (1e-10, 1)):
        new[1]["quantities"]["norm"]["error"] *= 1 + apart
        found = compare("learn-simulate", before, flat(given(new), "learn", is_old=False), old_words=False)
        assert len(found.differing) == differ


def test_limit_has_a_case_for_every_number_of_heads_and_width():
    old = kept("limit")
    new = [
        {
            "verb": "limit",
            "settings": {name: value for name, value in table.items() if name != "rows"}
            | {"width": row["width"]},
            "quantities": {name: value for name, value in row.items() if name != "width"},
            **ENDS,
        }
        for table in old.json
        for row in table["rows"]
    ]
    assert len(new) == 6
    before = flat(old, "limit", is_old=True)
    assert compare("limit", before, flat(given(new), "limit", is_old=False), old_words=False).passed
    assert not compare("limit", before, flat(given(new[::-1]), "limit", is_old=False), old_words=False).passed
