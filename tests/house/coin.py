"""A toy verb in one file: what a contributor writes."""

from __future__ import annotations

from dataclasses import dataclass

from attnlaw.core.errors import BadSetting, InputError
from attnlaw.core.estimate import Estimate, Outcome
from attnlaw.core.progress import Progress
from attnlaw.core.quantity import Quantity, TableSpec
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.core.verb import Verb, run_each_case


@dataclass(frozen=True)
class Metal:
    """What a coin is made of; `worn` ones have an edge."""

    name: str
    label: str
    worn: bool


METALS = {metal.name: metal for metal in (Metal("gold", "gold", True), Metal("paper", "a joke", False))}


@settings_dataclass
class Coin(Settings):
    """Toss a coin many times.

    The share of heads comes with its standard error.
    """

    bias: float = setting(0.5, "Probability of heads.", symbol="p", greater_than=0, maximum=1, sweepable=True)
    tosses: int = setting(100, "How often.", symbol="n", minimum=1)
    metal: str = setting("gold", "What it is made of.", choices=METALS, sweepable=True)
    wear: float = setting(0.0, "Wear of its edge.", minimum=0, active_if=("metal", "worn"))

    def check(self) -> None:
        if self.wear > self.bias:
            raise BadSetting("wear", f"expected at most the {{bias}}, {self.bias:g}", self.wear)


@dataclass(frozen=True)
class Tossed:
    mean: Estimate
    heads: int
    outcome: Outcome = Outcome.DONE
    remark: str | None = None


def toss(case: Coin, progress: Progress) -> Tossed:
    if case.bias == 0.125:
        raise InputError("a coin of bias 0.125 rolls away; choose another")
    progress(1, 1)
    error = (case.bias * (1 - case.bias) / case.tosses) ** 0.5
    return Tossed(Estimate(case.bias - case.wear, error), round(case.bias * case.tosses))


def _sides(result: Tossed) -> object:
    import polars as pl

    return pl.DataFrame({"side": ["heads", "tails"], "share": [result.mean.value, 1 - result.mean.value]})


VERB = Verb(
    "coin",
    "Coins",
    Coin,
    (
        Quantity("mean", "share of heads", "p̂", error=True, in_summary=True),
        Quantity("heads", "how many came up", kind="int"),
    ),
    run_each_case(toss),
    tables=(
        TableSpec(
            "sides", (Quantity("side", kind="text"), Quantity("share", "of all tosses")), _sides, json=True
        ),
    ),
)
