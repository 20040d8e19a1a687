"""attnlaw: the spectral theory of attention, executable on real models.

Each verb is a function: `attnlaw.audit(MODEL)`, `attnlaw.learn(alpha=0.2)`. Python imports a name when it is
first used, so that `attnlaw --help` answers at once. Everything that is not listed here is public in its own
module, such as `attnlaw.theory.laws.marchenko_pastur`.

This file imports next to nothing, because the command line can answer Ctrl-C only after it.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # importing typing takes longer than all the rest
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.3.0"

# Besides the verbs: records that users build or receive, and what opens models and results.
_PUBLIC: dict[str, str] = {
    "Architecture": "attnlaw.theory.init.architecture",
    "AttentionLayer": "attnlaw.theory.limit.layer",
    "Audit": "attnlaw.analysis.audit.audit",
    "Diff": "attnlaw.analysis.diff.diff",
    "Estimate": "attnlaw.core.estimate",
    "Fits": "attnlaw.analysis.fit.model_fits",
    "GivenInputs": "attnlaw.theory.limit.inputs",
    "InitialLaw": "attnlaw.theory.init.records",
    "InputError": "attnlaw.core.errors",
    "Lens": "attnlaw.analysis.forward.lens",
    "Margins": "attnlaw.analysis.forward.margins",
    "Model": "attnlaw.checkpoints.model",
    "Prediction": "attnlaw.theory.learn.prediction",
    "Problem": "attnlaw.theory.learn.problem",
    "RandomInputs": "attnlaw.theory.limit.inputs",
    "Range": "attnlaw.core.estimate",
    "Result": "attnlaw.core.result",
    "Schedule": "attnlaw.theory.dynamics.schedule",
    "Target": "attnlaw.theory.learn.target",
    "Tokens": "attnlaw.theory.init.tokens",
    "Trajectory": "attnlaw.theory.dynamics.trajectory",
    "Verdicts": "attnlaw.analysis.check.verdicts",
    "load": "attnlaw.verbs.views",
    "open_model": "attnlaw.checkpoints.open",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    verbs = import_module("attnlaw.verbs")
    if name in verbs.VERBS:
        return verbs.verb_function(name)
    if name == "__all__":
        return ["__version__", *sorted({*_PUBLIC, *verbs.VERBS})]
    raise AttributeError(f"module 'attnlaw' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))
