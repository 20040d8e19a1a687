"""Audit one model: open, measure, test, bound, and flatten the tree into rows, once."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.auditing.findings.damaged import damaged_places
from attnlaw.auditing.findings.evidence import Evidence, Subject
from attnlaw.auditing.findings.find import apply_rules
from attnlaw.auditing.findings.gather import Gathered
from attnlaw.auditing.fits import fit_tree
from attnlaw.auditing.quantities import FINDINGS
from attnlaw.auditing.rows import TABLES, layer_table, matrix_table, schema, spectrum_table
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
from attnlaw.base.files import parquet, read_bounded, replace_all, replaceable, to_json, usable_directory
from attnlaw.base.of_models import OfModels
from attnlaw.base.results import save_results
from attnlaw.base.shown import frame_html
from attnlaw.base.tables import frame
from attnlaw.bounds.proxies import Proxies, obstacle, proxies
from attnlaw.fits.null import NullsDrawn, Rejections, null_test
from attnlaw.models.model import Model
from attnlaw.models.network import Network
from attnlaw.models.settings import USUAL, Arithmetic, ModelSettings
from attnlaw.spectra.measure import Selection, measure, tell_expected
from attnlaw.spectra.spectrum import Spectrum

MOST_SUMMARY = 64  # megabytes of summary.json
ALL = Selection()


# What a notebook shows: of findings their places, of layers the columns that say most.
PLACE = ("layer", "stack", "head", "expert", "kind", "tensor")
SHARES = ("share_qk", "share_vo", "share_cross", "share_ffn")
LAYER = ("model", "layer", "stack", "log10_alpha", *SHARES, "adaptivity")


@dataclass(frozen=True, eq=False)
class Audit(OfModels, verb="audit"):
    """The numbers of one or several models: rows, the trees that they were flattened from, a summary each.

    `findings`, `matrices`, `spectra` and `layers` are polars tables whose columns
    `attnlaw.auditing.quantities` lists; so are `fits` and `curves`, once `fitted()`. `summaries` are dicts of
    plain values, `cases` the quantities of each model by name, `trees` the measured spectra (None where a
    matrix was not selected), `subjects` what the rules of findings looked at.
    """

    summaries: tuple[dict[str, Any], ...]
    matrices: pl.DataFrame
    spectra: pl.DataFrame
    layers: pl.DataFrame
    fits: pl.DataFrame | None = None
    curves: pl.DataFrame | None = None
    cases: tuple[dict[str, Any], ...] = ()
    trees: tuple[Network[Spectrum | None], ...] = ()
    findings: pl.DataFrame | None = None
    subjects: tuple[Subject, ...] = ()

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables that are there, by name."""
        named = {name: getattr(self, name) for name in TABLES}
        return {name: table for name, table in named.items() if table is not None}

    def fitted(self, seed: int = 0, progress: Progress = silent) -> Audit:
        """The same audit with spectral laws fitted to every matrix (tables `fits` and `curves`)."""
        found = fit_tree(list(zip(self.names, self.trees, strict=True)), seed, progress)
        return replace(self, fits=found.matrices, curves=found.curves)

    def summarized(self, summary: dict[str, Any]) -> Audit:
        """The same audit of one model with this summary."""
        return replace(self, summaries=(summary,))

    @property
    def remark(self) -> str | None:
        """What is missing, and why."""
        return "; ".join(case["remark"] for case in self.cases if case["remark"]) or None

    def to_pandas(self) -> Any:
        """The matrix rows as a pandas table (needs the `pandas` extra)."""
        try:
            return self.matrices.to_pandas()
        except ModuleNotFoundError as error:
            message = "to_pandas needs pandas and pyarrow; install them with: pip install 'attnlaw[pandas]'"
            raise InputError(message) from error

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the matrix rows as CSV, without the two columns that hold lists.

        A text that a spreadsheet would take for a formula (it begins with =, +, - or @) gets an apostrophe.
        """
        plain = self.matrices.select(name for name, dtype in self.matrices.schema.items() if dtype != pl.List)
        safe = plain.with_columns(pl.col(pl.String).str.replace(r"^([=+\-@\t\r])", "'$1"))
        replace_all({Path(path): safe.write_csv().encode()})
        return Path(path)

    def save(
        self, directory: str | os.PathLike[str], as_list: bool = False, figures: str | None = None
    ) -> Path:
        """Write the tables (parquet), summary.json and report.html; with `figures` ("pdf") figures/ too.

        An audit that is there is replaced, its fits too. A summary.json that is no audit's is refused.
        """
        folder = usable_directory(directory)
        lost = [name for name in TABLES if name not in self.tables()] if holds_audit(folder) else []
        stale = [replaceable(folder / f"{name}.parquet") for name in lost]
        files = {f"{name}.parquet": parquet(table) for name, table in self.tables().items()}
        files["summary.json"] = f"{to_json(self.as_json(as_list))}\n".encode()
        save_results(folder, "audit", files, figures)
        for path in stale:  # of rows that were replaced
            path.unlink(missing_ok=True)
        return folder

    def __repr__(self) -> str:
        return f"<Audit {'; '.join(map(_in_short, self.summaries))}>"

    def _repr_html_(self) -> str:
        lines = "".join(f"<p><b>Audit</b> of {escape(_in_short(one))}</p>" for one in self.summaries)
        if self.findings is None or not self.findings.height:
            told = "" if self.findings is None else "<p>no findings</p>"
        else:
            told = frame_html(self.findings, ("model", "level", "rule", *PLACE, "meaning"))
        return f"{lines}{told}{frame_html(self.layers, LAYER)}"


def audit(
    settings: ModelSettings,
    samples: int | None = None,
    arithmetic: Arithmetic = USUAL,
    progress: Progress = silent,
    as_stored: bool = False,
    tolerant: bool = False,
    thresholds: Mapping[str, float] | None = None,
) -> Audit:
    """Audit a checkpoint: the spectra of every matrix, their null tests, and the proxies they imply.

    `samples` adds proxy / sqrt(samples). `arithmetic` says how precisely matrices are factorised, and whether
    very large ones are estimated, with errors, instead. `as_stored`: tables and maps show norms of the stored
    matrices, not as applied. Where not every matrix is selected there are no proxies. `tolerant`: NaN and
    infinity are findings, and what can be measured without them is. `thresholds` are of findings, by rule.

    >>> import numpy as np
    >>> block = {"in_proj_weight": np.tile(np.eye(4), (3, 1)), "out_proj.weight": 2 * np.eye(4)}
    >>> found = audit(ModelSettings(model=block, heads=2))
    >>> found.matrices.select("kind", "head", "spectral_norm", "numerical_rank").rows()
    [('qk', 0, 1.0, 2), ('qk', 1, 1.0, 2), ('vo', 0, 2.0, 2), ('vo', 1, 2.0, 2)]
    """
    model = settings.open()
    selection = Selection.of(settings, model.network, arithmetic)
    tell_expected(model, selection, settings.jobs)
    given = Given(samples, as_stored, tolerant, thresholds)
    return audit_model(model, selection, given, settings.jobs, progress)


@dataclass(frozen=True)
class Given:
    """What an audit is asked for beside the matrices; the words are those of `audit`."""

    samples: int | None = None
    as_stored: bool = False
    tolerant: bool = False
    thresholds: Mapping[str, float] | None = None


def audit_model(
    model: Model,
    selection: Selection = ALL,
    given: Given = Given(),  # noqa: B008  (a frozen record)
    jobs: int | None = None,
    progress: Progress = silent,
) -> Audit:
    """Audit a model that is open."""
    gathered = Gathered(model)
    spectra = _measured(gathered.model, selection, jobs, progress, given.tolerant)
    return concluded(model, selection, given, spectra, gathered.evidence(selection.whole))


def concluded(
    model: Model, selection: Selection, given: Given, spectra: Network[Spectrum | None], evidence: Evidence
) -> Audit:
    """What follows from the spectra of a model and from what was noted while they were measured."""
    samples = given.samples
    tests = [null_test(spectrum) for _, spectrum in spectra.leaves() if spectrum is not None]
    bounds, per_application = _bounds(spectra)
    if samples is not None and bounds is None:
        logging.getLogger("attnlaw").info("%s: --samples %d has no proxy to divide", model.name, samples)
    counted = Rejections.count((test.p_value, test.shape, test.draws) for test in tests if test is not None)
    reason, towers = obstacle(spectra), tower_proxies(spectra)
    if towers:
        reason = f"{reason}; each has its own (spectrum-adaptive: {in_words(towers)})"
    values = case_values(model, len(tests), bounds, per_application, counted, samples, reason)
    values |= norm_values(model, spectra, given.as_stored)
    matrices, layers = matrix_table(model, spectra, tests, bounds), layer_table(model, spectra, bounds)
    tested = selection.whole and model.layers and counted.tested
    subject = Subject(evidence, matrices, counted.p_value if tested else None)
    found = apply_rules(subject, thresholds=given.thresholds)
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


def holds_audit(folder: Path) -> bool:
    """Whether an audit was saved in the directory; an `InputError` where summary.json is another's."""
    path = replaceable(folder / "summary.json")
    if not path.exists():
        return False
    try:
        found = json.loads(read_bounded(path, MOST_SUMMARY))
        summaries = found if isinstance(found, list) else [found]
        known = summaries and all({"model", "proxies", "attnlaw_version"} <= one.keys() for one in summaries)
    except (ValueError, RecursionError, AttributeError):  # an `InputError` is a `ValueError`
        known = False
    if not known:
        raise InputError(f"{folder}: holds another summary.json, of no audit; give an empty directory")
    return True


def _in_short(summary: dict[str, Any]) -> str:
    """A model's name, family and size, and its first proxy where it has proxies."""
    text = f"{summary['model']}: {summary['family']}, {summary['matrices']} matrices"
    proxy = summary["proxies"] and summary["proxies"]["spectrum_adaptive"]["log10"]
    return text if proxy is None else f"{text}, log10 proxy {proxy:.2f}"
