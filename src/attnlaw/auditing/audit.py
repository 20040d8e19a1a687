"""Audit one model: open, measure, test, bound, and flatten the tree into rows, once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from attnlaw.auditing.findings.damaged import damaged_places
from attnlaw.auditing.findings.evidence import Evidence, Subject
from attnlaw.auditing.findings.find import apply_rules
from attnlaw.auditing.findings.gather import Gathered
from attnlaw.auditing.quantities import FINDINGS
from attnlaw.auditing.record import Audit
from attnlaw.auditing.rows import layer_table, matrix_table, schema, spectrum_table
from attnlaw.auditing.summary import (
    case_values,
    comparable_values,
    finding_values,
    logit_values,
    norm_values,
    summary_of,
)
from attnlaw.auditing.towers import in_words, tower_proxies, tower_summaries
from attnlaw.base.declare import Progress, silent
from attnlaw.base.errors import InputError
from attnlaw.base.tables import frame
from attnlaw.bounds.proxies import Proxies, obstacle, proxies
from attnlaw.fits.null import NullsDrawn, Rejections, null_test
from attnlaw.models.model import Model
from attnlaw.models.network import Network
from attnlaw.models.settings import USUAL, Arithmetic, ModelSettings
from attnlaw.spectra.measure import Selection, measure, tell_expected
from attnlaw.spectra.spectrum import Spectrum


@dataclass(frozen=True)
class Asked:
    """What an audit is asked for beside the matrices.

    `samples` adds proxy / sqrt(samples). `as_stored`: tables and maps show norms of the stored matrices, not
    as applied. `tolerant`: NaN and infinity are findings, and what can be measured without them is.
    `thresholds` are of findings, by rule.
    """

    samples: int | None = None
    as_stored: bool = False
    tolerant: bool = False
    thresholds: Mapping[str, float] | None = None


ALL, PLAIN = Selection(), Asked()


def audit(
    settings: ModelSettings,
    asked: Asked = PLAIN,
    arithmetic: Arithmetic = USUAL,
    progress: Progress = silent,
) -> Audit:
    """Audit a checkpoint: the spectra of every matrix, their null tests, and the proxies they imply.

    `arithmetic` says how precisely matrices are factorised, and whether very large ones are estimated, with
    errors, instead. Where not every matrix is selected there are no proxies.

    >>> import numpy as np
    >>> block = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": 2 * np.eye(4)}
    >>> found = audit(ModelSettings(model=block, heads=2))
    >>> found.matrices.select("kind", "head", "spectral_norm", "numerical_rank").rows()
    [('qk', 0, 1.0, 2), ('qk', 1, 1.0, 2), ('vo', 0, 2.0, 2), ('vo', 1, 2.0, 2)]
    """
    model = settings.open()
    selection = Selection.of(settings, model.network, arithmetic)
    tell_expected(model, selection, settings.jobs)
    return audit_model(model, selection, asked, settings.jobs, progress)


def audit_model(
    model: Model,
    selection: Selection = ALL,
    asked: Asked = PLAIN,
    jobs: int | None = None,
    progress: Progress = silent,
) -> Audit:
    """Audit a model that is open."""
    gathered = Gathered(model)
    spectra = _measured(gathered.model, selection, jobs, progress, asked.tolerant)
    return concluded(model, selection, asked, spectra, gathered.evidence(selection.whole))


def concluded(
    model: Model, selection: Selection, asked: Asked, spectra: Network[Spectrum | None], evidence: Evidence
) -> Audit:
    """What follows from the spectra of a model and from what was noted while they were measured."""
    samples = asked.samples
    tests = [null_test(spectrum) for _, spectrum in spectra.leaves() if spectrum is not None]
    bounds, per_application = _bounds(spectra)
    if samples is not None and bounds is None:
        logging.getLogger("attnlaw").info("%s: --samples %d has no proxy to divide", model.name, samples)
    counted = Rejections.count((test.p_value, test.shape, test.draws) for test in tests if test is not None)
    reason, towers = obstacle(spectra), tower_proxies(spectra)
    if towers:
        reason = f"{reason}; each has its own (spectrum-adaptive: {in_words(towers)})"
    values = case_values(model, len(tests), bounds, per_application, counted, samples, reason)
    values |= norm_values(model, spectra, asked.as_stored)
    matrices, layers = matrix_table(model, spectra, tests, bounds), layer_table(model, spectra, bounds)
    tested = selection.whole and model.layers and counted.tested
    subject = Subject(evidence, matrices, counted.p_value if tested else None)
    found = apply_rules(subject, thresholds=asked.thresholds)
    values |= finding_values(found) | comparable_values(matrices, layers, counted)
    values |= logit_values(model, spectra, matrices)
    summary = summary_of(model.name, values, bounds, samples)
    if model.network.towers:
        summary["towers"] = tower_summaries(model, towers)
    return Audit(
        (summary,),
        matrices,
        spectrum_table(model, spectra),
        layers,
        cases=(values,),
        trees=(spectra,),
        findings=frame([one.row(model.name) for one in found], schema(FINDINGS)),
        subjects=(subject,),
    )


def _measured(
    model: Model, selection: Selection, jobs: int | None, progress: Progress, tolerant: bool
) -> Network[Spectrum | None]:
    """The measured tree; `tolerant`: where tensors are damaged, of what does not need them."""
    try:
        return measure(model, selection, jobs, progress, NullsDrawn())
    except InputError:
        damaged = damaged_places(model) if tolerant else frozenset()
        if not damaged:
            raise
    rest = replace(selection, left_out=damaged)
    if not any(rest.takes(place) for place, _ in model.network.leaves()):
        return model.network.map(lambda *_: None)
    return measure(model, rest, jobs, progress, NullsDrawn())


def _bounds(spectra: Network[Spectrum | None]) -> tuple[Proxies | None, Proxies | None]:
    """The proxies, and the same per application where layers are shared; None where there are none."""
    if obstacle(spectra) is not None:
        return None, None
    shared = spectra.depth > len(spectra.layers)
    return proxies(spectra), proxies(spectra.unrolled()) if shared else None
