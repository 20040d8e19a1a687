# %% [markdown]
# # Results show themselves
#
# Each cell ends in a result. A notebook shows its table, `.plot()` its chart; neither needs a network. Run it
# in Jupyter or marimo, or from the top of the repository: `python examples/notebooks/results.py`. Charts need
# `pip install 'attnlaw[charts]'`.

# %%
import attnlaw

prediction = attnlaw.learn(alpha=0.3, noise=0.5, target_spike=6)
prediction

# %%
prediction.plot()

# %% [markdown]
# Several cases are one result with a table (`.rows`, polars) and a chart.

# %%
curve = attnlaw.learn(alpha=[0.1, 0.2, 0.3, 0.4, 0.6, 0.8], noise=0.5, student=["factorized", "direct"])
curve.plot()

# %%
curve.rows.select("alpha", "student", "estimation_error", "rank_fraction")

# %% [markdown]
# A checkpoint: what an audit finds, and how large the products of its heads are.

# %%
audit = attnlaw.audit("examples/tiny-decoder")
audit

# %%
print(audit)
audit.plot("heads")
