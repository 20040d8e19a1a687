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

    Tokens are Gaussian vectors of dimension d. The target matrix is S* = W₀W₀ᵀ/√(m₀d) (untied: a product of
    two factors). The trained matrix S (the student) starts at random and lowers the loss of new samples, Σ_ab
    (y_ab − ŷ_ab)². The time of training is the learning rate times the number of steps, divided by d.
    """

    spectrum: bool = setting(
        False,
        "Also show the learned eigenvalues at five times, and when a large eigenvalue of the target "
        "becomes visible.",
        panel=RUN,
    )
    statics: bool = setting(
        False,
        "Also show the errors of two models that may reuse all samples: trained with the best weight "
        "decay, and the best possible one.",
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
    """Train models by one-pass SGD at a finite token dimension, each on different samples."""

    simulate: int = setting_like(
        LearnSimulationSettings,
        "simulate",
        help="Also train real models by SGD with tokens of dimension D, to compare with theory (needs a "
        "learning rate).",
    )
    sensing: str | None = setting(
        None,
        "Inputs of the trained models: Gaussian matrices as in theory (default: goe; untied: "
        "ginibre), tokens, or tokens with random signs (signed).",
        choices=SENSINGS,
        sweepable=True,
        panel=RUN,
    )
    batch: int = setting(
        8, "Number of samples in each SGD step.", symbol="B", minimum=1, panel=RUN, metavar="B"
    )
    seeds: int = setting(
        4,
        "Number of models to train from different starts. The standard error of their mean is shown.",
        minimum=1,
        panel=RUN,
        metavar="K",
    )
    seed: int = setting_like(LearnSimulationSettings, "seed")


estimate = partial(Quantity, error=True, in_summary=True)
MEASURED = (
    estimate(
        "alignment",
        "cosine between the learned and the target matrix: 0 means nothing learned, 1 means equal up "
        "to a factor",
        "ρ",
        axis="alignment with the target (ρ)",
    ),
    estimate(
        "estimation_error",
        "squared Frobenius distance between the learned and the target matrix, divided by "
        "the token dimension d",
        "E",
        log=True,
        axis="error |S − S*|²/d (E)",
    ),
    estimate(
        "prediction_error",
        "mean loss on new samples with noise-free labels",
        "Φ",
        log=True,
        axis="loss of new samples (Φ)",
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
    Quantity("trace", "mean eigenvalue of the learned matrix", error=True),
)
TIME = Quantity(
    "time",
    "training time: learning rate times number of steps, divided by the token dimension d",
    "τ",
    axis="time (τ = learning rate · steps / d)",
)
TIMES = (
    TIME,
    Quantity(
        "samples",
        "number of samples seen so far, divided by d²; empty for gradient flow",
        "τ/η",
        axis="samples seen / d² (τ/η)",
    ),
    *MEASURED,
)
QUANTITIES = (
    Quantity(
        "recovery_time",
        "training time at which the alignment with the target first reaches 0.5",
        "τ",
        in_summary=True,
        log=True,
    ),
    Quantity(
        "recovery_time_90",
        "training time at which the alignment with the target first reaches 0.9",
        "τ",
        in_summary=True,
        log=True,
    ),
    Quantity(
        "recovery_samples",
        "number of samples, divided by d², at which the alignment first reaches 0.5; empty for gradient flow",
        in_summary=True,
    ),
    *MEASURED,
    Quantity(
        "samples", "number of samples seen in the whole training, divided by d²; empty for gradient flow"
    ),
    Quantity(
        "plateaus",
        "start and end of each interval of training time in which nothing is learned (plateaus)",
        kind="floats",
    ),
    Quantity(
        "largest_rate",
        "largest learning rate at which training stays at the target matrix",
        hidden=True,
    ),
    Quantity("plateau_error", "error E that SGD with this learning rate cannot get below", hidden=True),
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
    """Raise an `InputError` if SGD cannot train the student of a case."""
    if case.learning_rate == 0:
        raise BadSetting(
            "simulate",
            f"needs a learning rate. Try: attnlaw dynamics --simulate {case.simulate} --learning-rate 0.05",
        )
    with rename_settings(**SETTING_NAMES):
        check_sgd(case.problem, case.schedule, case.simulate, case.sensing, case.batch)


SPECTRA = (
    TIME,
    Quantity("x", display_name="eigenvalue of the learned matrix"),
    Quantity(
        "density", "predicted density of the learned matrix's eigenvalues at this value and training time"
    ),
)
STATICS = (
    Quantity("samples", "number of samples that the model may reuse, divided by d²", "n/d²"),
    Quantity("minimiser_error", "error E after full training on these samples with the best weight decay"),
    Quantity("bayes_error", "error E of the best possible (Bayes-optimal) estimate from these samples"),
)
EIGENVALUES = (TIME, Quantity("eigenvalue", "one eigenvalue of a trained matrix at this training time"))
TRACKS = (
    TIME,
    Quantity("target", "large eigenvalue of the target matrix, apart from all others (spike)"),
    Quantity(
        "location",
        "eigenvalue of the learned matrix that belongs to the target's large eigenvalue; empty until "
        "it leaves the others",
    ),
    Quantity(
        "squared_overlap",
        "squared cosine between this eigenvalue's eigenvector and that of the target's large eigenvalue",
    ),
    Quantity(
        "edge",
        "largest eigenvalue of the learned matrix that does not belong to the target's large eigenvalue",
    ),
)
SIMULATE = Verb(
    "dynamics.simulate",
    "Students trained by SGD",
    DynamicsSimulationSettings,
    (
        *MEASURED,
        Quantity("samples", "number of samples seen in the whole training, divided by d²"),
        Quantity("steps", "number of SGD steps that each model is trained for", kind="int"),
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
