"""The density of a learned spectrum on points that crowd at its edges."""

from __future__ import annotations

import numpy as np
import pytest

from attnlaw.theory.learn.problem import Problem
from attnlaw.theory.learn.state_evolution import state_evolution
from attnlaw.verbs.learn import density_rows


@pytest.mark.parametrize("student", ["factorized", "direct"])
def test_a_drawn_density_has_the_mass_that_is_not_at_zero(student: str) -> None:
    prediction = state_evolution(Problem(alpha=0.3, noise=0.5, weight_decay=0.6, student=student))
    rows = density_rows(prediction)
    mass = 0.0
    for interval in {row["interval"] for row in rows}:
        x, density = np.array([(row["x"], row["density"]) for row in rows if row["interval"] == interval]).T
        assert (np.diff(x) > 0).all()
        mass += np.trapezoid(density, x)
    # Points at the cosines of equal angles: a density that leaves an edge as a root is integrated to 1e-3.
    assert mass == pytest.approx(1 - prediction.atom_at_zero, abs=2e-3)
