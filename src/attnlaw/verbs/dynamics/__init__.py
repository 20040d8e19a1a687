"""The verb `dynamics`: how one attention head learns in time, by theory and by SGD for comparison."""

from __future__ import annotations

from functools import partial

from attnlaw.core.errors import BadSetting, rename_settings
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import setting, setting_like, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case
from attnlaw.theory.dynamics.rows import SgdRows, TrajectoryRows, trajectory_with_rows
from attnlaw.theory.dynamics.settings import TrajectorySettings
from attnlaw.theory.dynamics.sgd import check_sgd, simulate_dynamics
from attnlaw.theory.dynamics.trajectory import check_motion
from attnlaw.theory.learn.data import SENSINGS
from attnlaw.verbs.learn import RUN, LearnSimulationSettings


@settings_dataclass
class DynamicsSettings(TrajectorySettings):
    """Compute how a single attention head learns from samples that it sees once (arXiv 2609.03858).

    Tokens are Gaussian vectors of dimension d. The target is S* = W₀W₀ᵀ/√(m₀d) (untied: a product of two
    factors). The student S starts at random and lowers the loss of new samples, Σ_ab (y_ab − ŷ_ab)². One
    case is one trajectory, and its times are the rows of a table. Time is learning rate · steps / d.

    The same from Python: attnlaw.dynamics(times="0.001:1:60", ...).
    """

    spectrum: bool = setting(
        False, "Also the spectrum at five of the times, and when a spike becomes visible.", panel=RUN
    )
    statics: bool = setting(
        False,
        "Also the errors of students that keep all samples: the minimiser at its best weight decay, and the "
        "Bayes-optimal student.",
        panel=RUN,
    )

    def check(self) -> None:
        super().check()
        if self.statics and (self.output != "linear" or self.attention != "tied"):
            raise BadSetting("statics", "needs {output} linear and {attention} tied")
        if self.statics and self.learning_rate == 0:
            raise BadSetting(
                "statics", "needs a {learning_rate} above 0, because a gradient flow counts no samples"
            )


@settings_dataclass
class DynamicsSimulationSettings(DynamicsSettings):
    """Train students by one-pass SGD at a finite dimension, each on its own samples."""

    simulate: int = setting_like(
        LearnSimulationSettings,
        "simulate",
        help="Also train students by SGD at dimension D; needs a learning rate.",
    )
    sensing: str | None = setting(
        None,
        "What students see: Gaussian matrices as in theory (the default: goe, or ginibre if untied), tokens, "
        "or signed (tokens with random signs).",
        choices=SENSINGS,
        sweepable=True,
        panel=RUN,
    )
    batch: int = setting(8, "Samples in a step.", symbol="B", minimum=1, panel=RUN, metavar="B")
    seeds: int = setting(
        4,
        "Students to train, each from its own start; the error is the standard error of their mean.",
        minimum=1,
        panel=RUN,
        metavar="K",
    )
    seed: int = setting_like(LearnSimulationSettings, "seed")


estimate = partial(Quantity, error=True, in_summary=True)
MEASURED = (
    estimate(
        "alignment",
        "correlation with the target: 1 means equal except for the scale",
        "ρ",
        axis="alignment with the target (ρ)",
    ),
    estimate(
        "estimation_error",
        "|S − S*|²/d: distance of the student S from the target S*",
        "E",
        log=True,
        axis="error |S − S*|²/d (E)",
    ),
    estimate(
        "prediction_error",
        "mean loss of a new sample with labels free of noise",
        "Φ",
        log=True,
        axis="loss of new samples (Φ)",
    ),
    Quantity("overlap", "Tr S S*/d, which is |S*|²/d for a perfect student", "m", error=True),
    Quantity("norm", "Tr S²/d: squared size of the student", "q", error=True),
    Quantity("trace", "Tr S/d: mean eigenvalue of the student", error=True),
)
TIME = Quantity("time", "learning rate · steps / d", "τ", axis="time (τ = learning rate · steps / d)")
TIMES = (
    TIME,
    Quantity("samples", "samples seen / d²; null for a gradient flow", "τ/η", axis="samples seen / d² (τ/η)"),
    *MEASURED,
)
QUANTITIES = (
    Quantity("recovery_time", "time τ at which the alignment reaches 0.5", "τ", in_summary=True, log=True),
    Quantity("recovery_time_90", "time τ at which the alignment reaches 0.9", "τ", in_summary=True, log=True),
    Quantity(
        "recovery_samples",
        "samples / d² until alignment 0.5; null for a gradient flow",
        in_summary=True,
    ),
    *MEASURED,
    Quantity("samples", "samples / d² seen at the last time; null for a gradient flow"),
    Quantity("plateaus", "times between which nothing is learned, begin and end in turn", kind="floats"),
    Quantity("largest_rate", "largest learning rate η at which the target is stable", hidden=True),
    Quantity("plateau_error", "error E at which SGD with this learning rate ends", hidden=True),
)


def solve(case: DynamicsSettings, progress: Progress) -> TrajectoryRows:
    return trajectory_with_rows(case.problem, case.schedule, spectrum=case.spectrum, statics=case.statics)


SETTING_NAMES = {"size": "simulate", "samples": "batch"}  # arguments of the simulation: settings of the verb


def train(case: DynamicsSimulationSettings, progress: Progress) -> SgdRows:
    with rename_settings(**SETTING_NAMES):
        rows = simulate_dynamics(
            case.problem,
            case.schedule,
            size=case.simulate,
            seeds=case.seeds,
            seed=case.seed,
            sensing=case.sensing,
            batch=case.batch,
            progress=progress,
        )
    return SgdRows(rows)


def check_trainable(case: DynamicsSimulationSettings) -> None:
    """Raise an `InputError` if SGD cannot run for a case."""
    if case.learning_rate == 0:
        raise BadSetting(
            "simulate",
            f"needs a learning rate. Try: attnlaw dynamics --simulate {case.simulate} --learning-rate 0.05",
        )
    with rename_settings(**SETTING_NAMES):
        check_sgd(case.problem, case.schedule, case.simulate, case.sensing, case.batch)


SPECTRA = (
    TIME,
    Quantity("x", display_name="eigenvalue of the student"),
    Quantity("density", "density of the student's spectrum at this time"),
)
STATICS = (
    Quantity("samples", "samples / d² that the student keeps", "n/d²"),
    Quantity("minimiser_error", "error E of the minimiser at its best weight decay"),
    Quantity("bayes_error", "error E of the Bayes-optimal student"),
)
EIGENVALUES = (TIME, Quantity("eigenvalue", "eigenvalue of a trained student at this time"))
TRACKS = (
    TIME,
    Quantity("target", "eigenvalue of the target outside its bulk (spike)"),
    Quantity("location", "eigenvalue of the student that shows the spike; null before it is visible"),
    Quantity("squared_overlap", "squared cosine between the eigenvectors of student and target"),
    Quantity("edge", "upper end of the student's spectrum without the spike"),
)
SIMULATE = Verb(
    "dynamics.simulate",
    "Students trained by SGD",
    DynamicsSimulationSettings,
    (
        *MEASURED,
        Quantity("samples", "samples / d² seen at the last time"),
        Quantity("steps", "steps of SGD that each student took", kind="int"),
    ),
    run_each_case(train),
    tables=(TableSpec("runs", TIMES, lambda run: run.rows, json=True), TableSpec("eigenvalues", EIGENVALUES)),
    charts=("runs",),
    is_random=True,
    precheck=check_trainable,
)
VERB = Verb(
    "dynamics",
    "How attention learns, in time",
    DynamicsSettings,
    QUANTITIES,
    run_each_case(solve),
    tables=(
        TableSpec("trajectory", TIMES, lambda trajectory: trajectory.rows, json=True),
        TableSpec("spectra", SPECTRA, lambda trajectory: trajectory.spectra or None, optional=True),
        TableSpec("tracks", TRACKS, lambda trajectory: trajectory.tracks or None, json=True, optional=True),
        TableSpec(
            "statics", STATICS, lambda trajectory: trajectory.statics or None, json=True, optional=True
        ),
    ),
    charts=("learning", "spectra", "cost"),
    simulation=SIMULATE,
    precheck=lambda case: check_motion(case.problem, case.schedule),
    example="""
    >>> import attnlaw
    >>> result = attnlaw.dynamics(output="linear")
    >>> round(result.alignment.value, 2)
    1.0
    """,
    examples={
        "attnlaw dynamics --times 0.01:0.5:20": "follow the error while a head trains",
        "attnlaw dynamics --simulate 20 --learning-rate 0.05": "also train a real student of dimension 20",
    },
)
