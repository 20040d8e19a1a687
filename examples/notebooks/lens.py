# %% [markdown]
# # Lens: one forward pass as one affine map
#
# `python examples/notebooks/lens.py`, from the top of the repository; needs `pip install 'attnlaw[lens]'`
# (arXiv 2601.17958).

# %%
import numpy as np

import attnlaw

MODEL = "examples/tiny-decoder"
TEXT = "the cat"
lens = attnlaw.lens(MODEL, ids=list(TEXT.encode()), top=4)  # this model reads bytes
print(f"vec F(X) = T vec X + c holds to {lens.reconstruction_error:.0e}: {lens.status}")

# %% [markdown]
# How much does each input token move each output token? Rows are outputs, as shares; the mask is causal.

# %%
norms = lens.record.token_map.norms
shares = norms / norms.sum(axis=1, keepdims=True)
for letter, row in zip(TEXT, shares, strict=True):
    print(repr(letter), " ".join(f"{share:4.0%}" if share else "   ." for share in row))

# %% [markdown]
# Attention rollout, for comparison, says that everything looks at the first token.

# %%
rollout = lens.record.rollout / lens.record.rollout.sum(axis=1, keepdims=True)
print(f"share of the first token in the last: operator {shares[-1, 0]:.0%}, rollout {rollout[-1, 0]:.0%}")

# %% [markdown]
# The operator is an operator: apply it, or hand it to scipy.

# %%
print("singular values", np.round(lens.singular_values, 2))
direction = np.random.default_rng(0).standard_normal(len(TEXT) * 128)
stretch = np.linalg.norm(lens.record.operator.matvec(direction)) / np.linalg.norm(direction)
print(f"a random direction is stretched by {stretch:.2f}")
