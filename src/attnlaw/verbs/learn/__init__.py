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

    The tokens x_a are Gaussian vectors of dimension d. By default the target is S* = W₀W₀ᵀ/√(m₀d), where W₀
    is a Gaussian d × m₀ matrix. The student sees noisy scores of the target, plain or through a row softmax.
    The scores of a matrix S are h_ab = (x_aᵀ S x_b − δ_ab Tr S)/√d (arXiv 2509.24914, 2506.01582).

    The same from Python: attnlaw.learn(alpha=..., tokens=...).
    """

    output: str = setting_like(ProblemSettings, "output", choices=STATIC_OUTPUTS)
    thresholds: bool = setting(
        False,
        "Also the sample ratios where learning changes (hardmax labels never reveal the target: none).",
        active_if=("output", "identifies_target"),
        panel=RUN,
        lab_default=True,
    )
    spectrum: bool = setting(False, "Also the density of the learned spectrum, as a table.", panel=RUN)

    @cached_property
    def problem(self) -> Problem:
        """The problem that these settings describe.

        Raises an `InputError` if the target cannot be read, or if no theory is known for the combination.
        """
        shared = {field.name for field in fields(Problem)} & setting_fields(ProblemSettings).keys()
        stated = {name: getattr(self, name) for name in shared}
        if not ATTENTIONS[self.attention].paired:
            return Problem(**stated | {"pairs": None}, target=stated_target(self, Target.marchenko_pastur))
        return Problem(**stated, target=stated_target(self, Target.product))


@settings_dataclass
class LearnSimulationSettings(LearnSettings):
    """Train real students at a finite dimension, with new data for each student."""

    simulate: int = setting(
        MISSING,
        "Also train real students at dimension D.",
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
        "What students see: tokens, signed (without skewness), or the theory's Gaussian matrices: goe, "
        "untied ginibre.",
        choices=SENSINGS,
        sweepable=True,
        panel=RUN,
    )
    seeds: int = setting(
        8,
        "Students to train, each on its own data; the error is the standard error of their mean.",
        minimum=1,
        panel=RUN,
        metavar="K",
        slider_range=(1, 32),
    )
    seed: int = setting(0, "Seed of the simulation.", minimum=0, panel=RUN, slider_range=(0, 20))


MEASURED = (
    Quantity("estimation_error", "|Ŝ − S*|²/d", "E", error=True, in_summary=True, log=True),
    Quantity("prediction_error", "on fresh clean labels, per sample", error=True),
    Quantity("training_loss", "per sample over all (a,b), without the penalty", error=True, in_summary=True),
    Quantity("overlap", "Tr ŜᵀS*/d", "m", error=True),
    Quantity("norm", "|Ŝ|²/d", "q", error=True),
    Quantity(
        "rank_fraction",
        "share of eigenvalues that are not zero",
        error=True,
        in_summary=True,
        axis="rank of Ŝ over d",
    ),
    Quantity("trace", "Tr Ŝ/d", error=True, in_summary=True),
    Quantity(
        "nuclear_norm", "|Ŝ|_*/d, the sum of singular values over d (untied)", error=True, in_summary=True
    ),
    Quantity("angle", "between Ŝ and S*, arccos(m/√(q Q*)) (cross-entropy, which sets no scale)", error=True),
    Quantity(
        "wrong_keys", "share of fresh queries that attend most to the wrong key", error=True, in_summary=True
    ),
)
RESIDUAL = Quantity("residual", "what the equations miss at the solution, over their size", hidden=True)
QUANTITIES = (
    *MEASURED,
    Quantity(
        "noise_level", "of the matrix the student effectively sees (softmax, Bayes: a)", "δ", error=True
    ),
    Quantity("threshold", "below which eigenvalues are cut", "b", error=True),
    Quantity("cut", "below which the width of the factors cuts (t > b)", "t", error=True),
    Quantity(
        "smallest_value",
        "smallest value that is kept: away from 0 width, not weight decay, cut the rank",
        axis="smallest singular value of Ŝ",
    ),
    Quantity(
        "stability", "replicon value at d = 160 where width cuts (K/α_P) or a softmax bends: unstable above 1"
    ),
    Quantity("shrinkage", "of the eigenvalues that are left", hidden=True),
    Quantity(
        "relative_error", "E/Q*: 1 where nothing is learned", error=True, log=True, axis="relative error E/Q*"
    ),
    Quantity("approximation_error", "part of E in modes that stand out (our split)"),
    Quantity("underfitting_error", "part of E that is missing along the target (our split)"),
    Quantity("overfitting_error", "part of E that was learned beside the target (our split)"),
    Quantity(
        "adapter_noise",
        "Δ/2 + E: the noise a rank-one adapter trained afterwards sees (arXiv 2606.05899)",
        hidden=True,
    ),
    RESIDUAL,
    Quantity("atom_at_zero", "share of eigenvalues that are zero"),
    Quantity("edges", "ends of the intervals of the spectrum, low and high in turn", kind="floats"),
    Quantity("top_edge", "upper end of the spectrum without outliers", hidden=True),
    Quantity("outlier_locations", "where eigenvalues stand out of the spectrum", kind="floats"),
    Quantity("outlier_overlaps", "their squared overlaps with the target's", kind="floats"),
    Quantity("outlier_targets", "the target's eigenvalues they belong to", kind="floats"),
    Quantity("outlier", "where the target's spike is seen"),
    Quantity("observations", "of S over its dimension, for a power-law target", "N/d"),
    Quantity("leading_error", "E of the leading-order scaling law", log=True),
    Quantity("predicted_exponent", "of E in N/d"),
    Quantity("threshold_recovery", "factorized recovery, clean labels", display_name="factorized recovery"),
    Quantity("threshold_feasibility", "beyond it only S* fits clean labels", display_name="feasibility"),
    Quantity("threshold_bayes", "Bayes recovery, clean labels", display_name="Bayes recovery"),
    Quantity("threshold_direct", "direct recovery, clean labels", display_name="direct recovery"),
    Quantity("threshold_own_recovery", "recovery of this student, clean labels"),
    Quantity(
        "threshold_interpolation", "up to which this student fits noisy labels", display_name="interpolation"
    ),
    Quantity("threshold_peak_error", "its test error there, without a penalty"),
)


@dataclass(frozen=True, repr=False)
class DetailedPrediction(Prediction):
    """A prediction with thresholds, the scaling law and the density of its spectrum.

    The thresholds, in samples per d^2, and the density are None unless the settings ask for them.
    """

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

    The scaling law and the outlier are always added. The thresholds and the density of the spectrum are added
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
    """Return the density of the trained matrix's spectrum as rows.

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
    """Yield a prediction or error for each case, solving those that share target and student together."""
    problems = [attempt(checked_problem, case) for case in cases]
    fit = [problem for problem in problems if not isinstance(problem, InputError)]
    solved = iter(state_evolutions(fit, progress))
    for case, problem in zip(cases, problems, strict=True):
        if isinstance(problem, InputError):
            yield problem
        else:
            yield with_details(next(solved), thresholds=case.thresholds, spectrum=case.spectrum)


def checked_problem(case: LearnSettings) -> Problem:
    """Return the problem of a case; raise an `InputError` if it has no theory or is too large."""
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
    """Yield the measurement or error of each case. The students of one case are trained in threads."""
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
    """Raise an `InputError` if a student cannot be trained, or if its data do not fit into memory."""
    with rename_settings(**SETTING_NAMES):
        check_simulation(case.problem, case.simulate, case.sensing)


def _eigenvalues(measurement: Measurement) -> list[dict[str, float]]:
    return [{"eigenvalue": value} for value in measurement.eigenvalues.ravel().tolist()]


DENSITY = (
    Quantity("x", display_name="eigenvalue of the learned matrix"),
    Quantity("density", "of the learned spectrum"),
    Quantity("interval", "which of the spectrum's", kind="int"),
)
SIMULATE = Verb(
    "learn.simulate",
    "Trained students",
    LearnSimulationSettings,
    (
        *MEASURED,
        Quantity("samples", "drawn for each student", "n", kind="int"),
        Quantity("solver", "that trained", kind="text"),
        RESIDUAL,
    ),
    train,
    tables=(TableSpec("eigenvalues", (Quantity("eigenvalue", "of trained matrices"),), _eigenvalues),),
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
    charts=("phases", "learning", "rank", "smallest", "scaling", "spectrum", "split"),
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
