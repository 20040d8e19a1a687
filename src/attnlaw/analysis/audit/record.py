"""The record of an audit: what was measured of one model, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from attnlaw.analysis.audit.laws import Fits, fit_tree
from attnlaw.analysis.findings.evidence import Subject
from attnlaw.checkpoints.network import Network
from attnlaw.core.progress import Progress, no_progress
from attnlaw.spectra.spectrum import Spectrum


@dataclass(frozen=True, eq=False)
class Audit:
    """The numbers of one model, the tree that they were flattened from, and what the rules looked at.

    Args:
        name: what rows call the model.
        quantities: the numbers of the model by name.
        findings, matrices, spectra, layers: tables with the columns of `attnlaw.analysis.columns`.
        applications: the amplification after each application of a layer, if layers are shared.
        towers: sizes and proxies of each tower, if there are towers.
        tree: the measured spectra; None in place of a matrix that was not selected.
        subject: what the rules of findings looked at.
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
        """What is missing, and why."""
        remark: str | None = self.quantities["remark"]
        return remark

    def fits(self, progress: Progress = no_progress) -> Fits:
        """Return the laws of all matrices; they are fitted once."""
        if "_fits" not in self.__dict__:
            object.__setattr__(self, "_fits", fit_tree(self.name, self.tree, progress=progress))
        fits: Fits = self.__dict__["_fits"]
        return fits

    def __repr__(self) -> str:
        return f"<Audit {self.name}: {self.quantities['family']}, {self.matrices.height} matrices>"
