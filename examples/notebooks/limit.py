# %% [markdown]
# # Limit: the law of an attention layer at initialisation
#
# `python examples/notebooks/limit.py`, from the top of the repository. Notation: n the width, H the heads,
# p the scores, y the output (arXiv 2506.00846).

# %%
import math
from pathlib import Path

from attnlaw.base.declare import silent
from attnlaw.limits import AttentionLayer, Depth, RandomInputs, Scores, compare_widths
from attnlaw.report.write import draw
from attnlaw.verbs.limit import VERB

layer = AttentionLayer(RandomInputs(tokens=4), heads=2)
rows = compare_widths(Depth(layer), (16, 64, 256, math.inf), draws=10_000, seed=0)

# %% [markdown]
# The distance to the limit falls like 1/n^2: from 16 to 64 by about 10, from 64 to 256 by about 16.

# %%
for row in rows[:-1]:
    print(f"n = {row.width:<5} KL {row.kl_to_limit.value:.2e} +- {row.kl_to_limit.error:.0e}")

# %% [markdown]
# The limit itself is not Gaussian: its kurtosis is 3 + 3 r / H.

# %%
for heads in (1, 4, 16):
    (limit,) = compare_widths(
        Depth(AttentionLayer(RandomInputs(4), heads=heads)), (math.inf,), draws=20_000, seed=0
    )
    print(f"H = {heads:<3} kurtosis {limit.kurtosis.value:.3f} +- {limit.kurtosis.error:.3f}")

# %% [markdown]
# Under a causal mask the first token sees itself alone: Gaussian in the limit. The last one is not.

# %%
causal = Depth(AttentionLayer(RandomInputs(4), heads=2, scores=Scores(mask="causal")))
for token in (0, 3):
    (limit,) = compare_widths(causal, (math.inf,), draws=10_000, seed=0, token=token)
    print(f"token {token + 1}: kurtosis {limit.kurtosis.value:.3f}")

# %% [markdown]
# The first figure of what the verb finds, as `attnlaw limit --figure densities.png` draws it.

# %%
cases = VERB.cases({"width": [16, 64, 256, math.inf], "draws": 10_000})
draw([(VERB, list(zip(cases, VERB.run(cases, silent), strict=True)))], Path("densities.png"))
print("densities.png")
