# %% [markdown]
# # Audit: what the spectra of a trained model say
#
# Run the cells one by one in an editor that knows `# %%`, or all of them from the top of the repository:
# `python examples/notebooks/audit.py`. Put your own checkpoint in the place of the small decoder.

# %%
import polars as pl

import attnlaw

MODEL = "examples/tiny-decoder"
audit = attnlaw.audit(MODEL)
print(f"{audit.summary['family']}: {audit.summary['layers']} layers, {audit.matrices.height} matrices")

# %% [markdown]
# One row per matrix. The stable rank says how many directions carry a head: 32 would be all of them.

# %%
heads = audit.matrices.filter(pl.col("kind").is_in(["qk", "vo"]))
by_layer = heads.group_by("layer", "kind").agg(pl.col("stable_rank").median(), pl.col("spectral_norm").max())
print(by_layer.sort("kind", "layer"))

# %% [markdown]
# The proxies are leading factors of bounds, as log10. Compare models of one shape; they are no guarantees.

# %%
for name, proxy in audit.summary["proxies"].items():
    if "log10" in proxy:
        print(f"{name:34} {proxy['log10']:8.4f}")
print("counts ranks only:", audit.rank_count)

# %% [markdown]
# Are these heads more than noise? The null test is part of every audit.

# %%
tested, rejected = audit.not_random_tested, audit.not_random_rejected
print(f"{rejected} of {tested} matrices differ from random ones of their shape")

# %% [markdown]
# Where does the amplification come from? Each layer multiplies it by its Lipschitz factor.

# %%
for layer, (here, above) in enumerate(
    zip(audit.summary["log10_alpha"], audit.summary["log10_alpha"][1:], strict=False), start=1
):
    print(f"layer {layer} multiplies an error by up to 10^{here - above:.2f}")

# %% [markdown]
# The rows, the page and the figures. The page works offline.

# %%
audit.save("audit-notebook")
print("open audit-notebook/report.html")
