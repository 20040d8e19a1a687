"""The problem of a single index: its settings, known before any mathematics is imported."""

from __future__ import annotations

from attnlaw.core.errors import BadSetting
from attnlaw.core.settings import Settings, setting, settings_dataclass
from attnlaw.theory.implicit_bias.variants import LINKS, RULES


@settings_dataclass
class SingleIndex(Settings):
    """Labels of one hidden direction with few coefficients, and how it is estimated.

    >>> SingleIndex(link="identity").signals
    10
    """

    link: str = setting("tanh:2", "The function of <x, β>; f in the page.", choices=LINKS)
    samples: int = setting(1000, "Samples.", symbol="n", minimum=1)
    dimension: int = setting(2000, "Dimension of the inputs.", symbol="p", minimum=2)
    signals: int = setting(10, "Coefficients that are not zero, all equal.", symbol="s", minimum=1)
    noise: float = setting(0.25, "Variance of the noise of labels.", symbol="σ²", minimum=0)
    rule: str = setting("flow", "How coefficients are kept.", choices=RULES)
    threshold: float = setting(1.0, "Threshold, in units of √(2 ln p) ‖y‖/n.", symbol="c", greater_than=0)
    init: float = setting(
        1e-6, "Scale of the factors at the start.", symbol="a", greater_than=0, active_if=("rule", "starts")
    )

    def check(self) -> None:
        if self.signals > self.dimension:
            raise BadSetting("signals", "expected at most {dimension}", self.signals)
