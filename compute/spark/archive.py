"""Class-data archives: Spark's classes as the JVM has parsed them, mapped at its next start.

    python -m foreshore.compute.spark.archive      make the archive, unless it is there

It is made once for a Java and a Spark, by a JVM that runs some statements and writes the archive
when it ends. With it a session is up in half the time. It is a cache: a JVM ignores an archive
that does not fit.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from foreshore.compute.spark.java import find_java, jars, version_text
from foreshore.errors import Unavailable
from foreshore.processes.child_environment import COMPUTE, child_environment, private_home
from foreshore.processes.tied_process import start_tied

logger = logging.getLogger(__name__)

YIELDING = "--yielding"  # to other processes
WAIT_SECONDS = 180.0  # in which the views of a first start are filled
ABANDONED_SECONDS = 3600.0  # after which a directory is of a process that was killed
MOST_ARCHIVES = 4  # of several environments of Python; the newest are kept
BEGUN = "begun-"  # of names of directories
FORMAT = 1  # counted up when other classes are loaded by `_train`


def cache_directory() -> Path:
    """Return this user's directory for archives."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "foreshore")


def archive_path(java: str, spark_home: str) -> Path:
    """Return where the archive of this Java and Spark is, if there is one."""
    digest = hashlib.sha256(f"{FORMAT} {java} {version_text(java)}".encode())
    for jar in jars(spark_home):
        stat = os.stat(jar)
        digest.update(f"{jar} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return cache_directory() / f"spark-{digest.hexdigest()[:16]}.jsa"


def archive_flags(java: str, spark_home: str) -> list[str]:
    """Return the flags that let a JVM use its archive, none if there is no archive."""
    path = archive_path(java, spark_home)
    return [f"-XX:SharedArchiveFile={path}"] if path.is_file() else []


def make_archive_later(spark_home: str) -> None:
    """Make the archive in a process of low priority, some minutes from now, if there is none."""
    if archive_path(find_java(), spark_home).is_file():
        return
    command = [sys.executable, "-m", "foreshore.compute.spark.archive", YIELDING]
    start_tied(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=child_environment(private_home(), COMPUTE),
    )


def main() -> None:
    """Make the archive, unless it is there, another process makes it, or there is no Java."""
    from pyspark.find_spark_home import _find_spark_home

    if YIELDING in sys.argv:
        time.sleep(WAIT_SECONDS)
    try:
        path = archive_path(find_java(), _find_spark_home())
    except Unavailable as error:
        sys.stderr.write(f"no class-data archive: {error}\n")
        return
    if path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not path.is_file():
            if YIELDING in sys.argv:
                os.nice(10)
            _make(path)


def _make(path: Path) -> None:
    from foreshore.compute.spark.options import SparkOptions
    from foreshore.compute.spark.session import DUMP_SECONDS, start_spark, stop_spark

    with tempfile.TemporaryDirectory(prefix=BEGUN, dir=path.parent) as directory:
        made = Path(directory, "archive")
        options = SparkOptions(Path(directory, "spark"), "local[2]", 512)
        _train(start_spark(options, made), Path(directory))
        stop_spark(DUMP_SECONDS)
        if made.is_file():
            made.replace(path)
    archives = sorted(path.parent.glob("spark-*.jsa"), key=lambda each: each.stat().st_mtime)
    for old in archives[:-MOST_ARCHIVES]:
        old.unlink(missing_ok=True)
    remove_abandoned(path.parent, time.time() - ABANDONED_SECONDS)


def remove_abandoned(cache: Path, before: float) -> None:
    """Remove the directories of archives that were begun before a time and not ended."""
    for directory in cache.glob(f"{BEGUN}*"):
        if directory.stat().st_mtime < before:
            shutil.rmtree(directory, ignore_errors=True)


def _train(spark: object, directory: Path) -> None:
    """Run statements that load the classes of a replica's jobs."""
    import pyarrow as pa
    from pyspark.sql import SparkSession

    assert isinstance(spark, SparkSession)
    session = spark.newSession()
    numbers = {"k": [1, 2, 3, None], "v": [1.5, 2.5, 0.0, 1.0], "s": ["a", "b", "c", None]}
    frame = session.createDataFrame(pa.table(numbers), schema="k bigint, v decimal(15,2), s string")
    frame.createOrReplaceTempView("t")
    files = str(directory / "t")
    frame.repartition(2, "k").write.option("compression", "zstd").parquet(files)
    session.read.schema("k bigint, v decimal(15,2), s string").parquet(files).createTempView("u")
    for adaptive in ("false", "true"):
        session.conf.set("spark.sql.adaptive.enabled", adaptive)
        session.sql(
            "WITH j AS (SELECT t.k, t.s, u.v FROM t JOIN u ON t.k <=> u.k)"
            " SELECT k, sum(v) AS w, count(DISTINCT s), row_number() OVER (ORDER BY k) FROM j"
            " WHERE s LIKE '%a%' OR v > 1 GROUP BY k HAVING sum(v) <> 0"
            " UNION ALL SELECT k, v, 0, 0 FROM u ORDER BY 1 LIMIT 10"
        ).toArrow()


if __name__ == "__main__":
    main()
