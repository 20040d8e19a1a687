"""Upper bound of an error rate from held-out examples that were used only once (Clopper and Pearson)."""

from __future__ import annotations

import scipy

from attnlaw.core.errors import BadSetting
from attnlaw.core.settings import check_value


def holdout_bound(errors: int, examples: int, delta: float = 0.05) -> float:
    """Return an upper bound of a model's error rate that holds with probability 1 - delta.

    The bound is the (1 - delta)-quantile of the distribution Beta(errors + 1, examples - errors). It is the
    largest error rate at which a model makes so few errors with a probability of at least delta. It does not
    hold if the examples were used to choose the model, or if they were used twice.

    >>> round(holdout_bound(41, 700), 7), holdout_bound(5, 5)
    (0.0753287, 1.0)
    """
    m: int = check_value("examples", examples, int, minimum=1)
    k: int = check_value("errors", errors, int, minimum=0, maximum=m)
    if not 0 < delta < 1:
        raise BadSetting("delta", "expected a number above 0 and below 1", delta)
    return 1.0 if k == m else float(scipy.stats.beta.ppf(1 - delta, k + 1, m - k))
