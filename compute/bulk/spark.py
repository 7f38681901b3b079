"""Spark as an engine: a dataflow's state in Parquet files, a job for each statement.

Its dataflows are saved in checkpoints (`checkpoint/engine.py`), file by file, and share nothing.
"""

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from foreshore.compute.bulk.duckdb import DuckDbEngine, DuckDbSession
from foreshore.compute.bulk.engine import BulkEngine
from foreshore.compute.bulk.evaluate import plans_of
from foreshore.compute.bulk.session import Session
from foreshore.compute.bulk.spark_dataflow import SparkDataflow
from foreshore.compute.bulk.spark_local import LocalSteps
from foreshore.compute.bulk.spark_sql import SparkSqlSession, faults
from foreshore.compute.bulk.spark_store import SparkStore
from foreshore.compute.checkpoint.engine import Shared
from foreshore.compute.checkpoint.state import Mismatch, Reader
from foreshore.compute.delta.differentiate import TickPlan, differentiate
from foreshore.compute.delta.tick import TickDataflow
from foreshore.compute.engine import Cancellation, Dataflow
from foreshore.compute.protocol import BulkChoice, DataflowDescription, StageStatus
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.service import SparkService
from foreshore.expr.recursion import has_recursion
from foreshore.expr.temporal import has_temporal_filter

logger = logging.getLogger(__name__)

LOCAL_MEMORY = "1GB"  # of the DuckDB that computes small steps; it spills


class SparkEngine(BulkEngine):
    """An engine over this process's Spark; a `SavingEngine`.

    Spark starts in the background. What needs it waits for it, or raises Unavailable.
    """

    name = "spark"

    def __init__(self, options: SparkOptions, directories: Sequence[str] = ()) -> None:
        """Make an engine, which reads little below `directories` without Spark."""
        super().__init__()
        import pyspark.sql  # noqa: F401 - threads that import it at once would see half of it

        self._options = options
        self._directories = directories
        self._step_bytes = options.step_bytes
        self._work = "views"
        self.service = SparkService(options)
        self._started: Any = None
        self._here: DuckDbEngine | None = None
        self._here_lock = Lock()
        self.service.begin()

    @property
    def _spark(self) -> Any:
        """Return the session; another one does not replace it, as views are in it."""
        if self._started is None:
            self._started = self.service.session()
        return self._started

    def doing(self, work: str) -> "SparkEngine":
        """Return this engine for evaluations of some work, by which their stages are named."""
        found = copy.copy(self)
        found._work = work
        return found

    def for_query(self, choice: BulkChoice) -> "SparkEngine":
        """Return the engine for a query, whatever the session has chosen."""
        return self.doing(choice.work)

    def stages(self) -> tuple[StageStatus, ...]:
        """Return the stages of the jobs that run, with what they are for; it asks the JVM."""
        try:
            found = self.service.progress()
        except Exception as error:  # the JVM ends; whoever works with it notices
            logger.info("Spark does not tell its progress", extra={"why": repr(error)})
            return ()
        return tuple(
            StageStatus(
                self._work if s.group is None else s.group.rpartition(" #")[0],
                s.job,
                s.stage,
                s.name,
                s.tasks,
                s.active,
                s.done,
                s.failed,
            )
            for s in found
        )

    def check(self) -> None:
        """Raise Unavailable if the JVM has ended, or Spark in it has stopped."""
        self.service.check()

    def close(self) -> None:
        """Leave the session to other users in the process; `stop_spark` ends it."""
        if self._here is not None:
            self._here.close()

    @contextmanager
    def _session(self, number: int, cancellation: Cancellation) -> Iterator[Session]:
        """Yield a session whose jobs `cancellation` stops."""
        with faults(cancellation):
            session = SparkSqlSession(self._new_session, self._options.shuffle_partitions)
        try:
            group = self.service.group(self._spark, f"{self._work} #{number}", cancellation)
            with self._running_until_done(cancellation), faults(cancellation), group:
                yield session
        finally:
            session.close()

    def _store(self, number: int) -> SparkStore:
        options = self._options
        scratch = options.scratch / f"dataflow{number}"
        return SparkStore(self._new_session, scratch, options.shuffle_partitions)

    def _new_session(self) -> Any:
        return self._spark.newSession()

    def _local(self) -> DuckDbSession:
        """Return a session of the DuckDB that computes small steps from files of state."""
        scratch = self._options.scratch
        with self._here_lock:
            if self._here is None:
                spilled = str(scratch / "duckdb")
                self._here = DuckDbEngine(
                    directories=[str(scratch), *self._directories],
                    memory_limit=LOCAL_MEMORY,
                    scratch=spilled,
                )
            return self._here.session()

    def _dataflow(self, plan: TickPlan, as_of: int) -> TickDataflow:
        steps = LocalSteps(self._local, self._step_bytes, self._directories)
        return SparkDataflow(plan, self._store(next(self._numbers)), as_of, steps)

    # --- checkpoints

    def hold(self) -> None:
        """Do nothing: dataflows share nothing."""

    def release(self) -> None:
        """Do nothing."""

    def forget_unread(self) -> None:
        """Do nothing."""

    def save_shared(self, strings: int) -> Shared:
        """Return nothing."""
        return Shared(0, 0, (), ())

    def load_shared(self, shared: Shared) -> None:
        """Do nothing; raises Mismatch if another engine has saved something."""
        if shared.collections or shared.strings:
            raise Mismatch("it is of another engine")

    def load(self, description: DataflowDescription, saved: Reader) -> Dataflow:
        """Return a dataflow in the saved state, that at its `as_of`; raises Mismatch."""
        relation = description.relation
        if has_temporal_filter(relation) or has_recursion(relation):
            raise Mismatch("dataflows of its kind are not saved")
        dataflow = self._dataflow(differentiate(plans_of(relation).all), description.as_of)
        assert isinstance(dataflow, SparkDataflow)
        try:
            dataflow.load(saved)
        except BaseException:
            dataflow.close()
            raise
        return dataflow
