"""What is normal: audits of some trained models and of fresh ones of their shapes, and a model beside them.

| file | holds |
|---|---|
| `columns` | the numbers in which models are compared, from the rows of audits |
| `kinds` | what kind of model a family is |
| `atlas` | the rows that ship, and those of a study |
| `compare` | where a model is among them |
"""

from attnlaw.analysis.atlas.atlas import Atlas, atlas
from attnlaw.analysis.atlas.compare import comparison_table

__all__ = ["Atlas", "atlas", "comparison_table"]
