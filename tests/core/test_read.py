"""Saved tables are read whole."""

import threading

import polars as pl

from attnlaw.core.files import to_parquet, write_atomically
from attnlaw.core.tables import read_table


def test_a_table_that_is_replaced_meanwhile_is_the_old_one_or_the_new_one(tmp_path):
    path, done = tmp_path / "rows.parquet", threading.Event()
    tables = [pl.DataFrame({"x": range(size)}) for size in (2000, 4000)]
    path.write_bytes(to_parquet(tables[0]))

    def write():
        while not done.is_set():
            for table in tables:
                with write_atomically(path) as draft:
                    draft.write_bytes(to_parquet(table))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        readings = [read_table(path, "write it again") for _ in range(300)]
    finally:
        done.set()
        writer.join()
    assert {table.height for table in readings} <= {2000, 4000}
