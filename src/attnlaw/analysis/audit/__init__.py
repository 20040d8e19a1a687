"""Trees with numbers become records with rows: `audit` a checkpoint in, an `Audit` out; `fits` its laws."""
