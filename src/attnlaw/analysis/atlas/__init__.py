"""The atlas: audits of trained models and of untrained models of the same shapes. It shows what is normal.

| file | holds |
|---|---|
| `columns` | the numbers in which models are compared, and the kinds of models |
| `atlas` | the rows that ship with attnlaw, or those of your own study |
| `compare` | where a model is among the models of an atlas |
"""
