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
DEFAULT_SECONDS = 60.0
DEFAULT_MEGABYTES = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one host: seconds for a batch, and bytes beyond those it starts with."""

    seconds: float = DEFAULT_SECONDS
    memory: int = DEFAULT_MEGABYTES << 20


def allow(seconds: float, megabytes: int) -> None:
    """Let this process, and those that it starts, run Python functions."""
    os.environ[ALLOWED] = "1"
    os.environ[SECONDS], os.environ[MEGABYTES] = str(seconds), str(megabytes)


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
    return Limits(seconds, int(os.environ.get(MEGABYTES, DEFAULT_MEGABYTES)) << 20)
