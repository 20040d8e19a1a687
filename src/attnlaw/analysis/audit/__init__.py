"""Trees with numbers become records with rows: `audit` a checkpoint in, an `Audit` out; `fits` its laws."""

from typing import TYPE_CHECKING

from attnlaw.core.lazy import missing_name_error

if not TYPE_CHECKING:  # a checker knows the names that are here

    def __getattr__(name: str) -> object:
        raise missing_name_error(__name__, name)
