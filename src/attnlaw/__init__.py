"""attnlaw: the spectral theory of attention, executable on real models.

Each verb is a function: `attnlaw.audit(MODEL)`, `attnlaw.learn(alpha=0.2)`. These and the public names below
are imported when first used, so that `attnlaw --help` answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from attnlaw.core import result
from attnlaw.core.lazy import lazy_attribute

__version__ = "0.3.0.dev0"

_PUBLIC: dict[str, str] = {
    "Amplification": "attnlaw.analysis.forward",
    "Architecture": "attnlaw.theory.init.architecture",
    "Atlas": "attnlaw.analysis.atlas",
    "AttentionLayer": "attnlaw.theory.limit",
    "AttentionShape": "attnlaw.theory.laws.attention_shape",
    "Audit": "attnlaw.analysis.audit.audit",
    "Completion": "attnlaw.theory.implicit_bias.completion",
    "Condition": "attnlaw.analysis.forward",
    "Depth": "attnlaw.theory.limit",
    "Diff": "attnlaw.analysis.diff.diff",
    "Ensemble": "attnlaw.theory.regression.ensemble",
    "Estimate": "attnlaw.core.estimate",
    "Fit": "attnlaw.analysis.fit.fit",
    "Fits": "attnlaw.analysis.fit.model_fits",
    "GivenInputs": "attnlaw.theory.limit",
    "Group": "attnlaw.theory.regression.problem",
    "InitialLaw": "attnlaw.theory.init.records",
    "InputError": "attnlaw.core.errors",
    "Lens": "attnlaw.analysis.forward",
    "Margins": "attnlaw.analysis.forward",
    "MultiHeadLaw": "attnlaw.theory.laws.multi_head",
    "Problem": "attnlaw.theory.learn.problem",
    "RandomInputs": "attnlaw.theory.limit",
    "Result": "attnlaw.core.result",
    "Regression": "attnlaw.theory.regression.problem",
    "Schedule": "attnlaw.theory.dynamics.schedule",
    "SingleIndex": "attnlaw.theory.implicit_bias.single_index",
    "Target": "attnlaw.theory.learn.target",
    "Tokens": "attnlaw.theory.init.tokens",
    "TiedValuesLaw": "attnlaw.theory.laws.tied_values",
    "Trajectory": "attnlaw.theory.dynamics.trajectory",
    "Verdicts": "attnlaw.analysis.check.verdicts",
    "agreement": "attnlaw.theory.learn.agreement",
    "amplification": "attnlaw.analysis.forward",
    "atlas": "attnlaw.analysis.atlas",
    "compare_margins": "attnlaw.analysis.forward",
    "compare_widths": "attnlaw.theory.limit",
    "condition": "attnlaw.analysis.forward",
    "curve": "attnlaw.theory.learn.state_evolution",
    "effective_ranks": "attnlaw.theory.regression.effective_ranks",
    "ensemble_evolution": "attnlaw.theory.regression.evolution",
    "entrywise_errors": "attnlaw.spectra.entrywise",
    "factor_balance": "attnlaw.theory.implicit_bias.balance",
    "findings": "attnlaw.analysis.audit.audit",
    "fit_law": "attnlaw.analysis.fit.fit",
    "fit_spectra": "attnlaw.analysis.fit.model_fits",
    "hessian_trace": "attnlaw.theory.implicit_bias.flatness",
    "holdout_bound": "attnlaw.theory.bounds.holdout",
    "initial_law": "attnlaw.theory.init.law",
    "least_decay": "attnlaw.theory.implicit_bias.flatness",
    "least_trace": "attnlaw.theory.implicit_bias.flatness",
    "linearise": "attnlaw.analysis.forward",
    "load": "attnlaw.verbs.views",
    "measure_margins": "attnlaw.analysis.forward",
    "measured_proxy": "attnlaw.analysis.audit.measured_proxy",
    "multi_head_sample": "attnlaw.theory.laws.multi_head_sample",
    "one_step": "attnlaw.theory.implicit_bias.one_step",
    "open_model": "attnlaw.checkpoints.open",
    "predict_completion": "attnlaw.theory.implicit_bias.completion",
    "predict_index": "attnlaw.theory.implicit_bias.single_index",
    "rank_within": "attnlaw.spectra.entrywise",
    "readout": "attnlaw.theory.laws.readout",
    "ridge_risk": "attnlaw.theory.regression.risk",
    "simulate": "attnlaw.theory.learn.simulate",
    "simulate_dynamics": "attnlaw.theory.dynamics.sgd",
    "simulate_ensemble": "attnlaw.theory.regression.learners",
    "simulate_index": "attnlaw.theory.implicit_bias.single_index",
    "simulate_ridge": "attnlaw.theory.regression.simulate",
    "spectrum_at": "attnlaw.analysis.audit.audit",
    "state_evolution": "attnlaw.theory.learn.state_evolution",
    "thresholds": "attnlaw.theory.learn.thresholds",
    "train_completion": "attnlaw.theory.implicit_bias.completion",
    "trajectory_agreement": "attnlaw.theory.dynamics.sgd",
    "trajectory": "attnlaw.theory.dynamics.trajectory",
    "training_loss": "attnlaw.theory.laws.readout",
    "two_layer_limit": "attnlaw.theory.regression.two_layer",
    "two_layer_risk": "attnlaw.theory.regression.two_layer",
    "write_csv": "attnlaw.core.tables",
}


# How a result shows itself is known above the room that it lives in, and imported when it is first asked for.
result.load_views = lambda: import_module("attnlaw.verbs.views")


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        verbs = import_module("attnlaw.verbs")
        if name in verbs.VERBS:
            return verbs.find_verb(name)
        if name == "__all__":
            return ["__version__", *sorted({*_PUBLIC, *verbs.VERBS})]
    return lazy_attribute(__name__, _PUBLIC, name)


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))
