"""The Spark session of this process, on a private JVM.

`service.py` is what others use. The JVM is started directly (`java.py`) with the properties of the
options (`options.py`), and with an archive of its classes if there is one (`archive.py`). With a
local master everything listens on the loopback interface. There is no web UI, and the configuration
suits many small jobs. The JVM ends when this process ends, even during its start and however the
process ends (tied_process.py). It has a session of processes of its own, and so on Linux the share
of one program: its many threads hold up no other process, and get on beside many of them.
"""

import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from foreshore.compute.spark.archive import archive_flags
from foreshore.compute.spark.java import find_java, flags, jars
from foreshore.compute.spark.options import LOOPBACK, SparkOptions, driver_host
from foreshore.compute.spark.package import add_package
from foreshore.errors import Unavailable
from foreshore.processes.child_environment import AWS, COMPUTE, NETWORK, child_environment
from foreshore.processes.tied_process import start_tied

DUMP_SECONDS = 300.0  # in which a JVM writes an archive when it ends

_launching = Lock()


def start_spark(options: SparkOptions, dump: Path | None = None) -> Any:
    """Return a SparkSession, starting the process's only JVM if it is not running.

    An ended JVM or Spark is replaced. A failed start leaves nothing behind. The JVM writes a
    class-data archive to `dump` when it is stopped.
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
        gateway = _launch(options, dump)
        try:
            conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm)
            for key, value in options.properties().items():
                conf.set(key, value)
            context = SparkContext(conf=conf, gateway=gateway)
            context.pythonExec = _worker_python()
            context.setLogLevel("ERROR")
            if not options.is_local:
                add_package(context, options.scratch)
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


def is_gone(context: Any) -> bool:
    """Whether a SparkContext was stopped, or its JVM has ended, as far as this process knows.

    It asks nobody. `end_of` finds what else may have happened.
    """
    return context._jsc is None or context._gateway.proc.poll() is not None


def stop_spark(seconds: float = 10.0) -> None:
    """Stop the session's JVM, and kill it if it does not end in some seconds."""
    from pyspark import SparkContext

    with _launching:
        if SparkContext._gateway is not None:
            _end(SparkContext._gateway, seconds)


def _end(gateway: Any, seconds: float = 10.0) -> None:
    """End the JVM behind a gateway, and remove it from PySpark.

    A JVM that has not stopped its context in so many seconds, or does not answer, is killed.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    late = Timer(seconds, gateway.proc.kill)
    late.daemon = True
    late.start()
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
    late.cancel()
    _end_process(gateway.proc, seconds)


def _end_process(process: "subprocess.Popen[bytes]", seconds: float = 10.0) -> None:
    """Close a JVM's standard input and wait for it to end; kill it if it does not."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _launch(options: SparkOptions, dump: Path | None) -> Any:
    """Start the JVM and return the gateway to it."""
    from pyspark import java_gateway
    from pyspark.find_spark_home import _find_spark_home

    java = find_java()
    home = _find_spark_home()
    archive = archive_flags(java, home) if dump is None else [f"-XX:ArchiveClassesAtExit={dump}"]
    submit = [
        part for key, value in options.properties().items() for part in ("--conf", f"{key}={value}")
    ]
    command = [
        java,
        *flags(java),
        f"-Xmx{options.memory_mb}m",
        *archive,
        "-Xshare:auto",
        f"-Djava.io.tmpdir={options.scratch}",
        f"-Duser.home={options.scratch / 'home'}",
        "-cp",
        os.pathsep.join(jars(home)),
        "org.apache.spark.deploy.SparkSubmit",
        *submit,
        "pyspark-shell",
    ]
    with tempfile.TemporaryDirectory(dir=options.scratch) as directory:
        connection = Path(directory, "connection")
        own_home = options.scratch / "home"
        environment = child_environment(
            own_home,
            *(COMPUTE, NETWORK, AWS),  # what of these this process has itself
            SPARK_HOME=home,
            SPARK_CONNECT_MODE="0",
            SPARK_LOCAL_IP=driver_host(options.master) or LOOPBACK,
            PYSPARK_PYTHON=_worker_python(),
            _PYSPARK_DRIVER_CONN_INFO_PATH=str(connection),
        )
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
