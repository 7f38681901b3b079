"""Read a Foreshore collection as of a time with DuckDB.

    python read_duckdb.py DATA_DIR NAME [--as-of MS] [--output FILE]

The result is an Arrow table of the distinct rows, `__diff` saying how many times each is there.
"""

import re

import duckdb
import pyarrow as pa
from foreshore_files import main


def contents(files: list[str], as_of: int) -> pa.Table:
    """Return the rows that the updates in the files add up to at `as_of`."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # DuckDB takes paths for patterns, and a directory called k=7 for a column.
        literally = [re.sub(r"[*?[]", r"[\g<0>]", file) for file in files]
        updates = connection.read_parquet(literally, hive_partitioning=False)
        names = ['"' + name.replace('"', '""') + '"' for name in updates.columns[:-2]]
        types = list(map(str, updates.types))
        # Rows are the same if they are bit for bit: -0.0 is another one than 0.0, as texts are.
        # Only NaN is one value, of whatever sign.
        inexact = [type.startswith(("FLOAT", "DOUBLE")) for type in types]
        keys = [
            f"replace(CAST({name} AS VARCHAR), '-nan', 'nan')" if inexact[i] else name
            for i, name in enumerate(names)
        ]
        shown = [
            f"CAST({key} AS {types[i]}) AS {names[i]}" if inexact[i] else key
            for i, key in enumerate(keys)
        ]
        query = (
            f"SELECT {', '.join([*shown, 'CAST(sum(__diff) AS BIGINT) AS __diff'])}"
            f" FROM updates WHERE __time <= {as_of}"
            f" GROUP BY {', '.join(keys) or 'true'} HAVING sum(__diff) <> 0"
        )
        return connection.query(query).to_arrow_table()


if __name__ == "__main__":
    main(contents)
