# %% [markdown]
# # Fit: which law does a head follow?
#
# `python examples/notebooks/fit.py`, from the top of the repository; needs `pip install 'attnlaw[charts]'`.

# %%
import numpy as np
import polars as pl

from attnlaw import fit

MODEL = "examples/tiny-decoder"

# %% [markdown]
# First noise: a block as one would initialise it. The null must not be rejected.

# %%
rng = np.random.default_rng(0)
fresh = {
    "in_proj_weight": rng.standard_normal((384, 128)),
    "out_proj.weight": rng.standard_normal((128, 128)),
}
noise = fit(fresh, heads=4, name="fresh")
print(noise.fits.group_by("kind", "law").len().sort("kind"))

# %% [markdown]
# Then a trained model. `random_p_value` is the null's; `outliers` are singular values beyond its edge.

# %%
trained = fit(MODEL, only="qk,vo")
print(
    trained.fits.group_by("kind", "law")
    .agg(pl.len(), pl.col("random_p_value").max(), pl.col("outliers").median(), pl.col("kappa").median())
    .sort("kind", "law")
)

# %% [markdown]
# The rows, a page, and the map of laws for a paper or a talk: each cell is a head.

# %%
print("see", trained.save("fit-notebook", figures="png") / "figures" / "laws.png")
