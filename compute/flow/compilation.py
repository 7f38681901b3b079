"""Kernels get ready: compiled in the background, loaded when the first dataflow needs them.

Loaded kernels take 60 MB and compiling them 20 s and 250 MB more. So an engine that starts loads
nothing. Where something has to be compiled, which is so once after an installation, a process of
its own does it, while this one already answers what needs no kernels. The first dataflow waits for
that process, then a thread loads the kernels (`kernels/compiled.py`).
"""

import logging
import subprocess
import sys

from foreshore.compute.checkpoint.manifest import engine_version
from foreshore.compute.flow.kernels import compiled
from foreshore.compute.flow.warm import warm_soon

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "foreshore.compute.flow.warm", "--lifeline")
MOST_SECONDS = 300.0  # of a compilation, after which this process compiles by itself


class Compilation:
    """A process that compiles the kernels, if any is not in the cache."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start the process if it is needed; a process that cannot start is no error."""
        if compiled.is_complete(engine_version()):
            return
        logger.warning("kernels of dataflows are compiled, which takes up to a minute, once")
        try:
            self._process = subprocess.Popen(
                COMMAND, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            logger.warning("kernels are compiled when they are called: %s", error)

    def finish(self) -> None:
        """Wait for the process, then have the kernels ready in this one. Any thread may call it."""
        process = self._process
        if process is not None:
            try:
                process.wait(MOST_SECONDS)
            except subprocess.TimeoutExpired:
                logger.warning("the compilation of kernels does not end, and is left alone")
            self._process = None
        warm_soon()

    def close(self) -> None:
        """End the process."""
        process = self._process  # another thread may be in `finish`
        if process is not None:
            process.kill()
            process.wait()
