"""Public names: imported when first used, and told where they went where they moved.

`MOVED` is the one table of names of 0.1.0 that are elsewhere now: modules, what they held, options. A name of
it is an `ImportError` also as an attribute, since `from ... import` drops the words of an `AttributeError`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

MOVED: dict[str, str] = {
    "attnlaw.Layer": "attnlaw.AttentionLayer",
    "attnlaw.Stack": "attnlaw.Depth",
    "attnlaw.fit_model": "attnlaw.fit",
    "attnlaw.aim": "attnlaw.theory.learn",
    "attnlaw.analysis.audit.Audit": "attnlaw.Audit",
    "attnlaw.analysis.audit.fitting": "attnlaw.analysis.audit.laws",
    "attnlaw.theory.bounds.ExpertSpectra": "attnlaw.checkpoints.network.Maps",
    "attnlaw.theory.bounds.Heads": "attnlaw.checkpoints.network.Heads",
    "attnlaw.theory.bounds.LayerSpectra": "attnlaw.checkpoints.network.Layer",
    "attnlaw.theory.bounds.Network": "attnlaw.checkpoints.network.Network",
    "attnlaw.theory.bounds.Proxies": "attnlaw.theory.bounds.proxies.Proxies",
    "attnlaw.checkpoints": "attnlaw.checkpoints",
    "attnlaw.cli": "attnlaw.command",
    "attnlaw.errors": "attnlaw.core.errors",
    "attnlaw.lens": "attnlaw.analysis.forward",
    "attnlaw.theory.limit.Estimate": "attnlaw.Estimate",
    "attnlaw.theory.limit.Law": "attnlaw.theory.limit.OutputLaw",
    "attnlaw.theory.limit.Layer": "attnlaw.theory.limit.AttentionLayer",
    "attnlaw.theory.limit.QUANTITIES": "attnlaw.verbs.limit.QUANTITIES",
    "attnlaw.theory.limit.Stack": "attnlaw.theory.limit.Depth",
    "attnlaw.plain_files": "attnlaw.core.files",
    "attnlaw.records": "attnlaw.core",
    "attnlaw.report.bounds_charts": "attnlaw.verbs.audit.charts",
    "attnlaw.report.fit_charts": "attnlaw.render.charts.draw",
    "attnlaw.study.Outcome": "attnlaw.study.task.TaskResult",
    "attnlaw.study.Report": "attnlaw.study.StudyStatus",
    "attnlaw.study.Result": "attnlaw.core.verb.Verb",
    "attnlaw.study.Task": "attnlaw.study.task.Task",
    "attnlaw.study.Verb": "attnlaw.core.verb.Verb",
    "attnlaw.study.verb": "attnlaw.core.verb",
    "attnlaw.study.verbs": "attnlaw.verbs",
    "learn --curve": "learn --alpha FROM:TO:COUNT",
}


def lazy_attribute(room: str, names: Mapping[str, str], name: str) -> Any:
    """What a name of a room stands for, from the module that a table has for it."""
    if name in names:
        return getattr(import_module(names[name]), name)
    raise missing_name_error(room, name)


def missing_name_error(room: str, name: str) -> Exception:
    """Why a room has no such name: it moved, or there never was one."""
    asked = f"{room}.{name}"
    if asked in MOVED:
        return ImportError(f"{asked} is now {MOVED[asked]}", name=asked)
    return AttributeError(f"module {room!r} has no attribute {name!r}")


class MovedModules:
    """The last of Python's finders: asked for a module that nobody has, it says where it went."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name in MOVED:
            raise ModuleNotFoundError(f"{name} is now {MOVED[name]}", name=name)


if MovedModules not in sys.meta_path:
    sys.meta_path.append(MovedModules)


def resolve(path: Any) -> Any:
    """What stands at `module:name`, imported when it is asked for; what is no text is itself."""
    if not isinstance(path, str):
        return path
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
