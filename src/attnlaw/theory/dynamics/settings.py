"""The settings of a trajectory, which `attnlaw dynamics` and studies share."""

from __future__ import annotations

import math
from functools import partial

from attnlaw.core.errors import BadSetting
from attnlaw.core.settings import Settings, parse_range, setting, setting_like, settings_dataclass
from attnlaw.theory.dynamics.potential import POTENTIALS
from attnlaw.theory.dynamics.schedule import Schedule
from attnlaw.theory.dynamics.trajectory import STUDENT_DYNAMICS
from attnlaw.theory.learn.attention import ATTENTIONS
from attnlaw.theory.learn.outputs import OUTPUTS
from attnlaw.theory.learn.problem import Problem, Target
from attnlaw.theory.learn.settings import ProblemSettings
from attnlaw.theory.learn.students import STUDENTS
from attnlaw.theory.learn.target import stated_target

TRAINING = "Training"
training_setting = partial(setting, panel=TRAINING, sweepable=True)
MOVING = {name: STUDENTS[name] for _, name in STUDENT_DYNAMICS}  # students with a theory of their path


@settings_dataclass
class TrajectorySettings(Settings):
    """The target matrix, the model that learns it (the student), and how that model is trained."""

    times: str = setting(
        "0.001:1:61",
        "Training times to report (time = learning rate × steps / d), evenly spaced on a log scale, "
        "after time 0.",
        symbol="τ",
        panel=TRAINING,
        metavar="FROM:TO:COUNT",
    )
    attention: str = setting_like(
        ProblemSettings,
        "attention",
        help="Whether queries and keys share weights: tied, S = WWᵀ, or untied, S = UVᵀ (factorized "
        "students only, all ordered pairs).",
        panel=TRAINING,
    )
    student: str = setting_like(
        ProblemSettings,
        "student",
        choices=MOVING,
        help="Model that learns (student): a product of two factors (factorized) or one matrix (direct).",
        panel=TRAINING,
    )
    width: float = training_setting(
        1.0,
        "Width of the trained factors, divided by the token dimension d; inf means an orthogonal start.",
        symbol="κ",
        greater_than=0,
        allow_infinite=True,
    )
    scale: float = training_setting(
        0.7,
        "Size of the initial matrix S₀: its mean eigenvalue (untied: that of U₀U₀ᵀ; direct student: "
        "root mean square eigenvalue).",
        symbol="s",
        greater_than=0,
    )
    scale_key: float | None = training_setting(
        None,
        "Size of the initial key factor V₀, if it differs from that of the query factor U₀ (untied).",
        greater_than=0,
    )
    learning_rate: float = training_setting(
        0.0,
        "Learning rate of SGD, times d / batch size. 0 means infinitely small steps (gradient flow).",
        symbol="η",
        minimum=0,
    )
    decay: float = training_setting(
        0.0,
        "Weight decay γ, which adds γ/(2d) times the sum of squared weights to the loss.",
        symbol="γ",
        minimum=0,
    )
    tokens: int = setting_like(ProblemSettings, "tokens")
    output: str = setting_like(
        ProblemSettings,
        "output",
        choices={name: OUTPUTS[name] for name in POTENTIALS},
        help="What the labels are: attention scores (linear), attention weights (softmax), or a Hermite "
        "polynomial of the scores.",
    )
    beta: float = setting_like(ProblemSettings, "beta")
    target_rank: float = setting_like(ProblemSettings, "target_rank")
    target_spike: float | None = setting_like(
        ProblemSettings,
        "target_spike",
        help="One large eigenvalue of the target matrix, apart from all others (tied attention only).",
    )
    target_exponent: float | None = setting_like(ProblemSettings, "target_exponent")
    target_dimension: int = setting_like(ProblemSettings, "target_dimension")
    target_eigenvalues: str | None = setting_like(ProblemSettings, "target_eigenvalues")
    noise: float = setting_like(ProblemSettings, "noise")

    def check(self) -> None:
        parse_log_times("times", self.times)

    def inactive(self) -> set[str]:
        """Return the settings that have no effect, such as the width for a student without factors."""
        return super().inactive() | ({"width"} if self.student == "direct" else set())

    @property
    def problem(self) -> Problem:
        """The learning problem that these settings describe. Its number of samples is infinite."""
        of_rank = Target.product if ATTENTIONS[self.attention].paired else Target.marchenko_pastur
        names = ("tokens", "output", "beta", "noise", "student", "attention")
        return Problem(target=stated_target(self, of_rank), **{name: getattr(self, name) for name in names})

    @property
    def schedule(self) -> Schedule:
        names = ("learning_rate", "decay", "width", "scale", "scale_key")
        times = parse_log_times("times", self.times)
        return Schedule(times, **{name: getattr(self, name) for name in names})


def parse_log_times(name: str, text: str) -> tuple[float, ...]:
    """Parse `FROM:TO:COUNT` into times that are evenly spaced on a logarithmic axis."""
    if text.count(":") != 2:
        raise BadSetting(name, "expected FROM:TO:COUNT such as 0.001:1:40", text)
    even = parse_range(name, text)
    if even[0] <= 0:
        raise BadSetting(name, "FROM must be above 0, because attnlaw always adds time 0", text)
    ratio = math.log(even[-1] / even[0]) / (len(even) - 1)
    between = [float(f"{even[0] * math.exp(ratio * i):.12g}") for i in range(1, len(even) - 1)]
    return (even[0], *between, even[-1])
