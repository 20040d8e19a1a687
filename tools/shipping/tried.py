"""What is tried in an installed package: a command of every verb, and what each extra is for.

`{model}` is the small decoder that ships with the source. A new extra has a line here, and so has a verb that
needs words of its own: the others are run as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

# Cheap and whole commands of verbs, and of what works over verbs.
COMMANDS: dict[str, tuple[str, ...]] = {
    "audit": ("audit {model} --only qk,vo",),
    "fit": ("fit {model} --layers 0 --only qk",),
    "diff": ("diff {model} {model} --layers 0",),
    "check": ("check {model} --layers 0",),
    "lens": ("lens {model} --ids 84,104,101 --top 2",),
    "margins": ("margins {model} --file examples/sentences.txt --limit 12",),
    "limit": ("limit --width 16,inf --draws 200",),
    "init": ("init {model}/config.json --tokens 2 --draws 2",),
    "learn": ("learn --alpha 0.2 --noise 0.5", "learn --alpha 0.1:0.5:3 --out curve"),
    "dynamics": ("dynamics --times 0.005:0.05:3",),
    "study": ("study list",),
    "reproduce": ("reproduce list", "reproduce limit-low-rank --quick --out paper"),
    "lab": ("lab learn --no-browser",),
    "report": ("report demo --out page",),
}
# Verbs that the core refuses in one line, which names the extra to install.
NEEDS = {"lens": "lens", "margins": "lens", "lab": "lab"}
# Commands that the core refuses before the work, because nothing can draw.
FIGURES = ("learn --alpha 0.1:0.5:3 --figure curve.pdf", "audit {model} --out figures --figures pdf")
# A word in a command of the README, and the status of the command, if it is not 0.
STATUS = {"check damaged": 3}
# Files of examples/notebooks that need no extra.
NOTEBOOKS = ("audit", "learn", "study")


@dataclass(frozen=True)
class Extra:
    """What an extra is for: its import, and what is run with it.

    `commands` may read what `inputs.py` makes in a folder of the name of the extra; `verbs` and `studies` are
    those that need it; `serves` is a command that tells an address and answers there until it is interrupted;
    `notebooks` are files of examples/notebooks. With `readme`, the Python code of the README runs, too.
    """

    imports: str
    commands: tuple[str, ...] = ()
    python: str = ""
    verbs: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    serves: str = ""
    notebooks: tuple[str, ...] = ()
    readme: bool = False


EXTRAS = {
    "charts": Extra(
        "altair",
        (
            *FIGURES,
            "report figures --out page --figures svg",
            "reproduce limit-low-rank --quick --out paper",
        ),
        notebooks=("fit", "limit", "results"),
        readme=True,
    ),
    "torch": Extra("torch", ("audit torch --only qk",)),
    "lens": Extra(
        "transformers",
        ("init {model}/config.json --tokens 2 --draws 2 --gradients 1",),
        verbs=("lens", "margins"),
        studies=("init-mup", "dynamics-training"),
    ),
    "gguf": Extra("gguf", ("audit gguf/model.gguf",)),
    "onnx": Extra("onnx", ("audit onnx --only qk",)),
    "hub": Extra("huggingface_hub", ("audit someone/tiny --only qk",)),
    "pandas": Extra(
        "pandas",
        python="import attnlaw; print(attnlaw.audit('{model}', only='qk').matrices.to_pandas().shape)",
    ),
    "lab": Extra("marimo", serves="lab learn --no-browser"),
    "cluster": Extra("distributed", ("study run cluster/study.toml --jobs 1 --out rows",)),
}
