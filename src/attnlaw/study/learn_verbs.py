"""`learn` and `learn.simulate` as tasks of a study: theory at one point, one trained student.

The target is `S* = W0 W0^T / sqrt(m0 d)` of `target_rank` m0/d; `target_exponent` gives it eigenvalues that
fall as a power instead, `target_spike` adds one eigenvalue outside the bulk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnlaw.study.task import Result

if TYPE_CHECKING:
    from attnlaw.learning.prediction import Prediction
    from attnlaw.learning.problem import Problem, Target


def learn(
    *,
    alpha: float = 0.2,
    tokens: int = 1,
    output: str = "linear",
    beta: float = 1.0,
    target_rank: float = 0.5,
    target_spike: float | None = None,
    target_exponent: float | None = None,
    target_dimension: int = 1_000_000,
    noise: float = 0.0,
    weight_decay: float = 0.1,
    student: str = "factorized",
    thresholds: bool = False,
    spectrum: bool = False,
) -> Result:
    """`attnlaw learn`: what the theory predicts at one point; `spectrum` adds the density as a table."""
    import polars as pl

    from attnlaw.learning.figures import density_rows
    from attnlaw.learning.state_evolution import state_evolution
    from attnlaw.learning.sweep import row
    from attnlaw.learning.thresholds import threshold_columns
    from attnlaw.report.learn_charts import DENSITY

    target = chosen_target(target_rank, target_spike, target_exponent, target_dimension)
    problem = _problem(alpha, tokens, output, beta, target, noise, weight_decay, student)
    prediction = state_evolution(problem)
    arguments = {*problem.describe(), "target_rank"}
    values = {name: value for name, value in row(prediction).items() if name not in arguments}
    values |= _unused(problem)
    values["relative_error"] = prediction.estimation_error / target.second_moment
    if target_spike is not None:
        seen = [outlier.location for outlier in prediction.outliers if outlier.target == target_spike]
        values["outlier"] = next(iter(seen), None)
    if target_exponent is not None:
        values |= _scaling(prediction)
    if thresholds:
        values |= {f"threshold_{name}": value for name, value in threshold_columns(problem).items()}
    if not spectrum:
        return Result(values)
    return Result(values, {"predicted_spectra": pl.DataFrame(density_rows(prediction), schema=DENSITY)})


def _scaling(prediction: Prediction) -> dict[str, float | None]:
    """What the leading-order law says of a power-law target: the error, and the power of N/d.

    It is known for the linear output (not for the direct student), and for the Bayes-optimal student with
    softmax, whose equations are the same with (T^2+T-2)/2 observations per sample; null elsewhere.
    """
    from attnlaw.learning.scaling import leading_error, predicted_exponent

    problem, target = prediction.problem, prediction.problem.target
    is_known = problem.output == "linear" or (problem.output, problem.student) == ("softmax", "bayes")
    if not is_known or problem.student == "direct" or target.exponent is None or target.dimension is None:
        return {"leading_error": None, "predicted_exponent": None}
    ratio = problem.observations * target.dimension
    (leading,) = leading_error(target.exponent, [ratio], problem.noise, problem.student).tolist()
    return {
        "leading_error": leading,
        "predicted_exponent": predicted_exponent(target.exponent, problem.noise),
    }


def check_learn(
    *,
    target_rank: float,
    target_spike: float | None,
    target_exponent: float | None,
    target_dimension: int,
    thresholds: bool,
    spectrum: bool,
    **arguments: Any,
) -> None:
    """An `InputError` for a problem that has no theory, or one too large to be solved."""
    from attnlaw.learning.state_evolution import check_size

    target = chosen_target(target_rank, target_spike, target_exponent, target_dimension)
    check_size(_problem(target=target, **arguments))


def simulate(
    *,
    simulate: int,
    alpha: float = 0.2,
    tokens: int = 1,
    output: str = "linear",
    beta: float = 1.0,
    target_rank: float = 0.5,
    target_spike: float | None = None,
    target_exponent: float | None = None,
    target_dimension: int = 1_000_000,
    noise: float = 0.0,
    weight_decay: float = 0.1,
    student: str = "factorized",
    sensing: str = "tokens",
    seed: int,
) -> Result:
    """`attnlaw learn --simulate D --seeds 1`: one student trained on its own data."""
    import polars as pl

    from attnlaw.learning.simulate import QUANTITIES
    from attnlaw.learning.simulate import simulate as train

    target = chosen_target(target_rank, target_spike, target_exponent, target_dimension)
    problem = _problem(alpha, tokens, output, beta, target, noise, weight_decay, student)
    found = train(problem, size=simulate, seeds=1, seed=seed, sensing=sensing, jobs=1)  # type: ignore[arg-type]
    values = {name: getattr(found, name).mean for name in QUANTITIES}
    rest = {name: getattr(found, name) for name in ("samples", "solver", "residual", "status")}
    eigenvalues = pl.DataFrame({"eigenvalue": found.eigenvalues[0]})
    return Result(values | rest | _unused(problem), {"eigenvalues": eigenvalues})


def _unused(problem: Problem) -> dict[str, None]:
    """Null for arguments that this problem does not have: its row does not state what was ignored."""
    target = problem.target
    told = problem.describe() | {"target_rank": target.rank_ratio, "target_dimension": target.dimension}
    names = ("beta", "weight_decay", "target_rank", "target_dimension")
    return {name: None for name in names if told[name] is None}


def check_simulate(
    *,
    simulate: int,
    target_rank: float,
    target_spike: float | None,
    target_exponent: float | None,
    target_dimension: int,
    sensing: str,
    **arguments: Any,
) -> None:
    """An `InputError` for a student that cannot be trained."""
    from attnlaw.learning.simulate import check_simulation

    target = chosen_target(target_rank, target_spike, target_exponent, target_dimension)
    check_simulation(_problem(target=target, **arguments), simulate, sensing)


def chosen_target(rank: float, spike: float | None, exponent: float | None, dimension: int) -> Target:
    """The target that the options name.

    >>> chosen_target(0.5, 8.0, None, 100).describe()
    {'kind': 'marchenko-pastur', 'rank_ratio': 0.5, 'spikes': [8.0]}
    """
    from attnlaw.learning.problem import Target

    bulk = Target.marchenko_pastur(rank) if exponent is None else Target.power_law(exponent, dimension)
    return bulk if spike is None else bulk.with_spikes(spike)


def _problem(
    alpha: float,
    tokens: int,
    output: str,
    beta: float,
    target: Target,
    noise: float,
    weight_decay: float,
    student: str,
) -> Problem:
    from attnlaw.learning.problem import Problem

    return Problem(alpha, tokens, output, beta, target, noise, weight_decay, student)
