"""Spark as an engine: a dataflow's state in Parquet files, a job for each statement.

Its dataflows are saved in checkpoints (`checkpoint/engine.py`), file by file, and share nothing.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from foreshore.compute.bulk.engine import BulkEngine
from foreshore.compute.bulk.evaluate import plans_of
from foreshore.compute.bulk.session import Session
from foreshore.compute.bulk.spark_dataflow import SparkDataflow
from foreshore.compute.bulk.spark_sql import SparkSqlSession, Tuning, faults
from foreshore.compute.bulk.spark_store import SparkStore
from foreshore.compute.checkpoint.engine import Shared
from foreshore.compute.checkpoint.state import Mismatch, Reader
from foreshore.compute.delta.differentiate import TickPlan, differentiate
from foreshore.compute.delta.tick import TickDataflow
from foreshore.compute.engine import Cancellation, Dataflow
from foreshore.compute.protocol import DataflowDescription, StageStatus
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.service import SparkService
from foreshore.expr.recursion import has_recursion
from foreshore.expr.temporal import has_temporal_filter

logger = logging.getLogger(__name__)


class SparkEngine(BulkEngine):
    """An engine over this process's Spark; a `SavingEngine`."""

    name = "spark"

    def __init__(self, options: SparkOptions) -> None:
        super().__init__()
        self._options = options
        self.service = SparkService(options)
        self._spark = self.service.session()

    def stages(self, work: str = "views and queries") -> tuple[StageStatus, ...]:
        """Return the stages of the jobs that run, which are for some work; it asks the JVM."""
        try:
            found = self.service.progress()
        except Exception as error:  # the JVM ends; whoever works with it notices
            logger.info("Spark does not tell its progress", extra={"why": repr(error)})
            return ()
        return tuple(
            StageStatus(work, s.job, s.stage, s.name, s.tasks, s.active, s.done, s.failed)
            for s in found
        )

    def check(self) -> None:
        """Raise Unavailable if the JVM has ended, or Spark in it has stopped."""
        self.service.check()

    def close(self) -> None:
        """Leave the session to other users in the process; `stop_spark` ends it."""

    @contextmanager
    def _session(self, number: int, cancellation: Cancellation) -> Iterator[Session]:
        """Yield a session whose jobs `cancellation` stops."""
        with faults(cancellation):
            session = SparkSqlSession(self._spark.newSession(), self._bulk)
        try:
            group = self.service.group(self._spark, f"evaluation {number}", cancellation)
            with self._running_until_done(cancellation), faults(cancellation), group:
                yield session
        finally:
            session.close()

    def _store(self, number: int) -> SparkStore:
        scratch = self._options.scratch / f"dataflow{number}"
        return SparkStore(self._spark.newSession(), scratch, self._bulk)

    def _dataflow(self, plan: TickPlan, as_of: int) -> TickDataflow:
        return SparkDataflow(plan, self._store(next(self._numbers)), as_of)

    @property
    def _bulk(self) -> Tuning:
        """Return how large jobs run: by default with two partitions for each core."""
        parallelism = self._spark.sparkContext.defaultParallelism
        return Tuning(self._options.shuffle_partitions or 2 * parallelism)

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
