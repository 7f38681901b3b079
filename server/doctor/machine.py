"""Checks of the machine and of the installation."""

import os
import re
import resource
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version

from foreshore.errors import Unavailable
from foreshore.extras import INSTALL, is_spark_installed
from foreshore.server.descriptors import RESERVE
from foreshore.server.doctor.below import Below
from foreshore.server.doctor.finding import Finding, fail, gigabytes, ok, warn
from foreshore.server.http.app import MAX_CONNECTIONS as HTTP
from foreshore.server.listener import LOGGING_IN

LEAST_PYTHON = (3, 11)
LEAST_MEMORY = 1 << 30  # bytes
WANTED_SESSIONS = 1000  # as by default of --max-connections
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*([^;]*)(;.*)?")
_BOUND = re.compile(r"(>=|<)\s*([0-9.]+)")


def python() -> Iterator[Finding]:
    """Look at Python's version."""
    text = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info < LEAST_PYTHON:
        yield fail("python", text, "Use Python 3.11 or later.")
    else:
        yield ok("python", text)


def packages() -> Iterator[Finding]:
    """Look at the versions of the packages that Foreshore needs."""
    wrong: list[str] = []
    right: list[str] = []
    for line in requires("foreshore") or ():
        match = _REQUIREMENT.match(line)
        if match is None or (match[3] and "extra" in match[3]):
            continue
        name, bounds = match[1], match[2]
        try:
            there = version(name)
        except PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        fits = all(_fits(there, how, bound) for how, bound in _BOUND.findall(bounds))
        (right if fits else wrong).append(f"{name} {there}" + ("" if fits else f" (not {bounds})"))
    if wrong:
        advice = "Install them anew: pip install --upgrade foreshore"
        yield fail("packages", ", ".join(wrong), advice)
    else:
        yield ok("packages", f"foreshore {version('foreshore')}; {', '.join(sorted(right))}")


def _fits(there: str, how: str, bound: str) -> bool:
    """Whether a version is within a bound, by its numbers."""
    one, other = (
        [int(digits) for digits in re.findall(r"\d+", text)][:3] for text in (there, bound)
    )
    one, other = ([*numbers, 0, 0, 0][:3] for numbers in (one, other))
    return one >= other if how == ">=" else one < other


def spark(below: Below) -> Iterator[Finding]:
    """Look for Spark, and for a Java if it is there."""
    if not is_spark_installed():
        yield ok("spark", f"not installed, and needed only for Spark; for that: {INSTALL}")
        return
    try:
        java = below.java()
    except Unavailable as error:
        yield warn("java", error.message, error.hint or "Set JAVA_HOME.")
    else:
        yield ok("java", java)


def memory(below: Below) -> Iterator[Finding]:
    """Look at the memory that the machine or the cgroup has."""
    there = below.memory_bytes()
    if there is None:
        yield ok("memory", "its size is not known")
    elif there < LEAST_MEMORY:
        yield warn("memory", gigabytes(there), "Views and queries of any size need 1 GB or more.")
    else:
        yield ok("memory", gigabytes(there))


def descriptors() -> Iterator[Finding]:
    """Look at the limit of file descriptors, which the server raises to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = RESERVE + HTTP + LOGGING_IN
    if hard == resource.RLIM_INFINITY or hard >= needed + WANTED_SESSIONS:
        limit = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        yield ok("file descriptors", limit)
    elif hard <= needed:
        yield fail("file descriptors", str(hard), f"Allow more than {needed} (ulimit -n).")
    else:
        advice = f"Allow {needed + WANTED_SESSIONS} (ulimit -n), or lower --max-connections."
        yield warn("file descriptors", f"{hard} leave room for {hard - needed} sessions", advice)


def environment(known: Collection[str], given: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Look for variables that no option has, such as misspelled ones."""
    names = sorted(name for name in given if name.startswith("FORESHORE_"))
    unknown = [name for name in names if name not in known]
    if unknown:
        advice = "`foreshore serve --help` names the options; remove or mend these variables."
        yield warn("environment", f"unknown: {', '.join(unknown)}", advice)
    else:
        yield ok("environment", ", ".join(names) or "no FORESHORE_ variables are set")
