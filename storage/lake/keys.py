"""Sets of keys in DuckDB, by which rows of files are found: of an interval, or of deletes."""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa

MEMORY = "512MB"  # beyond it, DuckDB writes to files in its directory


class KeySet:
    """The keys in the columns `k0`, `k1`, ... of a relation of a DuckDB connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, relation: str) -> None:
        self._connection = connection
        self._relation = relation

    def mask(self, columns: list[pa.Array]) -> np.ndarray:
        """Return which rows have one of the keys, given the columns of the key; NULLs are equal."""
        names = [f"k{place}" for place in range(len(columns))]
        numbers = pa.array(np.arange(len(columns[0]), dtype=np.int64))
        looked_up = pa.table([*map(_stored, columns), numbers], names=[*names, "row"])
        same = " AND ".join(f"r.{name} IS NOT DISTINCT FROM c.{name}" for name in names)
        query = f"SELECT r.row FROM looked_up r SEMI JOIN {self._relation} c ON {same}"
        self._connection.register("looked_up", looked_up)
        found = self._connection.sql(query).to_arrow_table().column("row").to_numpy()
        self._connection.unregister("looked_up")
        mask = np.zeros(len(columns[0]), bool)
        mask[found] = True
        return mask

    def drop(self) -> None:
        """Let go of the keys."""
        self._connection.execute(f"DROP TABLE {self._relation}")


def insert_keys(
    connection: duckdb.DuckDBPyConnection, relation: str, batches: Iterator[pa.RecordBatch]
) -> KeySet:
    """Return the rows of batches, one at least, as keys in a new relation."""
    made = False
    for batch in batches:
        names = [f"k{place}" for place in range(batch.num_columns)]
        rows = pa.table([_stored(each) for each in batch.columns], names=names)
        connection.register("added", rows)
        how = f"INSERT INTO {relation}" if made else f"CREATE TABLE {relation} AS"
        connection.execute(f"{how} SELECT * FROM added")
        connection.unregister("added")
        made = True
    assert made, relation
    return KeySet(connection, relation)


@contextmanager
def key_database(directory: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a DuckDB in memory that may use a directory."""
    config = {"memory_limit": MEMORY, "temp_directory": directory, "threads": 2}
    connection = duckdb.connect(":memory:", config=config)
    try:
        yield connection
    finally:
        connection.close()


def _stored(column: pa.Array) -> pa.Array:
    """Return a column in a type that DuckDB compares: UUIDs of Arrow as their bytes."""
    found = column.storage if isinstance(column, pa.ExtensionArray) else column
    is_fixed = pa.types.is_fixed_size_binary(found.type)
    return found.cast(pa.binary()) if is_fixed else found
