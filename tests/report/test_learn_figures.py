"""Figures of what attention learns: exponents carry their errors, students of several sizes stay apart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from attnlaw.report.learn_figures import _points, learn_figures, trained_figures


def test_a_fitted_exponent_has_a_standard_error(tmp_path: Path) -> None:
    """Against `np.polyfit`, whose covariance is the residual sum of squares over n - 2 degrees of freedom."""
    ratios, errors = np.array([8.0, 16.0, 32.0, 64.0]), np.array([0.4337, 0.2517, 0.1361, 0.0706])
    shared = {"tokens": 1, "output": "linear", "target_exponent": 1.0, "target_dimension": 1000}
    rows = [
        {"task": f"t{i}", **shared, "alpha": ratio / 1000, "estimation_error": error, "leading_error": error}
        for i, (ratio, error) in enumerate(zip(ratios, errors, strict=True))
    ]
    theory = pl.DataFrame(rows).with_columns(predicted_exponent=pl.lit(-1.0))
    (figure,) = learn_figures(theory, pl.DataFrame(), tmp_path)
    (slope, _), covariance = np.polyfit(np.log(ratios), np.log(errors), 1, cov=True)
    label = f"{slope:.2f} ± {np.sqrt(covariance[0, 0]):.2f} (-1.00)".replace("-", "−")
    drawn = figure.draw().to_dict()
    assert {row["label"] for row in drawn["data"]["values"]} == {label}


def test_students_of_two_sizes_are_not_pooled() -> None:
    setting = {"alpha": [0.1] * 4, "student": ["direct"] * 4, "noise": [0.5] * 4}
    trained = pl.DataFrame(
        setting | {"simulate": [20, 20, 40, 40], "estimation_error": [1.0, 3.0, 10.0, 14.0]}
    )
    points = _points(trained, trained.select(*setting))
    assert points is not None
    assert points.select("size", "mean", "standard_error").rows() == [(20, 2.0, 1.0), (40, 12.0, 2.0)]


def test_students_without_a_theory_are_drawn_with_their_errors() -> None:
    trained = pl.DataFrame(
        {
            "alpha": [0.1, 0.1, 0.2, 0.2, 0.1],
            "student": ["direct"] * 4 + ["factorized"],
            "simulate": [20] * 5,
            "estimation_error": [1.0, 3.0, 0.5, 0.5, 0.25],
        }
    )
    (figure,) = trained_figures(trained)
    rows = json.loads(figure.draw().to_dict()["data"]["values"])
    assert {(row["series"], row["alpha"]): (row["low"], row["value"], row["high"]) for row in rows} == {
        ("student direct", 0.1): (1.0, 2.0, 3.0),
        ("student direct", 0.2): (0.5, 0.5, 0.5),
        ("student factorized", 0.1): (0.25, 0.25, 0.25),
    }
    assert "standard error" in figure.caption
    assert list(trained_figures(trained.head(2))) == []  # one setting: nothing to draw it against


def test_a_student_without_weight_decay_stands_beside_every_decay(tmp_path: Path) -> None:
    """Two decays of a trained student, and the Bayes-optimal one, computed for each though it has none."""
    points = [("factorized", 0.1), ("factorized", 1.0), ("bayes", None), ("bayes", None)]
    theory = pl.DataFrame(
        [
            {"student": student, "weight_decay": decay, "alpha": alpha, "beta": None, "target_rank": 0.5}
            | {"noise": 0.5, "estimation_error": alpha, "task": "t"}
            for student, decay in points
            for alpha in (0.1, 0.2)
        ],
        schema_overrides={"beta": pl.Float64},
    )
    figures = list(learn_figures(theory, pl.DataFrame(), tmp_path))
    assert [figure.title for figure in figures] == [
        f"Learning curves: weight decay {decay:g}" for decay in (0.1, 1.0)
    ]
    for figure in figures:
        (own,) = [part for part in figure.draw.args if isinstance(part, pl.DataFrame)][:1]
        assert sorted(own.select("student", "alpha").rows()) == [
            (student, alpha) for student in ("bayes", "factorized") for alpha in (0.1, 0.2)
        ]
