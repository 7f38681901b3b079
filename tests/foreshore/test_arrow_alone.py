"""Neither the server nor a replica loads pandas, and PySpark can."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import foreshore.compute.replica.main
import foreshore.server.main
import pyarrow as pa

pa.array([1, 2])
assert not any(name.partition(".")[0] == "pandas" for name in sys.modules)
"""
PANDAS = (
    SCRIPT
    + """
import pandas
from pyspark.sql.pandas.utils import require_minimum_pandas_version

require_minimum_pandas_version()
assert len(pandas.Series([1])) == 1
"""
)


def test_arrow_does_not_import_pandas() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)


def test_pyspark_imports_pandas() -> None:
    pytest.importorskip("pyspark")
    subprocess.run([sys.executable, "-c", PANDAS], check=True, timeout=120)
