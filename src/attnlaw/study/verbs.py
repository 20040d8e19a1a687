"""The verbs a study can run: a task function each, its keywords the command's options, and a line in a table.

A task computes with one thread and reads files itself. It returns plain values for its row; tables too large
for a row (matrices, spectra, densities, eigenvalues) are written beside it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from attnlaw.study.task import Result
from attnlaw.study.verb import Verb

if TYPE_CHECKING:
    from attnlaw.aim.problem import Problem
    from attnlaw.limits import Estimate, Stack

__all__ = ["VERBS"]

# What `fit` may say of a matrix.
LAWS = ("random", "learned", "heavy-tailed", "power-law tail", "neither")


def learn(
    *,
    alpha: float = 0.2,
    tokens: int = 1,
    output: str = "linear",
    beta: float = 1.0,
    target_rank: float = 0.5,
    noise: float = 0.0,
    weight_decay: float = 0.1,
    student: str = "factorized",
    thresholds: bool = False,
) -> Result:
    """`attnlaw learn`: what the theory predicts at one point."""
    from attnlaw.aim.state_evolution import state_evolution
    from attnlaw.aim.sweep import row
    from attnlaw.aim.thresholds import thresholds as find_thresholds

    problem = _problem(alpha, tokens, output, beta, target_rank, noise, weight_decay, student)
    prediction = state_evolution(problem)
    relative = prediction.estimation_error / problem.target.second_moment
    known = find_thresholds(problem.target, problem.observations_per_sample, noise) if thresholds else None
    values = _results(row(prediction), problem) | {"relative_error": relative}
    return Result(
        values | ({} if known is None else {f"threshold_{k}": v for k, v in known.describe().items()})
    )


def _check_learn(**arguments: Any) -> None:
    arguments.pop("thresholds")
    _problem(**arguments)


def simulate(
    *,
    simulate: int,
    alpha: float = 0.2,
    tokens: int = 1,
    output: str = "linear",
    beta: float = 1.0,
    target_rank: float = 0.5,
    noise: float = 0.0,
    weight_decay: float = 0.1,
    student: str = "factorized",
    sensing: str = "tokens",
    seed: int,
) -> Result:
    """`attnlaw learn --simulate D --seeds 1`: one student trained on its own data."""
    import polars as pl

    from attnlaw.aim.simulate import QUANTITIES
    from attnlaw.aim.simulate import simulate as train

    problem = _problem(alpha, tokens, output, beta, target_rank, noise, weight_decay, student)
    found = train(problem, size=simulate, seeds=1, seed=seed, sensing=sensing, jobs=1)  # type: ignore[arg-type]
    values = {name: getattr(found, name).mean for name in QUANTITIES}
    rest = {name: getattr(found, name) for name in ("samples", "solver", "residual", "status")}
    eigenvalues = pl.DataFrame({"eigenvalue": found.eigenvalues[0]})
    return Result(values | rest, {"eigenvalues": eigenvalues})


def _check_simulate(*, simulate: int, sensing: str, **arguments: Any) -> None:
    from attnlaw.aim.sensing import SensingName
    from attnlaw.errors import InputError

    problem = _problem(**arguments)
    if problem.student == "bayes":
        raise InputError("student: bayes is not trained; choose factorized or direct")
    if sensing not in get_args(SensingName):
        raise InputError(f"sensing: found {sensing!r}, expected one of {', '.join(get_args(SensingName))}")
    problem.target.quantiles(simulate)


def _problem(
    alpha: float,
    tokens: int,
    output: str,
    beta: float,
    target_rank: float,
    noise: float,
    weight_decay: float,
    student: str,
) -> Problem:
    from attnlaw.aim.problem import Problem, Target

    target = Target.marchenko_pastur(target_rank)
    return Problem(alpha, tokens, output, beta, target, noise, weight_decay, student)


def _results(row: dict[str, Any], problem: Problem) -> dict[str, Any]:
    """What a prediction's row has beside its arguments."""
    arguments = {*problem.describe(), "target_rank"}
    return {name: value for name, value in row.items() if name not in arguments}


def limit(
    *,
    tokens: int = 4,
    heads: int = 2,
    width: float = math.inf,
    draws: int = 50_000,
    activation: str = "identity",
    mask: str = "none",
    depth: int = 1,
    residual: bool = False,
    normalise: bool = False,
    token: int = 1,
    head_width: int | None = None,
    scaling: str = "1/sqrt(n)",
    seed: int,
) -> Result:
    """`attnlaw limit --width N`: the law at one width against the limit; errors are standard errors."""
    import polars as pl

    from attnlaw.limits import compare_widths, density_rows

    stack = _stack(tokens, heads, width, activation, mask, depth, residual, normalise, head_width, scaling)
    (found,) = compare_widths(stack, [width], draws, seed, token - 1)
    values: dict[str, Any] = {}
    for name in (
        "score_variance",
        "output_variance",
        "kurtosis",
        "kl_to_limit",
        "w1_to_limit",
        "ks_to_limit",
    ):
        values |= _with_error(name, getattr(found, name))
    if found.path is not None:
        points = found.path.path()
        for name in ("squared_length", "cosine"):
            estimates = [_with_error(name, getattr(point, name)) for point in points]
            values |= {f"path_{key}": [one[key] for one in estimates] for key in estimates[0]}
    density = pl.DataFrame(density_rows({width: found.law})).select("y", "density")
    return Result(values | {"residual_of_distances": found.residual}, {"densities": density})


def _check_limit(*, draws: int, token: int, **arguments: Any) -> None:
    from attnlaw.errors import InputError

    if draws < 2:
        raise InputError(f"draws: found {draws}, expected at least 2")
    stack = _stack(**arguments)
    if not 1 <= token <= stack.layer.tokens:
        raise InputError(f"token: found {token}, expected one of the {stack.layer.tokens} tokens, from 1")


def _stack(
    tokens: int,
    heads: int,
    width: float,
    activation: str,
    mask: str,
    depth: int,
    residual: bool,
    normalise: bool,
    head_width: int | None,
    scaling: str,
) -> Stack:
    from attnlaw.limits import Layer, RandomInputs, Scores, Stack

    inputs = RandomInputs(tokens, activation)
    layer = Layer(inputs, heads, width, head_width, Scores(mask=mask, scaling=scaling))  # type: ignore[arg-type]
    return Stack(layer, depth, residual, None, normalise)


def _with_error(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {name: None, f"{name}_error": None}
    return {name: estimate.value, f"{name}_error": estimate.error}


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
    from attnlaw.auditing import audit as run_audit

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
    summary = found.summary
    named = {"layers": "depth", "heads": "head_count", "matrices": "matrix_count"}
    plain = ("family", "layers", "distinct_layers", "hidden_size", "heads", "matrices", "activation")
    rest = ("value_of_adaptivity", "rank_count", "warnings")
    values = {
        **{named.get(name, name): summary.get(name) for name in plain},
        **_proxies(summary.get("proxies") or {}),
        **{name: summary.get(name) for name in rest},
    }
    return Result(values, {"matrices": found.matrices, "spectra": found.spectra, "layers": found.layers})


def _proxies(proxies: dict[str, Any]) -> dict[str, float | None]:
    """log10 of every proxy in a column of its own."""
    fixed = {f"fixed_p_{p}": value for p, value in proxies.get("fixed_p", {}).items()}
    flat = {name: value for name, value in proxies.items() if name != "fixed_p"} | fixed
    return {f"log10_{name}": value["log10"] for name, value in flat.items()}


def fit(
    *,
    model: str,
    layers: str | None = None,
    only: str | None = None,
    heads: int | None = None,
    seed: int = 0,
) -> Result:
    """`attnlaw fit MODEL`: how many matrices follow which law as a row; fits and curves as tables."""
    from attnlaw.auditing.fitting import fit_model

    found = fit_model(model, layers=layers, only=only, heads=heads, seed=seed, jobs=1)
    laws = dict(found.matrices["law"].drop_nulls().value_counts().iter_rows())
    (rejections,) = found.rejections().values()
    values = {
        "matrix_count": found.matrices.height,
        **{f"{law.replace(' ', '_').replace('-', '_')}_count": laws.get(law, 0) for law in LAWS},
        **{f"not_random_{name}": value for name, value in vars(rejections).items()},
    }
    return Result(values, {"fits": found.matrices, "curves": found.curves})


def _check_model(*, model: str, **_: Any) -> None:
    from attnlaw.checkpoints.hub import is_hub_id
    from attnlaw.errors import InputError

    if not Path(model).exists() and not is_hub_id(model):
        raise InputError(f"model: {model}: no such file or directory; relative paths start at the study file")


# The table: a new verb is a function above and a line here.
VERBS = {
    "audit": Verb(audit, check=_check_model, files=("model", "map", "adapter")),
    "fit": Verb(fit, check=_check_model, files=("model",)),
    "learn": Verb(learn, check=_check_learn),
    "learn.simulate": Verb(simulate, draws=True, check=_check_simulate),
    "limit": Verb(limit, draws=True, check=_check_limit),
}
