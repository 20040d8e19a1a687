"""Check rules about the steps of a monitored run. If one does not hold, the monitor warns or stops."""

from __future__ import annotations

import os

import polars as pl

from attnlaw.analysis.check.evaluate import evaluate
from attnlaw.analysis.check.rule_file import read_rules
from attnlaw.analysis.check.rules import FIRST, OFF, GateRule
from attnlaw.analysis.check.verdicts import Verdict, Verdicts
from attnlaw.core.errors import BadUsage
from attnlaw.training.monitor.columns import STEPS
from attnlaw.training.monitor.snapshot import Snapshot


class GateFailed(RuntimeError):
    """The error that ends a training run if rules do not hold.

    `snapshot` has the numbers of the last step, which are already saved. `verdicts` has the results of the
    rules.
    """

    def __init__(self, snapshot: Snapshot, verdicts: Verdicts) -> None:
        self.snapshot, self.verdicts = snapshot, verdicts
        super().__init__(failure_text(snapshot.step, verdicts))

    def __reduce__(self) -> tuple[type[GateFailed], tuple[Snapshot, Verdicts]]:
        return GateFailed, (self.snapshot, self.verdicts)


def failure_text(step: int, verdicts: Verdicts) -> str:
    """Return a line about the rules that failed at a step."""
    # The message names the step once, so it is left out of each rule.
    texts = ((rule.rule, str(rule).removeprefix(f"step {step}: ")) for rule in verdicts.failed_rules)
    each = "; ".join(f"rule {name} failed: {text}" for name, text in texts)
    return f"{verdicts.model}, step {step}: {each}"


class Watchdog:
    """The rules about `steps`, and the rows of the run so far.

    A rule about every row is applied to the newest row. A rule about one number for all rows, or about most
    rows, is applied to all rows so far. `against = "first"` compares with the first row of the run, even
    after the run was resumed.
    """

    def __init__(self, path: str | os.PathLike[str], model: str, earlier: pl.DataFrame | None) -> None:
        self.model = model
        self.rule_file = read_rules(path, {"steps": STEPS}, {})
        if self.rule_file.base is not None:
            raise BadUsage(
                f"{path}: the key base works only in attnlaw check; remove it from the rules of a monitor"
            )
        if all(rule.level == OFF for rule in self.rule_file.rules):
            raise BadUsage(
                f'{path}: this file has no rule about steps; add one with of = "steps", or monitor '
                "without rules"
            )
        self._rows = pl.DataFrame() if earlier is None else earlier.filter(pl.col("model") == model)

    def judge(self, row: pl.DataFrame) -> Verdicts:
        """Return the verdicts at the step of this row.

        Rows of this step and of later steps are dropped, because a resumed run has abandoned them.
        """
        if self._rows.height:
            earlier = self._rows.filter(pl.col("step") < row["step"].item())
            row = pl.concat([earlier, row], how="diagonal_relaxed")
        self._rows = row.sort("step")
        rules = tuple(self._verdict(rule) for rule in self.rule_file.rules)
        return Verdicts(self.model, self.model, rules, (), fail_on=self.rule_file.fail_on)

    def _verdict(self, rule: GateRule) -> Verdict:
        every = rule.over is None and rule.mostly is None
        rows = self._rows.tail(1) if every else self._rows
        return evaluate(rule, rows, self._rows.head(1) if rule.against == FIRST else None)
