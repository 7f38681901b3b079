"""File descriptors: raise the limit, and bound the number of connections by it.

The server ends if the log gets no descriptor for its next segment. So the descriptors that the
server itself needs are set aside first.
"""

import contextlib
import logging
import resource

from foreshore.errors import Unavailable
from foreshore.server.http.app import MAX_CONNECTIONS as HTTP
from foreshore.server.listener import LOGGING_IN

logger = logging.getLogger(__name__)

RESERVE = 150  # for the log, batches, the engines and replicas


def connections_that_fit(wanted: int) -> int:
    """Return how many concurrent sessions to allow: `wanted`, or as many as fit.

    Raises Unavailable if none fits.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # some systems allow less than the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return wanted
    others = RESERVE + HTTP + LOGGING_IN
    if limit <= others:
        raise Unavailable(
            f"the limit of {limit} file descriptors leaves none for connections",
            sqlstate="53000",
            hint=f"Allow more than {others} (ulimit -n).",
        )
    fitting = limit - others
    if fitting < wanted:
        logger.warning(
            "max-connections is lowered from %d to %d, as there may be %d file descriptors",
            wanted,
            fitting,
            limit,
        )
    return min(wanted, fitting)
