"""Spark for work that is rare: it starts when it is first asked for, and ends when it is idle."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Timer

from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.protocol import StageStatus
from foreshore.compute.spark.options import SparkOptions
from foreshore.errors import Unavailable

logger = logging.getLogger(__name__)

IDLE_SECONDS = 60.0  # until Spark is ended
AGAIN_SECONDS = 60.0  # after a start that failed, until the next one


class SparkLender:
    """Lends the Spark of this process to several threads; one that has ended is replaced."""

    def __init__(self, options: SparkOptions, idle_seconds: float = IDLE_SECONDS) -> None:
        self._options = options
        self._idle_seconds = idle_seconds
        self._lock = Lock()
        self._engine: SparkEngine | None = None
        self._users = 0
        self._timer: Timer | None = None
        self._failed: tuple[float, str] | None = None

    @property
    def scratch(self) -> Path:
        """Return the directory of its files."""
        return self._options.scratch

    @property
    def is_up(self) -> bool:
        """Whether Spark has been started and not ended."""
        return self._engine is not None

    @contextmanager
    def lent(self, work: str) -> Iterator[SparkEngine]:
        """Yield an engine for some work of this thread; it may be closed in another one.

        Raises Unavailable if Spark does not start, or did not shortly ago.
        """
        with self._lock:
            engine = self._engine = self._started()
            self._users += 1
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        try:
            yield engine.doing(work)
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._timer = Timer(self._idle_seconds, self._end_if_idle)
                    self._timer.daemon = True
                    self._timer.start()

    def _started(self) -> SparkEngine:
        if self._engine is not None and _is_alive(self._engine):
            return self._engine
        self._engine = None
        if self._failed is not None and time.monotonic() < self._failed[0]:
            raise Unavailable(self._failed[1])
        try:
            engine = SparkEngine(self._options, repeats=False).doing("bulk work")
            engine.service.session()
        except Exception as error:
            self._failed = time.monotonic() + AGAIN_SECONDS, str(error)
            raise
        self._failed = None
        return engine

    def _end_if_idle(self) -> None:
        with self._lock:
            if not self._users:
                self._end()

    def _end(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.service.stop()

    def stages(self) -> tuple[StageStatus, ...]:
        """Return what Spark works on, nothing if it is idle. It may wait for the JVM."""
        engine = self._engine
        return () if engine is None or not self._users else engine.stages()

    def close(self) -> None:
        """End Spark."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._end()


def _is_alive(engine: SparkEngine) -> bool:
    try:
        engine.service.check()
    except Unavailable as error:
        logger.warning("Spark has ended and is started again", extra={"why": error.message})
        return False
    return True
