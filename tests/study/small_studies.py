"""A part of each study that ships which runs in seconds; also what a release runs where it is installed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnlaw.study import Study, read_study
from attnlaw.study.shipped import shipped_studies

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = {path.stem: path for path in EXAMPLES.glob("*.toml")} | shipped_studies()
# The values kept of an argument, what is changed, and the figures of it.
ALPHAS = (8e-6, 1.6e-5)
FEW = {"draws": 400}
TINY = {"draws": 1, "tokens": 40, "heads": 3, "head_size": 10}
DENSITIES_AND_DISTANCES = ["densities", "kl_to_limit", "w1_to_limit"]
SMALL: dict[str, tuple[dict[str, tuple[Any, ...]], dict[str, Any], list[str]]] = {
    "bounds-growth": ({}, {}, ["growth"]),
    "complete-connectivity": ({"init": (0.0001, 0.01)}, {}, ["connectivity"]),
    "dynamics-cost": ({}, {"times": "0.005:0.1:5"}, ["learning", "cost"]),
    "dynamics-flow": ({"tokens": (1,)}, {"times": "0.002:0.01:4"}, ["learning"]),
    "dynamics-modes": ({}, {"times": "0.0005:0.05:8"}, ["learning"]),
    "dynamics-spectra": ({}, {"simulate": 16}, ["learning", "spectra"]),
    "dynamics-students": ({}, {"times": "0.004:0.1:3", "simulate": 12}, ["learning"]),
    "dynamics-training": ({}, {"steps": 2}, ["run"]),
    "early-stopping": ({"threshold": (0.5, 1.0)}, {}, ["map", "stopping"]),
    "init-depth": (
        {"depth": (2, 4)},
        {"draws": 3},
        ["init_layers_gpt2", "init_layers_bert", "init_depth"],
    ),
    "init-mup": ({"width": (64, 256), "parametrisation": ("SP",)}, {"draws": 1, "steps": 1}, ["coordinates"]),
    "init-width": (
        {"width": ("192", "384", "inf")},
        {"draws": 10},
        ["init_layers", "init_width", "init_width_spread"],
    ),
    "learn-curves": ({"alpha": (0.02, 0.1, 0.3, 1.0)}, {"simulate": 10}, ["learning", "split_1", "split_2"]),
    "learn-error": ({"alpha": (0.1, 0.3, 2.0)}, {}, ["learning", "split_1", "split_2", "split_3"]),
    "learn-phase-diagram": ({"target_rank": (0.25, 0.5, 0.75), "alpha": (0.15, 0.3, 0.45)}, {}, ["phases"]),
    "learn-scaling": ({"target_exponent": (1.5,), "alpha": ALPHAS}, {}, ["scaling"]),
    "learn-spectrum": ({}, {"simulate": 20}, ["spectrum", "curve"]),
    "learn-hardmax": ({"alpha": (0.1, 0.5)}, {}, ["learning", "split"]),
    "learn-tokens": ({"alpha": (0.01, 0.4)}, {}, ["learning"]),
    "learn-untied": ({"alpha": (0.02, 0.2, 0.6, 1.5)}, {"simulate": 10}, ["learning", "split_1", "split_2"]),
    "learn-width": ({"width": (0.05, 0.2, 1.0)}, {}, ["rank", "smallest"]),
    "lens-entrywise": ({}, {"text": "the cat", "entrywise": (1, 4)}, ["entrywise"]),
    "limit-arrival": ({"head_size": (64, 105)}, {}, ["arrival"]),
    "limit-depth": ({}, FEW, ["densities_1", "densities_2", "path"]),
    "limit-heads": ({}, FEW, [*DENSITIES_AND_DISTANCES, "gaussian"]),
    "limit-low-rank": ({}, FEW, DENSITIES_AND_DISTANCES),
    "limit-readout": ({"beta": (0.5, 1.0)}, {}, ["readout"]),
    "limit-relu": ({"width": (16.0, 64.0)}, FEW, DENSITIES_AND_DISTANCES),
    "limit-scaling": ({}, FEW, ["densities_1", "densities_2", "kl_to_limit", "w1_to_limit"]),
    "limit-spectrum": ({}, TINY, ["spectra"]),
    "limit-spectrum-large": ({}, TINY, ["spectra"]),
    "limit-width": ({}, FEW, DENSITIES_AND_DISTANCES),
    "regression-ensemble": ({"features": (20, 100, 300)}, {}, ["ensemble"]),
    "regression-scale": ({"scale": (0.03, 1.0)}, {}, ["scale"]),
    "regression-shift": ({"ridge": (0.01, 1.0)}, {"samples": 60, "dimension": 40}, ["weights", "risk"]),
}


def small(name: str) -> Study:
    """The first two repetitions of every kept case of a shipped study, with some arguments changed."""
    kept, changes, _ = SMALL[name]
    study = read_study(FILES[name])
    repetitions: Counter[Any] = Counter()
    tasks = []
    for task in study.tasks:
        given = {name: value for name, value in task.case.to_row().items() if value is not None}
        case = (task.verb.name, *(str(value) for name, value in given.items() if name != "seed"))
        repetitions[case] += 1
        wanted = all(any(near(getattr(task.case, key), v) for v in values) for key, values in kept.items())
        if wanted and repetitions[case] <= 2:
            changed = {key: value for key, value in changes.items() if key in given}
            tasks.append(replace(task, case=replace(task.case, **changed)))
    return replace(study, tasks=tuple(tasks))


def near(value: Any, other: Any) -> bool:
    """Equal, numbers but for round-off."""
    return value == other or (isinstance(value, float) and math.isclose(value, other, rel_tol=1e-6))
