"""Tables of the page on checkpoints, from what attnlaw reads and from what was measured.

A page says where, on a line of its own: `<!-- model types -->`, `<!-- keys of a family -->`,
`<!-- codes without support -->`, `<!-- exactness of codes -->` (docs/scripts/codes_page.py measures it).
"""

from __future__ import annotations

import csv
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from attnlaw.checkpoints.families import FOLDER, Family, LayerTable
from attnlaw.checkpoints.quantization.leftover import REASONS

MEASURED = Path(__file__).resolve().parents[1] / "experiments" / "codes.csv"
UNKNOWN = "–"
# Names of codes as their authors write them, if `quant_method` has another form.
TITLES = {"quip": "QuIP", "quip_sharp": "QuIP#", "vptq": "VPTQ", "spqr": "SpQR", "fp_quant": "FP-Quant"}
TITLES |= {name: name.upper() for name in ("exl2", "exl3", "higgs", "sinq", "eetq")}
ARGUMENT = re.compile(r"^        (\w+): ((?:.|\n(?!        \w+:|\n|    \S))+)", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with its tables."""
    for mark, table in (
        ("<!-- model types -->", types_table),
        ("<!-- keys of a family -->", keys_table),
        ("<!-- exactness of codes -->", codes_table),
        ("<!-- codes without support -->", reasons_table),
    ):
        if mark in markdown.splitlines():
            markdown = markdown.replace(mark, table())
    return markdown


def types_table() -> str:
    """One line for each family with relatives: the model types of all files that are `like` it in the end."""
    files = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.toml"))}
    types: dict[str, set[str]] = {}
    for values in files.values():
        root = values
        while "like" in root:
            root = files[root["like"]]
        if root["name"] != "llama.cpp":  # names inside GGUF files, for types that have another file
            types.setdefault(root["name"], set()).update(values.get("model_types", ()))
    groups = {name: sorted(members) for name, members in types.items() if len(members) > 1}
    groups["no other family"] = sorted(set[str]().union(*(m for m in types.values() if len(m) == 1)))
    rows = [f"| {name} | {', '.join(members)} |" for name, members in groups.items()]
    return "\n".join(["| tensors named like | `model_type` |", "|---|---|", *rows])


def keys_table() -> str:
    """One line for each key of a family's file: its name and its meaning, from the docstrings."""
    lines = ["| key | meaning |", "|---|---|"]
    for record in (Family, LayerTable):
        described = {name: " ".join(text.split()) for name, text in ARGUMENT.findall(record.__doc__ or "")}
        place = "" if record is Family else "`[[stacks]]` "
        lines += [
            f"| {place}`{key.name}` | {described[key.name][0].upper()}{described[key.name][1:]} |"
            for key in fields(record)
        ]
    return "\n".join(lines)


def codes_table() -> str:
    """One line for each measured checkpoint: its code, the library that wrote it, its size and its error."""
    lines = ["| code | file | written by | bits per weight | relative error |", "|---|---|---|---|---|"]
    with MEASURED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            error = f"{float(row['error']):.1%}" if row["error"] else UNKNOWN
            cells = (row["code"], f"`{row['file']}`", row["library"], row["bits"] or UNKNOWN, error)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def reasons_table() -> str:
    """One line for each code that attnlaw knows and does not read: why it does not."""
    rows = [
        f"| {TITLES.get(name, name.capitalize())} | {reason[0].upper()}{reason[1:]}. |"
        for name, reason in REASONS.items()
    ]
    return "\n".join(["| code | why attnlaw cannot open it |", "|---|---|", *rows])
