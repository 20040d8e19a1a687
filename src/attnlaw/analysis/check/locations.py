"""Where a row stands: the columns that name its place, in words and as an identity that outlives values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from attnlaw.analysis.findings.text import place_text as spot_text
from attnlaw.core.files import to_json

MATRIX = ("layer", "stack", "kind", "head", "expert")
PLACE = (*MATRIX, "tensor", "step")

# The columns that tell a row of a table from its others, and by which it is found again in a baseline.
KEYS: dict[str, tuple[str, ...]] = {
    "matrices": MATRIX,
    "layers": ("layer", "stack"),
    "fits": MATRIX,
    "summary": (),
    "tensors": ("tensor",),
    "diff": MATRIX,
    "diff_tensors": ("tensor",),
    "steps": ("step",),
}

Place = dict[str, Any]


def place_of(row: Mapping[str, Any]) -> Place:
    """What a row says of its place; what it does not say is left out."""
    return {name: row[name] for name in PLACE if row.get(name) is not None}


def row_place_text(place: Mapping[str, Any]) -> str:
    """A place in words, printable whatever a tensor is called; "the model" for a row of the whole model.

    >>> row_place_text({"layer": 3, "stack": "decoder", "kind": "qk", "head": 0}), row_place_text({"step": 7})
    ('decoder layer 3, qk, head 0', 'step 7')
    """
    return f"step {place['step']}" if "step" in place else spot_text(place)


def fingerprint(rule: str, place: Mapping[str, Any]) -> str:
    """The identity of a failure: a hash of its rule and its place, never of values, which change.

    >>> fingerprint("near", {"layer": 1, "head": 0}) == fingerprint("near", {"head": 0, "layer": 1})
    True
    """
    text = to_json([rule, {name: place[name] for name in PLACE if name in place}], None, ascii_only=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
