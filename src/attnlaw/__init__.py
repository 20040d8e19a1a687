"""attnlaw: the spectral theory of attention, executable on real models.

Each verb is a function: `attnlaw.audit(MODEL)`, `attnlaw.learn(alpha=0.2)`. These and the public names below
are imported when first used, so that `attnlaw --help` answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from attnlaw.base.public import missing, public

__version__ = "0.2.0"

_PUBLIC: dict[str, str] = {
    "Amplification": "attnlaw.forward",
    "Architecture": "attnlaw.initial",
    "Atlas": "attnlaw.auditing.atlas",
    "AttentionLayer": "attnlaw.limits",
    "AttentionShape": "attnlaw.laws.attention_shape",
    "Audit": "attnlaw.auditing.record",
    "Completion": "attnlaw.implicit.completion",
    "Condition": "attnlaw.forward",
    "Depth": "attnlaw.limits",
    "Diff": "attnlaw.comparing.diff",
    "Ensemble": "attnlaw.regression.ensemble",
    "Estimate": "attnlaw.base.estimate",
    "Fit": "attnlaw.fits.fit",
    "Fits": "attnlaw.auditing.fits",
    "GivenInputs": "attnlaw.limits",
    "Group": "attnlaw.regression.problem",
    "InitialLaw": "attnlaw.initial",
    "InputError": "attnlaw.base.errors",
    "Lens": "attnlaw.forward",
    "Margins": "attnlaw.forward",
    "MultiHeadLaw": "attnlaw.laws.multi_head",
    "Problem": "attnlaw.learning.problem",
    "RandomInputs": "attnlaw.limits",
    "Regression": "attnlaw.regression.problem",
    "Schedule": "attnlaw.learning.dynamics.schedule",
    "SingleIndex": "attnlaw.implicit.index_problem",
    "Target": "attnlaw.learning.target",
    "Tokens": "attnlaw.initial",
    "TiedValuesLaw": "attnlaw.laws.tied_values",
    "Trajectory": "attnlaw.learning.dynamics.trajectory",
    "Verdicts": "attnlaw.gating.verdicts",
    "agreement": "attnlaw.learning.agreement",
    "amplification": "attnlaw.forward",
    "atlas": "attnlaw.auditing.atlas",
    "compare_margins": "attnlaw.forward",
    "compare_widths": "attnlaw.limits",
    "condition": "attnlaw.forward",
    "curve": "attnlaw.learning.sweep",
    "effective_ranks": "attnlaw.regression.effective_ranks",
    "ensemble_evolution": "attnlaw.regression.evolution",
    "entrywise_errors": "attnlaw.spectra.entrywise",
    "factor_balance": "attnlaw.implicit.balance",
    "findings": "attnlaw.auditing.findings.find",
    "fit_law": "attnlaw.fits.fit",
    "fit_spectra": "attnlaw.auditing.fits",
    "hessian_trace": "attnlaw.implicit.flatness",
    "holdout_bound": "attnlaw.bounds.holdout",
    "initial_law": "attnlaw.initial",
    "least_decay": "attnlaw.implicit.flatness",
    "least_trace": "attnlaw.implicit.flatness",
    "linearise": "attnlaw.forward",
    "measure_margins": "attnlaw.forward",
    "measured_proxy": "attnlaw.auditing.measured",
    "multi_head_sample": "attnlaw.laws.multi_head_sample",
    "one_step": "attnlaw.implicit.one_step",
    "open_model": "attnlaw.models.open",
    "predict_completion": "attnlaw.implicit.completion",
    "predict_index": "attnlaw.implicit.single_index",
    "rank_within": "attnlaw.spectra.entrywise",
    "readout": "attnlaw.laws.readout",
    "ridge_risk": "attnlaw.regression.risk",
    "simulate": "attnlaw.learning.simulate",
    "simulate_dynamics": "attnlaw.learning.dynamics.sgd",
    "simulate_ensemble": "attnlaw.regression.learners",
    "simulate_index": "attnlaw.implicit.single_index",
    "simulate_ridge": "attnlaw.regression.simulate",
    "spectrum_at": "attnlaw.auditing.place",
    "state_evolution": "attnlaw.learning.state_evolution",
    "thresholds": "attnlaw.learning.thresholds",
    "train_completion": "attnlaw.implicit.completion",
    "trajectory_agreement": "attnlaw.learning.dynamics.agreement",
    "trajectory": "attnlaw.learning.dynamics.trajectory",
    "training_loss": "attnlaw.laws.readout",
    "two_layer_limit": "attnlaw.regression.two_layer",
    "two_layer_risk": "attnlaw.regression.two_layer",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return public(__name__, _PUBLIC, name)
    verbs = import_module("attnlaw.verbs")
    if name in verbs.VERBS:
        return verbs.verb(name)
    if name == "__all__":
        return ["__version__", *sorted({*_PUBLIC, *verbs.VERBS})]
    raise missing(__name__, name)


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))
