"""`attnlaw learn`: predict what a single attention head learns, and train real heads to compare."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property

import numpy as np

from attnlaw.core.errors import InputError, rename_settings
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import OptionPanel, setting, setting_fields, setting_like, settings_dataclass
from attnlaw.core.verb import Verb, attempt
from attnlaw.theory.learn.attention import ATTENTIONS
from attnlaw.theory.learn.data import SENSINGS
from attnlaw.theory.learn.outputs import STATIC_OUTPUTS
from attnlaw.theory.learn.prediction import Prediction
from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.scaling import leading_order
from attnlaw.theory.learn.settings import ProblemSettings
from attnlaw.theory.learn.simulate import Measurement, check_simulation, simulate
from attnlaw.theory.learn.state_evolution import state_evolutions
from attnlaw.theory.learn.students import STUDENTS
from attnlaw.theory.learn.target import Target, stated_target
from attnlaw.theory.learn.thresholds import problem_thresholds

Densities = list[dict[str, float]]
RUN = OptionPanel.SIMULATION
SETTING_NAMES = {"size": "simulate", "samples": "alpha"}  # arguments of `simulate`: settings of the verb


@settings_dataclass
class LearnSettings(ProblemSettings):
    """Predict what a single attention head learns from n samples, and train real heads to compare.

    Tokens x_a are Gaussian vectors of dimension d. A head with the matrix S gives two tokens a and b the
    attention score h_ab = (x_aᵀ S x_b − δ_ab Tr S)/√d. Labels are the scores of a target matrix S*, plain or
    through a row softmax, with optional noise. The model that learns from the labels (the student) finds a
    matrix Ŝ. By default the target is S* = W₀W₀ᵀ/√(m₀d), where W₀ is a Gaussian d × m₀ matrix. Predictions
    are for large d (arXiv 2509.24914, 2506.01582).
    """

    output: str = setting_like(ProblemSettings, "output", choices=STATIC_OUTPUTS)
    thresholds: bool = setting(
        False,
        "Also show how many samples the student needs to find the target matrix exactly (not for "
        "hardmax labels).",
        active_if=("output", "identifies_target"),
        panel=RUN,
        lab_default=True,
    )
    spectrum: bool = setting(
        False, "Also show the predicted density of the learned matrix's eigenvalues, as a table.", panel=RUN
    )

    @cached_property
    def problem(self) -> Problem:
        """The learning problem that these settings describe. A case without theory is an error."""
        shared = {field.name for field in fields(Problem)} & setting_fields(ProblemSettings).keys()
        stated = {name: getattr(self, name) for name in shared}
        if not ATTENTIONS[self.attention].paired:
            return Problem(**stated | {"pairs": None}, target=stated_target(self, Target.marchenko_pastur))
        return Problem(**stated, target=stated_target(self, Target.product))


@settings_dataclass
class LearnSimulationSettings(LearnSettings):
    """Train real models at a finite token dimension, with new data for each model."""

    simulate: int = setting(
        MISSING,
        "Also train real models with tokens of dimension D, to compare with theory.",
        symbol="d",
        minimum=2,
        sweepable=True,
        panel=RUN,
        metavar="D",
        slider_range=(10, 100),
        lab_default=40,
    )
    sensing: str = setting(
        "tokens",
        "Inputs of the trained models: tokens, tokens with random signs (signed), or Gaussian "
        "matrices as in theory (goe; untied: ginibre).",
        choices=SENSINGS,
        sweepable=True,
        panel=RUN,
    )
    seeds: int = setting(
        8,
        "Number of models to train on different data. The standard error of their mean is shown.",
        minimum=1,
        panel=RUN,
        metavar="K",
        slider_range=(1, 32),
    )
    seed: int = setting(
        0,
        "Seed of the random numbers in training. Equal seeds give equal results.",
        minimum=0,
        panel=RUN,
        slider_range=(0, 20),
    )


MEASURED = (
    Quantity(
        "estimation_error",
        "squared Frobenius distance between the learned and the target matrix, divided by "
        "the token dimension d",
        "E",
        error=True,
        in_summary=True,
        log=True,
        axis="error |Ŝ − S*|²/d (E)",
    ),
    Quantity("prediction_error", "mean loss on new samples with noise-free labels", error=True),
    Quantity(
        "training_loss",
        "mean loss on the training samples, without the weight-decay term",
        error=True,
        in_summary=True,
    ),
    Quantity(
        "overlap",
        "inner product of the learned and the target matrix, divided by the token dimension d",
        "m",
        error=True,
    ),
    Quantity(
        "norm",
        "squared Frobenius norm of the learned matrix, divided by the token dimension d",
        "q",
        error=True,
    ),
    Quantity(
        "rank_fraction",
        "rank of the learned matrix, divided by the token dimension d",
        error=True,
        in_summary=True,
        axis="rank of the learned matrix / d",
    ),
    Quantity("trace", "mean eigenvalue of the learned matrix", error=True, in_summary=True),
    Quantity(
        "nuclear_norm",
        "mean singular value of the learned matrix (untied attention)",
        error=True,
        in_summary=True,
    ),
    Quantity(
        "angle",
        "angle between the learned and the target matrix in radians; 0 means equal up to a factor "
        "(cross-entropy only)",
        error=True,
    ),
    Quantity(
        "wrong_keys",
        "share of new queries for which the learned head attends most to a wrong key",
        error=True,
        in_summary=True,
        axis="share of new queries with the wrong key",
    ),
)
RESIDUAL = Quantity(
    "residual", "relative error of the numerical solution of the theory's equations", hidden=True
)
QUANTITIES = (
    *MEASURED,
    Quantity(
        "noise_level",
        "noise that finite data add to the target matrix, according to theory (standard deviation of "
        "an entry, times √d)",
        "δ",
        error=True,
    ),
    Quantity(
        "threshold",
        "amount that weight decay subtracts from every eigenvalue; smaller eigenvalues become zero",
        "b",
        error=True,
    ),
    Quantity("cut", "value below which factors that are too narrow set eigenvalues to zero", "t", error=True),
    Quantity(
        "smallest_value",
        "smallest nonzero singular value that narrow factors keep; 0 if weight decay limits the rank instead",
        axis="smallest singular value of the learned matrix",
    ),
    Quantity(
        "stability",
        "stability of the theory's solution (replicon value): above 1, different starts may give "
        "different results",
    ),
    Quantity("shrinkage", "factor by which training shrinks the eigenvalues that it keeps", hidden=True),
    Quantity(
        "relative_error",
        "error relative to a student that learned nothing: 0 for the target itself, 1 for a zero matrix",
        error=True,
        log=True,
        axis="error relative to learning nothing (E/Q*)",
    ),
    Quantity(
        "approximation_error",
        "part of the error E from large eigenvalues that were found, but not exactly (attnlaw's own split)",
    ),
    Quantity(
        "underfitting_error",
        "part of the error E that is still missing from the learned matrix (underfitting; attnlaw's "
        "own split)",
    ),
    Quantity(
        "overfitting_error",
        "part of the error E from what the student learned beyond the target (overfitting; attnlaw's "
        "own split)",
    ),
    Quantity(
        "adapter_noise",
        "noise that a rank-one adapter sees if it is trained afterwards: Δ/2 + E (arXiv 2606.05899)",
        hidden=True,
    ),
    RESIDUAL,
    Quantity("atom_at_zero", "share of the learned matrix's eigenvalues that are zero"),
    Quantity(
        "edges",
        "lower and upper end of each interval that contains learned eigenvalues, in increasing order",
        kind="floats",
    ),
    Quantity("top_edge", "largest eigenvalue of the learned matrix, not counting outliers", hidden=True),
    Quantity(
        "outlier_locations",
        "eigenvalues of the learned matrix that are far above all others (outliers)",
        kind="floats",
    ),
    Quantity(
        "outlier_overlaps",
        "squared cosine between each outlier's eigenvector and that of the target eigenvalue behind it",
        kind="floats",
    ),
    Quantity(
        "outlier_targets",
        "target eigenvalue behind each outlier of the learned matrix",
        kind="floats",
    ),
    Quantity(
        "outlier",
        "eigenvalue of the learned matrix that belongs to the target's one large eigenvalue (spike)",
    ),
    Quantity(
        "observations",
        "number of attention scores with a label, divided by the token dimension d (targets with "
        "power-law eigenvalues)",
        "N/d",
        axis="scores with a label / d (N/d)",
    ),
    Quantity(
        "leading_error",
        "error E that a simple scaling law predicts (leading order for many scores)",
        log=True,
    ),
    Quantity(
        "predicted_exponent",
        "exponent of the power law with which the error falls with the number of scores, according "
        "to a simple scaling law",
    ),
    Quantity(
        "threshold_recovery",
        "samples that trained factors need to find the target matrix exactly, divided by d² "
        "(noise-free labels)",
        display_name="recovery by factors",
    ),
    Quantity(
        "threshold_feasibility",
        "samples from which only the target matrix fits the labels, divided by d² (noise-free labels)",
        display_name="feasibility",
    ),
    Quantity(
        "threshold_bayes",
        "samples that the best possible estimate needs to find the target matrix exactly, divided by "
        "d² (noise-free labels)",
        display_name="recovery by the best estimate",
    ),
    Quantity(
        "threshold_direct",
        "samples that a directly trained matrix needs to find the target matrix exactly, divided by "
        "d² (noise-free labels)",
        display_name="recovery by a direct matrix",
    ),
    Quantity(
        "threshold_own_recovery",
        "samples that the chosen student needs to find the target matrix exactly, divided by d² "
        "(noise-free labels)",
        display_name="recovery",
    ),
    Quantity(
        "threshold_interpolation",
        "samples up to which the chosen student fits noisy labels exactly, divided by d²",
        display_name="interpolation",
    ),
    Quantity(
        "threshold_peak_error",
        "error E at the number of samples up to which noisy labels are fitted exactly, without weight decay",
    ),
)


@dataclass(frozen=True, repr=False)
class DetailedPrediction(Prediction):
    """A prediction, with thresholds (in samples / d²), the scaling law, and the density of its spectrum."""

    outlier: float | None = None  # where the trained matrix shows the spike of the target
    observations: float | None = None  # N/d of a power-law target
    leading_error: float | None = None  # error of its leading-order law
    predicted_exponent: float | None = None  # exponent of its leading-order law
    threshold_recovery: float | None = None
    threshold_feasibility: float | None = None
    threshold_bayes: float | None = None
    threshold_direct: float | None = None
    threshold_own_recovery: float | None = None
    threshold_interpolation: float | None = None
    threshold_peak_error: float | None = None
    density: Densities | None = None  # rows of `density_rows`


def with_details(
    prediction: Prediction, *, thresholds: bool = False, spectrum: bool = False
) -> DetailedPrediction:
    """Add details to a prediction.

    The scaling law and the outlier are always added. Thresholds and the density of the spectrum are added
    only if the flags ask for them.

    >>> from attnlaw.theory.learn.state_evolution import state_evolution
    >>> detailed = with_details(state_evolution(Problem(alpha=0.2)), thresholds=True)
    >>> round(detailed.threshold_recovery, 6), detailed.density
    (0.422175, None)
    """
    problem = prediction.problem
    spikes = problem.target.spikes
    seen = (outlier.location for outlier in prediction.outliers if outlier.target in spikes)
    leading, exponent = leading_order(problem)
    dimension = problem.target.dimension
    known = problem_thresholds(problem) if thresholds else None
    return DetailedPrediction(
        **{column.name: getattr(prediction, column.name) for column in fields(Prediction)},
        outlier=next(seen, None),
        observations=None if dimension is None else problem.observations * dimension,
        leading_error=leading,
        predicted_exponent=exponent,
        **({} if known is None else {f"threshold_{name}": value for name, value in vars(known).items()}),
        density=density_rows(prediction) if spectrum else None,
    )


def density_rows(prediction: Prediction, points: int = 300) -> Densities:
    """Return the eigenvalue density of the trained matrix as rows.

    The points are denser near the ends of each interval.

    >>> from attnlaw.theory.learn.state_evolution import state_evolution
    >>> rows = density_rows(state_evolution(Problem(alpha=0.3, noise=0.5, weight_decay=0.6)))
    >>> sorted(rows[0])
    ['density', 'interval', 'x']
    """
    rows = []
    for interval, (low, high) in enumerate(prediction.bulk):
        angles = np.linspace(0.0, np.pi, points)
        # The ends are left out, because the density jumps there or is zero.
        x = np.clip(
            0.5 * (low + high) - 0.5 * (high - low) * np.cos(angles),
            low + 1e-9 * (high - low),
            high - 1e-9 * (high - low),
        )
        for place, height in zip(x, prediction.spectrum.density(x), strict=True):
            rows.append({"x": float(place), "density": float(height), "interval": interval})
    return rows


def run(cases: Sequence[LearnSettings], progress: Progress) -> Iterator[DetailedPrediction | InputError]:
    """Yield a prediction or an error for each case. Similar cases are solved together."""
    problems = [attempt(checked_problem, case) for case in cases]
    fit = [problem for problem in problems if not isinstance(problem, InputError)]
    solved = iter(state_evolutions(fit, progress))
    for case, problem in zip(cases, problems, strict=True):
        if isinstance(problem, InputError):
            yield problem
        else:
            yield with_details(next(solved), thresholds=case.thresholds, spectrum=case.spectrum)


def checked_problem(case: LearnSettings) -> Problem:
    """Return the problem of a case, or raise an `InputError` without theory or if it is too large."""
    problem = case.problem
    problem.student_spec.check_size(problem)
    return problem


def _batch_key(case: LearnSettings) -> Hashable:
    """Return a key that is equal for cases that can be solved at once; None if each is solved alone."""
    kinds = ("rank", "exponent", "dimension", "eigenvalues", "spike")
    target = [getattr(case, f"target_{kind}") for kind in kinds]
    at_once = case.observed_output.name in STUDENTS[case.student].batched_outputs
    return (case.student, case.output, *target) if at_once else None


def train(cases: Sequence[LearnSimulationSettings], progress: Progress) -> Iterator[Measurement | InputError]:
    """Yield a measurement or an error for each case. The students of one case are trained in threads."""
    done, total = 0, sum(case.seeds for case in cases)
    for case in cases:
        try:
            with rename_settings(**SETTING_NAMES):
                result: Measurement | InputError = simulate(
                    case.problem,
                    size=case.simulate,
                    seeds=case.seeds,
                    seed=case.seed,
                    sensing=case.sensing,
                    progress=lambda so_far, _, before=done: progress(before + so_far, total),  # type: ignore[misc]
                )
        except InputError as error:
            result = error
        yield result
        done += case.seeds


def check_trainable(case: LearnSimulationSettings) -> None:
    """Raise an `InputError` if a student cannot be trained, or if its data need too much memory."""
    with rename_settings(**SETTING_NAMES):
        check_simulation(case.problem, case.simulate, case.sensing)


def _eigenvalues(measurement: Measurement) -> list[dict[str, float]]:
    return [{"eigenvalue": value} for value in measurement.eigenvalues.ravel().tolist()]


DENSITY = (
    Quantity("x", display_name="eigenvalue of the learned matrix"),
    Quantity("density", "predicted density of the learned matrix's eigenvalues"),
    Quantity(
        "interval", "index of the interval of eigenvalues that the point is in, counting from 0", kind="int"
    ),
)
SIMULATE = Verb(
    "learn.simulate",
    "Trained students",
    LearnSimulationSettings,
    (
        *MEASURED,
        Quantity("samples", "number of samples that each model is trained on", "n", kind="int"),
        Quantity("solver", "numerical method that trained the models", kind="text"),
        RESIDUAL,
    ),
    train,
    tables=(
        TableSpec(
            "eigenvalues",
            (Quantity("eigenvalue", "one eigenvalue of a trained matrix (untied: singular value)"),),
            _eigenvalues,
        ),
    ),
    charts=("eigenvalues",),
    is_random=True,
    precheck=check_trainable,
)
VERB = Verb(
    "learn",
    "What attention learns",
    LearnSettings,
    QUANTITIES,
    run,
    tables=(
        TableSpec[DetailedPrediction](
            "predicted_spectra", DENSITY, lambda prediction: prediction.density, on_plot=density_rows
        ),
    ),
    charts=("phases", "learning", "rank", "smallest", "scaling", "spectrum", "curve", "split"),
    simulation=SIMULATE,
    precheck=checked_problem,
    batch_key=_batch_key,
    example="""
    >>> import attnlaw
    >>> attnlaw.learn(alpha=0.2).estimation_error.value < attnlaw.learn(alpha=0.1).estimation_error.value
    True
    >>> curve = attnlaw.learn(alpha=[0.1, 0.2], noise=0.5)
    >>> len(curve), curve[0].status
    (2, 'done')
    """,
    examples={
        "attnlaw learn --alpha 0.2 --noise 0.5": "predict the error after 0.2 d² samples",
        "attnlaw learn --alpha 0.1:1:10 --simulate 20 --seeds 2": (
            "draw a learning curve with real students trained next to it"
        ),
    },
)
