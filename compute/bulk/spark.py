"""Spark as an engine: a dataflow's state in Parquet files, a job for each statement.

Its dataflows are saved in checkpoints (`checkpoint/engine.py`), file by file, and share nothing.
"""

import copy
import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakSet

import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine, DuckDbSession
from foreshore.compute.bulk.engine import BulkEngine
from foreshore.compute.bulk.session import Session
from foreshore.compute.bulk.spark_dataflow import SparkDataflow
from foreshore.compute.bulk.spark_local import LocalSteps
from foreshore.compute.bulk.spark_sql import SparkSqlSession, faults
from foreshore.compute.bulk.spark_store import SparkStore
from foreshore.compute.checkpoint.engine import Shared
from foreshore.compute.checkpoint.state import Mismatch, Reader
from foreshore.compute.delta.differentiate import TickPlan, differentiate
from foreshore.compute.delta.tick import TickDataflow
from foreshore.compute.engine import ALL_ROWS, Cancellation, Dataflow, Extent, Input
from foreshore.compute.protocol import BulkChoice, DataflowDescription, StageStatus
from foreshore.compute.render.evaluate import plans_of
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.service import SparkService
from foreshore.errors import QueryCanceled, Unavailable
from foreshore.expr.ir import Relation
from foreshore.expr.recursion import has_recursion
from foreshore.expr.temporal import has_temporal_filter
from foreshore.extras import require_spark
from foreshore.ids import GlobalId

logger = logging.getLogger(__name__)

START_SECONDS = 15.0  # between two tries to start Spark again
LOCAL_MEMORY = "1GB"  # of the DuckDB that computes small steps; it spills


class SparkEngine(BulkEngine):
    """An engine over this process's Spark; a `SavingEngine`.

    Spark starts in the background. What needs it waits for it, or raises Unavailable.
    """

    name = "spark"

    def __init__(
        self, options: SparkOptions, directories: Sequence[str] = (), *, repeats: bool = True
    ) -> None:
        """Make an engine, which reads little below `directories` without Spark.

        An evaluation whose JVM ends is made once more, on another JVM, if the engine `repeats`.
        """
        super().__init__()
        require_spark("this engine")
        import pyspark.sql  # noqa: F401 - threads that import it at once would see half of it

        self._options = options
        self._directories = directories
        self._work = "views"
        self._repeats = repeats
        self.service = SparkService(options)
        self._start_at = 0.0  # Spark is not started again before
        self._cancellations: WeakSet[Cancellation] = WeakSet()  # of dataflows
        self._here: DuckDbEngine | None = None
        self._here_lock = Lock()
        self.service.begin()

    @property
    def _spark(self) -> Any:
        """Return the session, of another JVM if the last one has ended."""
        return self.service.session()

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
        """Begin to replace a JVM that has ended, has not started, or in which Spark has stopped.

        State is in files and in this process, so dataflows go on meanwhile by what they compute
        here. What needs a job waits for the JVM, or is repeated on it.
        """
        try:
            self.service.check()
            if self.service.is_running or self.service.is_beginning:
                return
            why = "it did not start"
        except Unavailable as error:
            why = error.message
        if time.monotonic() >= self._start_at:
            self._start_at = time.monotonic() + START_SECONDS
            logger.warning("Spark is started again", extra={"why": why})
            self.service.begin()

    def close(self) -> None:
        """End what dataflows compute, and leave the session to other users in the process.

        `stop_spark` ends it.
        """
        for cancellation in list(self._cancellations):
            cancellation.cancel()
        if self._here is not None:
            self._here.close()

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time."""
        try:
            return super().evaluate(relation, inputs, as_of, cancellation, max_bytes)
        except Exception as error:
            if not self._is_to_be_repeated(error):
                raise
        return super().evaluate(relation, inputs, as_of, cancellation, max_bytes)

    def evaluate_parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation,
        max_bytes: int | None = None,
        *,
        may_fail: bool = True,
        extent: Extent = ALL_ROWS,
    ) -> Generator[pa.Table, None, None]:
        """Yield the rows of `relation` as of a time, part by part: at least one.

        Raises Unavailable if the JVM ends after the first.
        """
        arguments = relation, inputs, as_of, cancellation, max_bytes
        begun = False
        try:
            for part in super().evaluate_parts(*arguments, may_fail=may_fail, extent=extent):
                begun = True
                yield part
            return
        except Exception as error:
            if not self._is_to_be_repeated(error):
                raise
            if begun:
                raise Unavailable("Spark ended while it sent the answer") from error
        yield from super().evaluate_parts(*arguments, may_fail=may_fail, extent=extent)

    def _is_to_be_repeated(self, error: Exception) -> bool:
        """Whether an evaluation failed as its JVM has ended."""
        if not self._repeats or isinstance(error, QueryCanceled):
            return False
        try:
            self.service.check()
        except Unavailable as how:
            extra = {"why": how.message, "error": repr(error)}
            logger.warning("an evaluation is repeated on another JVM", extra=extra)
            return True
        return False

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
        jobs = partial(self._jobs, f"{self._work} #dataflow{number}")
        return SparkStore(self._new_session, scratch, options.shuffle_partitions, jobs)

    def _jobs(
        self, group: str, session: Any, cancellation: Cancellation
    ) -> AbstractContextManager[None]:
        return self.service.group(session, group, cancellation)

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
        options = self._options
        steps = LocalSteps(
            self._local, options.step_bytes, options.hydrate_bytes, self._directories
        )
        store = self._store(next(self._numbers))
        self._cancellations.update((steps.cancellation, store.cancellation))
        return SparkDataflow(plan, store, as_of, steps)

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
        dataflow = self._dataflow(
            differentiate(plans_of(relation).all, relation), description.as_of
        )
        assert isinstance(dataflow, SparkDataflow)
        try:
            dataflow.load(saved)
        except BaseException:
            dataflow.close()
            raise
        return dataflow
