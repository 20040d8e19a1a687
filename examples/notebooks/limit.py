# %% [markdown]
# # Limit: the law of an attention layer at initialisation
#
# `python examples/notebooks/limit.py`, from the top of the repository; needs `pip install 'attnlaw[charts]'`.
# Notation: n the width, H the heads, p the scores, y the output (arXiv 2506.00846).

# %%
import math

import altair as alt
import polars as pl

import attnlaw
from attnlaw.render.charts.paper import save_chart
from attnlaw.theory.limit.limit import density_rows

WIDTHS = [16, 64, 256, math.inf]
widths = attnlaw.limit(tokens=4, heads=2, width=WIDTHS, draws=10_000)

# %% [markdown]
# The distance to the limit falls like 1/n^2: from 16 to 64 by about 10, from 64 to 256 by about 16.

# %%
for width, result in zip(WIDTHS[:-1], widths, strict=False):
    print(f"n = {width:<5g} KL {result.kl_to_limit}")

# %% [markdown]
# The limit itself is not Gaussian: its kurtosis is 3 + 3 r / H.

# %%
for heads, limit in zip((1, 4, 16), attnlaw.limit(heads=[1, 4, 16], draws=20_000), strict=True):
    print(f"H = {heads:<3} kurtosis {limit.kurtosis}")

# %% [markdown]
# Under a causal mask the first token sees itself alone: Gaussian in the limit. The last one is not.

# %%
for token in (1, 4):
    limit = attnlaw.limit(mask="causal", token=token, draws=10_000)
    print(f"token {token}: kurtosis {limit.kurtosis}")

# %% [markdown]
# The densities. `attnlaw limit --out DIR --figures pdf` draws this and the distances from a terminal.

# %%
densities = pl.DataFrame(density_rows({record.width: record.law for record in widths.records}))
named = densities.with_columns(pl.col("width").cast(pl.String)).to_dicts()
chart = alt.Chart(alt.Data(values=named)).mark_line().encode(x="y:Q", y="density:Q", color="width:N")
print(save_chart(chart, "densities.png"))
