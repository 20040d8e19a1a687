"""Audit a model: measure its matrices, test them against noise, compute proxies, and look for problems."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from attnlaw.analysis.audit import AuditOptions
from attnlaw.analysis.audit.rows import application_table, layer_table, matrix_table, spectrum_table
from attnlaw.analysis.audit.summary import (
    case_values,
    comparable_values,
    experts_sentence,
    finding_values,
    format_tower_proxies,
    logit_values,
    norm_values,
    tower_proxies,
    tower_table,
)
from attnlaw.analysis.columns import FINDINGS
from attnlaw.analysis.findings.apply import run_detectors
from attnlaw.analysis.findings.detectors import Finding
from attnlaw.analysis.findings.evidence import EXPERTS, LAYERS, MATRICES, REST, Evidence, Subject
from attnlaw.analysis.findings.observer import EvidenceCollector
from attnlaw.analysis.findings.scan import damaged_locations
from attnlaw.analysis.fit.null import NullPreparer, Rejections, null_test
from attnlaw.analysis.fit.saved_spectra import LOCATIONS, spectrum_from_row
from attnlaw.checkpoints.blocks import Product
from attnlaw.checkpoints.model import Model
from attnlaw.checkpoints.network import KINDS, Network
from attnlaw.checkpoints.settings import DEFAULT_ARITHMETIC, Arithmetic, ModelSettings
from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.progress import Progress, no_progress
from attnlaw.core.result import Result
from attnlaw.core.settings import require_known
from attnlaw.core.tables import quantity_frame
from attnlaw.spectra.measure import Selection, log_expected_time, measure, units_of
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.theory.bounds.proxies import proxies, why_no_proxies

if TYPE_CHECKING:
    from attnlaw.analysis.audit.unfinished import UnfinishedAudit
    from attnlaw.analysis.fit.model_fits import Fits


@dataclass(frozen=True, eq=False)
class Audit:
    """The audit of one model.

    Args:
        findings, matrices, spectra, layers: tables with the columns of `attnlaw.analysis.columns`.
        applications: the amplification after each application of a layer, or None if no layer is shared.
        towers: a table with the sizes and proxies of each tower, or None if the model has no towers.
        tree: the measured spectra, with None for each matrix that was not selected.
        subject: the evidence that the detectors looked at.
        fits_laws: whether laws are fitted when the audit is saved.
    """

    name: str
    quantities: dict[str, Any]
    findings: pl.DataFrame
    matrices: pl.DataFrame
    spectra: pl.DataFrame
    layers: pl.DataFrame
    applications: pl.DataFrame | None
    towers: pl.DataFrame | None
    tree: Network[Spectrum | None]
    subject: Subject
    fits_laws: bool = True

    @property
    def remark(self) -> str | None:
        """A sentence that names the missing numbers and the reason, or None if nothing is missing."""
        remark: str | None = self.quantities["remark"]
        return remark

    def fits(self, progress: Progress = no_progress) -> Fits:
        """Return the fitted laws of all matrices. The first call fits them."""
        # An audit that is only shown does not load the laws.
        from attnlaw.analysis.fit.model_fits import fit_tree

        if "_fits" not in self.__dict__:
            object.__setattr__(self, "_fits", fit_tree(self.name, self.tree, progress=progress))
        fits: Fits = self.__dict__["_fits"]
        return fits

    def __repr__(self) -> str:
        return f"<Audit {self.name}: {self.quantities['family']}, {self.matrices.height} matrices>"


ALL_MATRICES, DEFAULT_OPTIONS = Selection(), AuditOptions()


def audit(
    settings: ModelSettings,
    options: AuditOptions = DEFAULT_OPTIONS,
    arithmetic: Arithmetic = DEFAULT_ARITHMETIC,
    progress: Progress = no_progress,
    keeper: UnfinishedAudit | None = None,
) -> Audit:
    """Audit a checkpoint: measure every matrix, test it against noise, and compute the proxies.

    Args:
        settings: the checkpoint, and which of its matrices to measure. An audit that leaves out some matrices
            has no proxies.
        arithmetic: the precision, and whether very large matrices are only estimated, with an error.
        keeper: the object that keeps finished matrices for a later audit.

    >>> import numpy as np
    >>> block = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": 2 * np.eye(4)}
    >>> found = audit(ModelSettings(model=block, heads=2))
    >>> found.matrices.select("kind", "head", "spectral_norm", "numerical_rank").rows()
    [('qk', 0, 1.0, 2), ('qk', 1, 1.0, 2), ('vo', 0, 2.0, 2), ('vo', 1, 2.0, 2)]
    """
    model = settings.open()
    selection = select_matrices(settings, options, model.network, arithmetic)
    if keeper is not None:
        units = units_of(model, selection)
        kept, every = (
            sum(unit.members for unit in some) for some in (filter(keeper.__contains__, units), units)
        )
        if kept:
            logging.getLogger("attnlaw").info(
                "%d of %d matrices are known from the last run and not measured again", kept, every
            )
    log_expected_time(model, selection, settings.jobs, None if keeper is None else keeper.__contains__)
    return audit_model(model, selection, options, settings.jobs, progress, keeper)


def select_matrices(
    settings: ModelSettings, options: AuditOptions, network: Network[Product], arithmetic: Arithmetic
) -> Selection:
    selection = Selection.from_settings(settings, network, arithmetic)
    if options.experts is None:
        return selection
    if not network.experts:
        raise BadSetting("experts", "this model has no experts; leave this option out", options.experts)
    return replace(selection, experts=options.experts if options.experts < network.experts else None)


def audit_model(
    model: Model,
    selection: Selection = ALL_MATRICES,
    options: AuditOptions = DEFAULT_OPTIONS,
    jobs: int | None = None,
    progress: Progress = no_progress,
    keeper: UnfinishedAudit | None = None,
) -> Audit:
    """Audit a model that is already open, with `jobs` threads (if None, one for each core)."""
    gathered = EvidenceCollector(model)
    measure_unit = None if keeper is None else keeper.measurer(model, gathered.take)
    run = partial(measure, gathered.model, jobs=jobs, progress=progress, measure_unit=measure_unit)
    spectra = _measure_undamaged(gathered.model, selection, run, options.tolerant)
    return build_audit(model, selection, options, spectra, gathered.evidence(selection))


def build_audit(
    model: Model,
    selection: Selection,
    options: AuditOptions,
    spectra: Network[Spectrum | None],
    evidence: Evidence,
) -> Audit:
    """Compute null tests, proxies, findings and tables from spectra (None for each that was not measured)."""
    samples = options.samples
    tests = [null_test(spectrum) for _, spectrum in spectra.leaves() if spectrum is not None]
    reason, towers = why_no_proxies(spectra), tower_proxies(spectra)
    bounds = proxies(spectra) if reason is None else None
    shared = bounds is not None and spectra.depth > len(spectra.layers)
    per_application = proxies(spectra.unroll()) if shared else None
    if samples is not None and bounds is None:
        logging.getLogger("attnlaw").info(
            "%s: --samples %d has no effect, because there are no proxies", model.name, samples
        )
    counted = Rejections.count((test.p_value, test.shape, test.draws) for test in tests if test is not None)
    if towers:
        reason = f"{reason}; each has its own (spectrum-adaptive: {format_tower_proxies(towers)})"
    values = case_values(model, len(tests), bounds, per_application, counted, samples, reason)
    values |= norm_values(model, spectra, options.as_stored)
    matrices, layers = matrix_table(model, spectra, tests, bounds), layer_table(model, spectra, bounds)
    left_out = _left_out_parts(selection, model.network)
    tested = selection.whole and model.layers and counted.tested
    subject = Subject(evidence, matrices, counted.p_value if tested else None, left_out)
    if selection.experts is not None:
        values["warnings"].append(experts_sentence(selection.experts, model.network.experts))
    findings = run_detectors(subject, thresholds=options.thresholds)
    values |= finding_values(findings, subject) | comparable_values(matrices, layers, counted)
    values |= logit_values(model, spectra, matrices)
    return Audit(
        model.name,
        values,
        quantity_frame(FINDINGS, [finding.row(model.name) for finding in findings]),
        matrices,
        spectrum_table(model, spectra),
        layers,
        application_table(spectra, bounds),
        tower_table(model, towers),
        spectra,
        subject,
        not options.no_laws,
    )


def _left_out_parts(selection: Selection, network: Network[Product]) -> frozenset[str]:
    """Return the parts of a model that a selection leaves out and that detectors may need."""
    groups = {KINDS[location.kind].group for location, _ in network.leaves()}
    parts = {
        LAYERS: selection.layers is not None,
        EXPERTS: selection.experts is not None,
        REST: not selection.every_kind,
        **{group: group in groups and group not in selection.groups for group in MATRICES},
    }
    return frozenset(name for name, is_left_out in parts.items() if is_left_out)


def _measure_undamaged(
    model: Model,
    selection: Selection,
    run: Callable[..., Network[Spectrum | None]],
    tolerant: bool,
) -> Network[Spectrum | None]:
    """Measure matrices with `run`. If `tolerant`, skip those that need a tensor with NaN or infinity."""
    try:
        return run(selection, on_spectrum=NullPreparer())
    except InputError:
        damaged = damaged_locations(model) if tolerant else frozenset()
        if not damaged:
            raise
    undamaged = replace(selection, excluded=damaged)
    if not any(undamaged.includes(location) for location, _ in model.network.leaves()):
        return model.network.map(lambda *_: None)
    return run(undamaged, on_spectrum=NullPreparer())


def model_findings(
    source: Any,
    ignore: Iterable[str] = (),
    levels: Mapping[str, str] | None = None,
    thresholds: Mapping[str, float] | None = None,
    **options: Any,
) -> list[Finding]:
    """Return the findings of a model.

    Args:
        source: an audit, an open `Model`, or a checkpoint (a path, a state dict or a module), which is
            audited first. NaN and infinity are findings, and do not stop the audit.
        ignore: names of detectors to skip. All names are in `attnlaw.analysis.findings.detectors.DETECTORS`.
        levels, thresholds: values to use instead of the default, by the name of the detector.
        options: how to open a checkpoint (`heads`, `map`, `adapter`, `layers`, `only`, `jobs`).

    >>> import numpy as np
    >>> block = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": np.zeros((4, 4))}
    >>> findings = model_findings(block, heads=2, ignore=["rank-deficient", "dead-map"])
    >>> [(finding.rule, finding.level) for finding in findings]
    [('zero-tensor', 'error')]
    """
    tolerant = AuditOptions(tolerant=True)
    if isinstance(source, Result):
        audits = [part.record for part in source]
    elif isinstance(source, Audit):
        audits = [source]
    elif isinstance(source, Model):
        audits = [audit_model(source, options=tolerant)]
    else:
        audits = [audit(ModelSettings.parse({"model": source, **options}, "findings"), tolerant)]
    return [
        finding
        for audited in audits
        for finding in run_detectors(audited.subject, ignore, levels, thresholds)
    ]


def spectrum_at(source: Any, **location: Any) -> Spectrum:
    """Return the spectrum of one matrix of a model.

    Args:
        source: an audit (`attnlaw.load(DIR)` opens a saved one), or a checkpoint, which attnlaw audits first.
        location: the columns that identify one matrix: `layer`, `kind`, and maybe `head` or `expert`.

    >>> import numpy as np
    >>> entries = np.random.default_rng(0).standard_normal((128, 32))
    >>> block = {"in_proj_weight": entries[:96], "out_proj.weight": entries[96:]}
    >>> found = audit(ModelSettings(model=block, heads=2))
    >>> spectrum_at(found, layer=0, head=1, kind="qk").shape
    (32, 32)
    """
    for name in location:
        require_known(name, dict.fromkeys(LOCATIONS), "a matrix's place")
    if not isinstance(source, Result | Audit):
        source = audit(ModelSettings.parse({"model": source}, "audit"))
    matrices, spectra = source.matrices, source.spectra
    at_location = pl.all_horizontal(pl.col(name).eq_missing(value) for name, value in location.items())
    rows = matrices.with_row_index("_row").filter(at_location)
    description = ", ".join(f"{name} {value}" for name, value in location.items())
    if rows.height != 1:
        raise InputError(
            f"{description}: found {rows.height} matrices, expected one; narrow the choice with "
            f"{', '.join(LOCATIONS)}"
        )
    row = rows.row(0, named=True)
    values = spectra["singular_values"][row["_row"]]
    if values is None:
        raise InputError(
            f"{description}: its spectrum was approximated; audit the model without --approximate"
        )
    return spectrum_from_row(row, values)
