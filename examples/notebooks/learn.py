# %% [markdown]
# # Learn: what a head learns from n samples
#
# `python examples/notebooks/learn.py`, from the top of the repository. Notation: alpha = n/d^2 samples, a
# target S* of rank kappa0 d, label noise Delta, E the error of the trained matrix (arXiv 2509.24914).

# %%
from dataclasses import replace

import numpy as np

from attnlaw import Problem, Target
from attnlaw.theory.learn.agreement import agreement
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.state_evolution import curve, state_evolution
from attnlaw.theory.learn.thresholds import thresholds

problem = Problem(alpha=0.3, target=Target.marchenko_pastur(0.5), noise=0.5, weight_decay=0.6)
prediction = state_evolution(problem)
print(f"E = {prediction.estimation_error.value:.4f}")
print(f"{prediction.rank_fraction.value:.0%} of the eigenvalues are not zero")

# %% [markdown]
# The trained matrix has a sharp spectrum: an atom at zero and a bulk.

# %%
law = prediction.spectrum
print("support", [f"{end:.3f}" for end in law.support], " mean", f"{law.mean:.4f}")

# %% [markdown]
# Real students next to the theory, with Gaussian sensing at d = 20 and 40, extrapolated in 1/d.

# %%
measured = [simulate(problem, size=d, seeds=8, seed=0, sensing="goe") for d in (20, 40)]
for name in ("estimation_error", "overlap", "norm"):
    comparison = agreement(prediction, measured)[name]
    print(
        f"{name:17} {comparison.value:.3f} +- {comparison.standard_error:.3f}, theory {comparison.theory:.3f}"
    )

# %% [markdown]
# What do factors buy? The same data, a symmetric matrix with a ridge instead (neither penalty is tuned), and
# the least error of any method.

# %%
for student in ("factorized", "direct", "bayes"):
    line = curve(replace(problem, student=student), np.linspace(0.1, 0.9, 5))
    print(f"{student:11}", " ".join(f"{point.estimation_error.value:.3f}" for point in line))

# %% [markdown]
# Clean labels: how many samples until the target can be found at all?

# %%
for name, value in vars(thresholds(Target.marchenko_pastur(0.5))).items():
    print(f"{name:14} {'-' if value is None else f'{value:.4f}'}")
