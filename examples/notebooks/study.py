# %% [markdown]
# # Study and report: many settings, one page
#
# `python examples/notebooks/study.py`, from the top of the repository.

# %%
from pathlib import Path

import attnlaw
from attnlaw.report import write_report
from attnlaw.study import Backend, read_study, run

STUDY = """
verb = "learn"
[fixed]
noise = 0.5
[grid]
student = ["factorized", "direct"]
alpha = "0.1:1:10"
"""
Path("study.toml").write_text(STUDY)

# %% [markdown]
# Every case is checked before the first one runs. `Backend(jobs=8)` would start eight workers.

# %%
standing = run(read_study("study.toml"), Path("study-notebook"), Backend())
print(f"{standing.done} of {standing.tasks} tasks done")

# %% [markdown]
# A second run finds everything done. Its result has rows with settings, quantities, status and version.

# %%
rows = attnlaw.load("study-notebook").rows
print(rows.pivot("student", index="alpha", values="estimation_error").sort("alpha"))

# %% [markdown]
# One page from the saved rows; nothing is computed anew.

# %%
print("open", write_report(["study-notebook"]))
