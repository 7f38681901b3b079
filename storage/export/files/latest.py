"""The last row of each key among the updates of an interval."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from foreshore.errors import UniqueViolation
from foreshore.update import DIFF, TIME

ROWS_AT_ONCE = 1 << 16
MEMORY = "512MB"  # beyond it, DuckDB writes to files beside the updates


@contextmanager
def latest_rows(file: Path, key: Sequence[str], gone: str) -> Iterator[pa.RecordBatchReader]:
    """Yield a row for each key of the updates in a Parquet file, which reads from DuckDB.

    `gone` is a Boolean column: the relation has no row of that key, and the other columns are those
    of the last one. Raises UniqueViolation if it has several.
    """
    config = {"memory_limit": MEMORY, "temp_directory": str(file.parent), "threads": 2}
    with closing(duckdb.connect(":memory:", config=config)) as connection:
        keys = ", ".join(map(_quoted, key))
        source = f"read_parquet('{str(file).replace(chr(39), 2 * chr(39))}')"
        several = connection.execute(
            f"SELECT 1 FROM {source} WHERE {DIFF} > 0 GROUP BY {keys}, {TIME}"
            f" HAVING sum({DIFF}) > 1 LIMIT 1"
        ).fetchone()
        if several is not None:
            raise UniqueViolation(
                f"the relation has several rows of one key ({', '.join(key)})",
                hint="The key of the sink is NOT ENFORCED, and it is not unique.",
            )
        # Of an update, which is two changes at one time, the new row is the last.
        found = connection.sql(
            f"SELECT * EXCLUDE ({TIME}, {DIFF}), {DIFF} < 0 AS {gone} FROM {source} QUALIFY"
            f" row_number() OVER (PARTITION BY {keys} ORDER BY {TIME} DESC, {DIFF} DESC) = 1"
        )
        yield found.to_arrow_reader(ROWS_AT_ONCE)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
