"""Read a Foreshore collection as of a time with Spark.

    python read_spark.py DATA_DIR NAME [--as-of MS] [--output FILE]

The result is an Arrow table of the distinct rows, `__diff` saying how many times each is there.
"""

import re
from functools import partial

import pyarrow as pa
from foreshore_files import main
from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # dates are as they were written
    "spark.sql.timeType.enabled": "true",
}


def rows(spark: SparkSession, files: list[str], as_of: int) -> DataFrame:
    """Return the rows that the updates in the files add up to at `as_of`."""
    for setting, value in SETTINGS.items():
        spark.conf.set(setting, value)
    literally = [re.sub(r"[][{}*?\\]", r"\\\g<0>", file) for file in files]  # no patterns
    updates = spark.read.parquet(*literally)
    if len(updates.inputFiles()) < len(files):  # Spark passes over one that has just gone
        raise FileNotFoundError("a file is gone")
    types = dict(updates.dtypes)
    names = {name: "`" + name.replace("`", "``") + "`" for name in updates.columns[:-2]}
    # Rows are the same if they are bit for bit: -0.0 is another one than 0.0.
    keys = [
        f"CAST({quoted} AS STRING)" if "float" in types[name] or "double" in types[name] else quoted
        for name, quoted in names.items()
    ]
    shown = [f"first({quoted}) AS {quoted}" for quoted in names.values()]
    return spark.sql(
        f"SELECT {', '.join([*shown, 'sum(__diff) AS __diff'])}"
        f" FROM {{updates}} WHERE __time <= {as_of}"
        f" GROUP BY {', '.join(keys) or 'true'} HAVING sum(__diff) <> 0",
        updates=updates,
    )


def contents(spark: SparkSession, files: list[str], as_of: int) -> pa.Table:
    """Return `rows` as an Arrow table."""
    return rows(spark, files, as_of).toArrow()


if __name__ == "__main__":
    with SparkSession.builder.appName("read a shard").getOrCreate() as session:
        main(partial(contents, session))
