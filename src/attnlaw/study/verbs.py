"""The verbs a study can run: a task function each, its keywords the command's options, and a line in a table.

A task computes with one thread and reads files itself. It returns plain values for its row; tables too large
for a row (matrices, spectra, densities, eigenvalues) are written beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlaw.study.learn_verbs import check_learn, check_simulate, learn, simulate
from attnlaw.study.limit_verb import check_limit, limit
from attnlaw.study.task import Result
from attnlaw.study.verb import Verb

__all__ = ["VERBS"]


def audit(
    *,
    model: str,
    layers: str | None = None,
    only: str | None = None,
    heads: int | None = None,
    map: str | None = None,
    adapter: str | None = None,
    samples: int | None = None,
    approximate: bool = False,
) -> Result:
    """`attnlaw audit MODEL`: the summary as a row; matrices, spectra and layers as tables."""
    from attnlaw import audit as run_audit
    from attnlaw.report.summary_row import to_row

    found = run_audit(
        model,
        layers=layers,
        only=only,
        heads=heads,
        map=map,
        adapter=adapter,
        samples=samples,
        approximate=approximate,
        jobs=1,
    )
    tables = {"matrices": found.matrices, "spectra": found.spectra, "layers": found.layers}
    return Result(to_row(found.summary), tables)


def fit(
    *,
    model: str,
    layers: str | None = None,
    only: str | None = None,
    heads: int | None = None,
    map: str | None = None,
    adapter: str | None = None,
    seed: int = 0,
) -> Result:
    """`attnlaw fit MODEL`: how many matrices follow which law as a row; fits and curves as tables."""
    from attnlaw import fit as run_fit

    found = run_fit(model, layers=layers, only=only, heads=heads, map=map, adapter=adapter, seed=seed, jobs=1)
    return Result(found.quantities, {"fits": found.matrices, "curves": found.curves})


def _check_model(*, model: str, **_: Any) -> None:
    from attnlaw.base.errors import InputError
    from attnlaw.models.hub import is_hub_id

    if not Path(model).exists() and not is_hub_id(model):
        raise InputError(f"model: {model}: no such file or directory; relative paths start at the study file")


# The table: a new verb is a function and a line here.
VERBS = {
    "audit": Verb(audit, check=_check_model, files=("model", "map", "adapter")),
    "fit": Verb(fit, check=_check_model, files=("model", "map", "adapter")),
    "learn": Verb(learn, check=check_learn),
    "learn.simulate": Verb(simulate, draws=True, check=check_simulate),
    "limit": Verb(limit, draws=True, check=check_limit),
}
