"""The PySpark data source: a user's own Spark job reads the database, without a server.

    from foreshore.spark import register
    register(spark)
    spark.read.format("foreshore").option("path", data_dir).option("collection", "totals").load()

`docs/lake.md` has the options. Executors need this package on their path, as a wheel or an archive
(`spark.submit.pyFiles`); a stream's driver needs it installed.
"""

from typing import Any


def register(spark: Any) -> None:
    """Let a session read `format("foreshore")`."""
    from foreshore.spark.source import ForeshoreDataSource

    spark.dataSource.register(ForeshoreDataSource)
