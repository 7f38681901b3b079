"""Spark as a service of a process: a session that starts in the background and is replaced.

    service = SparkService(options)
    service.begin()                                  returns at once
    with service.job("hydrate u7", cancellation) as session:
        session.sql(...)                             of a session of its own, on this thread
    service.progress()                               stages and tasks of running jobs

A process has one JVM, so all its services have to have the same options. All calls may come from
any thread; `begin` is the only one that does not block.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from foreshore.compute.engine import Cancellation
from foreshore.compute.spark.archive import make_archive_later
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.progress import StageProgress, running_stages, stages_of
from foreshore.compute.spark.session import end_of, is_gone, start_spark, stop_spark
from foreshore.errors import QueryCanceled, Unavailable
from foreshore.extras import require_spark

logger = logging.getLogger(__name__)


class SparkService:
    """The Spark of this process."""

    def __init__(self, options: SparkOptions) -> None:
        """Make a service that has not started; raises FeatureNotSupported if Spark is missing."""
        require_spark("this")
        self.options = options
        self._lock = threading.Lock()  # of the start
        self._beginning = threading.Lock()  # held while `begin` works
        self._session: Any = None
        self._numbers = count()
        self._groups: dict[str, None] = {}  # those whose jobs may run, in order

    def begin(self) -> None:
        """Start Spark on a thread, if it is not running."""
        if self._beginning.locked():
            return

        def start() -> None:
            with self._beginning:
                try:
                    self.session()
                except Unavailable as error:  # who needs a session tries again, and is told
                    logger.warning("Spark does not start: %s", error)

        threading.Thread(target=start, name="spark", daemon=True).start()

    def session(self) -> Any:
        """Return the SparkSession, once it is there; raises Unavailable.

        One whose JVM has ended is replaced. What was made in it, such as views, is gone.
        """
        with self._lock:
            if self._session is None or end_of(self._session.sparkContext) is not None:
                self._session = start_spark(self.options)
                if self.options.makes_archive:
                    self._make_archive()
            return self._session

    def _make_archive(self) -> None:
        from pyspark.find_spark_home import _find_spark_home

        try:
            make_archive_later(_find_spark_home())
        except OSError as error:  # later starts take longer
            logger.warning("no class-data archive can be made: %s", error)

    @property
    def is_running(self) -> bool:
        """Whether there is a session; its JVM may have ended since."""
        return self._session is not None

    @property
    def is_beginning(self) -> bool:
        """Whether `begin` has not come to its end."""
        return self._beginning.locked()

    def check(self) -> None:
        """Raise Unavailable if Spark was started and has ended; it asks the JVM."""
        session = self._session
        if session is not None and (how := end_of(session.sparkContext)) is not None:
            raise Unavailable(how)

    @contextmanager
    def job(self, name: str, cancellation: Cancellation | None = None) -> Iterator[Any]:
        """Yield a session of its own; its jobs on this thread are those of a group.

        The group's name is `name` with a number. Cancelling stops its jobs and raises
        QueryCanceled.
        """
        session = self.session().newSession()
        with self.group(session, f"{name} #{next(self._numbers)}", cancellation):
            yield session

    @contextmanager
    def group(
        self, session: Any, group: str, cancellation: Cancellation | None = None
    ) -> Iterator[None]:
        """Let the jobs of this thread belong to a group, which `cancellation` stops.

        QueryCanceled is then raised.
        """
        context = session.sparkContext
        jvm_context = context._jsc.sc()
        context.setJobGroup(group, group, interruptOnCancel=True)
        self._groups[group] = None
        try:
            if cancellation is not None:
                cancellation.arm(lambda: jvm_context.cancelJobGroupAndFutureJobs(group))
            yield
            if cancellation is not None and cancellation.cancelled:
                raise QueryCanceled
        except Exception as error:
            if cancellation is not None and cancellation.cancelled:
                raise QueryCanceled from error
            raise
        finally:
            del self._groups[group]
            if cancellation is not None:
                cancellation.disarm()
            if not is_gone(context):
                context.setLocalProperty("spark.jobGroup.id", None)

    def progress(self, group: str | None = None) -> list[StageProgress]:
        """Return the stages of a group's jobs, or of all that run; none before the start."""
        session = self._session
        if session is None:
            return []
        if group is not None:
            return stages_of(session.sparkContext, group)
        return running_stages(session.sparkContext, list(self._groups))

    def stop(self) -> None:
        """End the JVM."""
        with self._lock:
            self._session = None
            stop_spark()
