"""The page of an audit: choose one matrix of a model, and draw fitted laws over its spectrum."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import polars as pl

from attnlaw.analysis.columns import MATRICES
from attnlaw.analysis.fit import LAWS
from attnlaw.analysis.fit.fit import FITTERS, Fit, fit_law
from attnlaw.analysis.fit.null import positive_values
from attnlaw.analysis.fit.saved_spectra import spectrum_from_row
from attnlaw.checkpoints.network import KINDS
from attnlaw.core.errors import InputError
from attnlaw.core.estimate import Outcome, format_value, format_with_error
from attnlaw.core.result import MANIFEST
from attnlaw.lab.controls import Control
from attnlaw.lab.html import Row, draw, lab_html, repeat_words
from attnlaw.render.charts.densities import laws_over_histogram
from attnlaw.render.charts.style import PALETTE
from attnlaw.render.model_names import model_names
from attnlaw.spectra.spectrum import Spectrum
from attnlaw.verbs.audit import VERB
from attnlaw.verbs.views import load

MATRIX, LAWS_PANEL = "Matrix", "Laws to fit"
LOCATION_PARTS = ("model", "stack", "kind", "layer", "head", "expert")
DEFAULT_LAWS = ("random", "heavy-tailed", "learned")
CAPTION = (
    "Bars: histogram of the singular values that are not zero. Lines: laws fitted to these values; the "
    "closer a line is to the bars, the better its law fits. A law that only describes the tail begins "
    "where the tail begins."
)
SHOWN_COLUMNS = (
    "spectral_norm",
    "frobenius_norm",
    "stable_rank",
    "effective_rank",
    "condition",
    "random_p_value",
    "outliers",
)
# Laws that have a colour in maps of heads keep it. The others take unused colours.
_LAW_COLOURS = {law.name: law.colour for law in LAWS.values()}
_SPARE_COLOURS = cycle(number for number in range(len(PALETTE)) if number not in _LAW_COLOURS.values())
COLOURS = {name: _LAW_COLOURS.get(name) or next(_SPARE_COLOURS) for name in FITTERS}


@dataclass(frozen=True, eq=False)
class AuditedModel:
    """The matrices of one or several models, and their spectra. Row i of both tables belongs to one matrix.

    `source` is a checkpoint, or a directory that an audit wrote.
    """

    source: str
    matrices: pl.DataFrame
    spectra: pl.DataFrame

    @classmethod
    def from_source(cls, source: str) -> AuditedModel:
        """Load a saved audit, or audit a checkpoint now."""
        result = load(source) if is_saved(source) else VERB(source)
        if result.verb.name != VERB.name:
            raise InputError(
                f"{source}: this directory holds a result of {result.verb.name}; give a "
                "checkpoint or an audit"
            )
        names = pl.col("case").replace_strict(dict(enumerate(model_names(result))))
        return cls(source, result.tables["matrices"].with_columns(model=names), result.tables["spectra"])

    @property
    def controls(self) -> list[Control]:
        """The controls that choose the matrix (layer, head and so on), and a switch for each law."""
        place_controls = []
        for name in LOCATION_PARTS:
            values = self.matrices[name].drop_nulls().unique(maintain_order=True).to_list()
            if len(values) > 1:
                place_controls.append(_place_control(name, values))
        laws = [Control(law, law, "", LAWS_PANEL, "switch", law in DEFAULT_LAWS) for law in FITTERS]
        return place_controls + laws

    def state(self, values: Mapping[str, Any]) -> FittedSpectrum:
        """Return the matrix and the laws that the user chose with the controls."""
        chosen = {name: values[name] for name in LOCATION_PARTS if name in values}
        rows = self.matrices.with_row_index("_row")
        for name, value in chosen.items():
            rows = rows.filter(pl.col(name).is_null() | (pl.col(name) == value))
        if not rows.height:
            raise InputError(f"there is no {', '.join(f'{name} {value}' for name, value in chosen.items())}")
        row = rows.row(0, named=True)
        kept = self.spectra["singular_values"][row["_row"]]
        if kept is None:
            raise InputError("this spectrum was approximated; audit the model without --approximate")
        laws = [law for law in FITTERS if values.get(law)]
        return FittedSpectrum(self.source, row, spectrum_from_row(row, kept), laws)


@dataclass(frozen=True, eq=False)
class FittedSpectrum:
    """One matrix: its row of the audit, its spectrum, and the laws to fit to it."""

    source: str
    row: Mapping[str, Any]
    spectrum: Spectrum
    laws: Sequence[str]

    @property
    def location(self) -> dict[str, Any]:
        named = ["model"] if is_saved(self.source) else []
        return {name: self.row[name] for name in (*named, *LOCATION_PARTS[1:]) if self.row[name] is not None}

    def fits(self) -> dict[str, Fit]:
        return {law: fit_law(self.spectrum, law) for law in self.laws}

    def as_python(self) -> str:
        location = ", ".join(f"{name}={value!r}" for name, value in self.location.items() if name != "model")
        saved = f"attnlaw.load({self.source!r})[{self.row['case']}]"
        source = saved if is_saved(self.source) else repr(self.source)
        return (
            "import attnlaw\nfrom attnlaw.analysis.audit.audit import spectrum_at\nfrom "
            f"attnlaw.analysis.fit.fit import fit_law\n\nspectrum = spectrum_at({source}, {location})\nfits "
            f"= {{law: fit_law(spectrum, law) for law in {list(self.laws)!r}}}"
        )

    def as_command(self) -> str:
        """Return a command that fits all matrices of this layer and kind: no option selects a head."""
        model = self.row["model"] if is_saved(self.source) else self.source
        words = ["attnlaw", "fit", model, "--only", KINDS[self.row["kind"]].group or ""]
        words += [] if self.row["layer"] is None else ["--layers", str(self.row["layer"])]
        return shlex.join([*words, "--json"])


def is_saved(source: str) -> bool:
    return (Path(source) / MANIFEST).is_file()


def _place_control(name: str, values: list[Any]) -> Control:
    if all(isinstance(value, int) for value in values):
        return Control(name, name, "", MATRIX, "slider", values[0], steps=tuple(sorted(values)))
    return Control(name, name, "", MATRIX, "choice", values[0], options=tuple(values))


def fitted_spectrum_html(fitted: FittedSpectrum) -> str:
    """Return the HTML of the page: the spectrum with its laws, the tables, and code that repeats the fit."""
    fits = fitted.fits()
    curves = {law: fit.curve for law, fit in fits.items() if fit.curve is not None}
    chart = laws_over_histogram(positive_values(fitted.spectrum), curves, COLOURS, "singular value")
    parts = fitted.location.items()
    words = [KINDS[value].label if name == "kind" else f"{name} {value}" for name, value in parts]
    drawn = draw(", ".join(words), chart, CAPTION, "lab0")
    return lab_html("spectrum", drawn, [_laws_table(fits), _matrix_table(fitted.row)], repeat_words(fitted))


def _laws_table(fits: Mapping[str, Fit]) -> tuple[list[str], list[Row]]:
    rows = []
    for law, fit in fits.items():
        known = {name: value for name, value in fit.parameters.items() if value is not None}
        texts = [
            f"{name.replace('_', ' ')} {format_with_error(value, fit.errors.get(name))}"
            for name, value in known.items()
        ]
        ending = "" if fit.outcome == Outcome.DONE else str(fit.outcome)
        remark = ": ".join(filter(None, [ending, fit.remark]))
        ks, p_value = format_value(fit.ks), format_value(fit.p_value)
        cells = {"parameters": ", ".join(texts), "ks": ks, "p_value": p_value, "remark": remark}
        rows.append([("", law), *((f"{law}-{name}", text) for name, text in cells.items())])
    titles = ("law", "parameters", "KS distance", "p-value", "remark")
    filled = [column for column in range(len(titles)) if not rows or any(row[column][1] for row in rows)]
    return [titles[column] for column in filled], [[row[column] for column in filled] for row in rows]


def _matrix_table(row: Mapping[str, Any]) -> tuple[list[str], list[Row]]:
    rows: list[Row] = []
    for column in MATRICES:
        if column.name in SHOWN_COLUMNS and (text := format_value(row.get(column.name))):
            rows.append([("", column.label), (column.name, text), ("", column.description)])
    return ["quantity", "value", "meaning"], rows
