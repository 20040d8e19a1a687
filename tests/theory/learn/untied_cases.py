"""Problems of untied attention that are computed, trained and timed: (kappa0, alpha, Delta, lt)."""

UNTIED = (
    (0.5, 0.5, 0.5, 0.2),
    (0.3, 0.6, 0.5, 0.5),
    (0.5, 1.2, 0.5, 0.6),
    (0.3, 0.4, 0.0, 0.02),
    (1.0, 0.8, 0.2, 0.1),
    (0.2, 2.0, 1.0, 1.5),
    (0.1, 0.2, 0.5, 0.6),
)
