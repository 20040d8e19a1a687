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
    "attnlaw.aim": "attnlaw.learning",
    "attnlaw.auditing.Audit": "attnlaw.Audit",
    "attnlaw.auditing.fitting": "attnlaw.auditing.fits",
    "attnlaw.bounds.ExpertSpectra": "attnlaw.models.network.Maps",
    "attnlaw.bounds.Heads": "attnlaw.models.network.Heads",
    "attnlaw.bounds.LayerSpectra": "attnlaw.models.network.Layer",
    "attnlaw.bounds.Network": "attnlaw.models.network.Network",
    "attnlaw.bounds.Proxies": "attnlaw.bounds.proxies.Proxies",
    "attnlaw.checkpoints": "attnlaw.models",
    "attnlaw.cli": "attnlaw.command",
    "attnlaw.errors": "attnlaw.base.errors",
    "attnlaw.lens": "attnlaw.forward",
    "attnlaw.limits.Estimate": "attnlaw.Estimate",
    "attnlaw.limits.Law": "attnlaw.limits.OutputLaw",
    "attnlaw.limits.Layer": "attnlaw.limits.AttentionLayer",
    "attnlaw.limits.QUANTITIES": "attnlaw.verbs.limit.QUANTITIES",
    "attnlaw.limits.Stack": "attnlaw.limits.Depth",
    "attnlaw.plain_files": "attnlaw.base.files",
    "attnlaw.records": "attnlaw.base",
    "attnlaw.report.bounds_charts": "attnlaw.report.audit_charts",
    "attnlaw.report.fit_charts": "attnlaw.report.charts",
    "attnlaw.study.Outcome": "attnlaw.study.task.Ending",
    "attnlaw.study.Report": "attnlaw.study.Standing",
    "attnlaw.study.Result": "attnlaw.base.declare.Verb",
    "attnlaw.study.Task": "attnlaw.study.task.Task",
    "attnlaw.study.Verb": "attnlaw.base.declare.Verb",
    "attnlaw.study.verb": "attnlaw.base.declare",
    "attnlaw.study.verbs": "attnlaw.verbs",
    "learn --curve": "learn --alpha FROM:TO:COUNT",
}


def public(room: str, names: Mapping[str, str], name: str) -> Any:
    """What a name of a room stands for, from the module that a table has for it."""
    if name in names:
        return getattr(import_module(names[name]), name)
    raise missing(room, name)


def missing(room: str, name: str) -> Exception:
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
