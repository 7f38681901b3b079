"""Whether Python functions may run, and what their processes may take.

A server passes this on to the processes it starts by environment variables, so that replicas,
processes of queries and Spark's workers have the same limits.
"""

import os
from dataclasses import dataclass

from foreshore.errors import ObjectNotInPrerequisiteState

ALLOWED = "FORESHORE_PYTHON_FUNCTIONS"
SECONDS = "FORESHORE_PYTHON_FUNCTION_TIMEOUT"
MEGABYTES = "FORESHORE_PYTHON_FUNCTION_MEMORY"
KEPT = "FORESHORE_PYTHON_FUNCTION_ANSWERS"
DEFAULT_SECONDS = 60.0
DEFAULT_MEGABYTES = 1024
DEFAULT_KEPT = 128  # megabytes of answers in a process


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one host: seconds for a batch, and bytes beyond those it starts with.

    `kept` are the bytes of answers that the process keeps that calls hosts.
    """

    seconds: float = DEFAULT_SECONDS
    memory: int = DEFAULT_MEGABYTES << 20
    kept: int = DEFAULT_KEPT << 20


def allow(seconds: float, megabytes: int, kept: int = DEFAULT_KEPT) -> None:
    """Let this process, and those that it starts, run Python functions."""
    os.environ[ALLOWED] = "1"
    os.environ[SECONDS], os.environ[MEGABYTES] = str(seconds), str(megabytes)
    os.environ[KEPT] = str(kept)


def check_allowed() -> None:
    """Raise ObjectNotInPrerequisiteState unless Python functions may run here."""
    if os.environ.get(ALLOWED) != "1":
        raise ObjectNotInPrerequisiteState(
            "Python functions are turned off",
            hint="The server's option --python-functions turns them on.",
        )


def limits() -> Limits:
    """Return the limits of hosts that this process starts."""
    seconds = float(os.environ.get(SECONDS, DEFAULT_SECONDS))
    memory, kept = (
        int(os.environ.get(name, default)) << 20
        for name, default in ((MEGABYTES, DEFAULT_MEGABYTES), (KEPT, DEFAULT_KEPT))
    )
    return Limits(seconds, memory, kept)
