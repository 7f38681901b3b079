"""Bulk work of a replica by the cheaper engine: DuckDB of its process, or Spark.

One engine is made for each dataflow, which asks it for the bulk statements of its hydration and for
no more. Each statement reads its inputs as of the dataflow's time, so that it does not matter which
engine answers: the dataflow goes on from exactly that time. Large queries have engines of the same
kind. What Spark does not answer, because it fails or is not there, DuckDB does.
"""

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, closing
from typing import Protocol

import pyarrow as pa

from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.engine import ALL_ROWS, Cancellation, Evaluator, Extent, Input
from foreshore.compute.flow.bulk_hydration import RunArrays
from foreshore.compute.hydrate.policy import Machines, Volume, choose
from foreshore.compute.hydrate.run_tasks import RunForm, is_without_strings, pieces_of
from foreshore.compute.hydrate.runs import write_run
from foreshore.compute.hydrate.volume import pruned, volume_of
from foreshore.compute.over_engine import OverEngine
from foreshore.compute.protocol import BulkChoice, HydrationStatus, StageStatus
from foreshore.errors import DataError, InternalError, QueryCanceled
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Relation
from foreshore.extras import is_spark_installed
from foreshore.hydrate_mode import HydrateMode
from foreshore.ids import GlobalId

logger = logging.getLogger(__name__)


class Lender(Protocol):
    """Lends an engine that may not be up yet."""

    @property
    def is_up(self) -> bool:
        """Whether it can be used at once."""
        ...

    def close(self) -> None:
        """End the engine, if it was started."""
        ...

    def lent(self, work: str) -> AbstractContextManager[Evaluator]:
        """Yield the engine for some work, started if need be; raises if it does not start."""
        ...

    def stages(self) -> tuple[StageStatus, ...]:
        """Return what the engine works on at this moment. It may wait for another process."""
        ...


class BulkEngines:
    """The bulk engines of an embedded replica: DuckDB in its process, and Spark."""

    def __init__(
        self, local: Evaluator, spark: Lender, mode: HydrateMode, machines: Machines
    ) -> None:
        self._local = local
        self._spark = spark
        self._mode = mode
        self._machines = machines
        self._made: dict[GlobalId, ChoosingEngine] = {}
        self._left: set[GlobalId] = set()  # dataflows that Spark has left halfway

    def for_hydration(self, id: GlobalId, mode: HydrateMode | None) -> "ChoosingEngine":
        """Return the engine that hydrates a dataflow; its own `mode` goes first."""
        mode = "local" if id in self._left else mode or self._mode

        def is_for_spark(volume: Volume) -> bool:
            return choose(mode, volume, self._machines, started=self._spark.is_up).spark

        def leave() -> None:
            self._left.add(id)

        made = ChoosingEngine(
            self._local, self._spark, is_for_spark, f"hydration of {id}", leave=leave
        )
        self._made[id] = made
        return made

    def for_query(self, choice: BulkChoice) -> Evaluator:
        """Return the engine that evaluates a query for which the session has chosen so."""
        if choice.engine == "duckdb":
            return self._local

        def is_for_spark(volume: Volume) -> bool:
            large = volume.bytes >= choice.threshold and is_spark_installed()
            return choice.engine == "spark" or large

        return ChoosingEngine(self._local, self._spark, is_for_spark, choice.work)

    def hydrations(self, id: GlobalId) -> tuple[HydrationStatus, ...]:
        """Return what each engine has done to hydrate a dataflow. Any thread may call it."""
        made = self._made.get(id)
        return () if made is None else tuple(made.done.values())

    def forget_hydrations(self, id: GlobalId) -> None:
        """Forget that of a dataflow that was dropped. Any thread may call it."""
        self._made.pop(id, None)
        self._left.discard(id)

    def stages(self) -> tuple[StageStatus, ...]:
        """Return what Spark works on. It may wait for the JVM."""
        return self._spark.stages()

    def close(self) -> None:
        """End Spark, if it was started."""
        self._spark.close()

    def forget(self) -> None:
        """Forget all dataflows, which were those of another database."""
        self._made.clear()
        self._left.clear()


class ChoosingEngine(OverEngine[Evaluator]):
    """An engine for some `work` of one thread, which `is_for_spark` chooses by what is read.

    `leave` is called if Spark fails when a part of its answer has been used already.
    """

    def __init__(
        self,
        local: Evaluator,
        spark: Lender,
        is_for_spark: Callable[[Volume], bool],
        work: str,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(local)
        self.done: dict[str, HydrationStatus] = {}  # by engine
        self._spark = spark
        self._is_for_spark = is_for_spark
        self._work = work
        self._leave = leave
        self._note: str | None = None  # why DuckDB does what was meant for Spark

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        cancellation: Cancellation | None = None,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of `relation` as of a time, consolidated."""

        def whole(engine: Evaluator) -> Generator[pa.Table, None, None]:
            yield engine.evaluate(relation, read, as_of, cancellation, max_bytes)

        read = pruned(relation, inputs, as_of)
        (found,) = self._parts(whole, volume_of(relation, read))
        return found

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
        """Yield the rows of `relation` as of a time, part by part."""

        def parts(engine: Evaluator) -> Generator[pa.Table, None, None]:
            return engine.evaluate_parts(
                relation,
                read,
                as_of,
                cancellation,
                max_bytes,
                may_fail=may_fail,
                extent=extent,
            )

        read = pruned(relation, inputs, as_of)
        yield from self._parts(parts, volume_of(relation, read))

    def sorted_run(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        key: tuple[int, ...],
        seed: int,
        as_of: int,
        cancellation: Cancellation,
    ) -> RunArrays | None:
        """Return the rows as of a time as a run by the words at `key`, None if Spark does not."""
        columns = columns_of(relation)
        read = pruned(relation, inputs, as_of)
        volume = volume_of(relation, read)
        if not is_without_strings(columns) or not self._is_for_spark(volume):
            return None
        started = time.monotonic()
        try:
            with self._spark.lent(self._work) as spark:
                if not isinstance(spark, SparkEngine):
                    return None
                bits = pieces_of(
                    volume.rows, spark.service.session().sparkContext.defaultParallelism
                )
                form = RunForm(columns, key, seed, as_of, bits)
                run = write_run(spark, relation, read, form, cancellation)
        except QueryCanceled:
            raise
        except Exception as error:
            self._failed(error)
            return None
        self._count("spark", volume, len(run.hashes), time.monotonic() - started)
        return run

    def _parts(
        self, ask: Callable[[Evaluator], Generator[pa.Table, None, None]], volume: Volume
    ) -> Generator[pa.Table, None, None]:
        """Yield what the engine that is chosen for a volume gives when it is asked."""
        if self._is_for_spark(volume):
            began = False
            try:
                with self._spark.lent(self._work) as spark:
                    for part in self._counted("spark", volume, ask(spark)):
                        began = True
                        yield part
                return
            except (QueryCanceled, DataError, InternalError):
                raise
            except Exception as error:
                if began:
                    self._leave()
                    raise
                self._failed(error)
        yield from self._counted("duckdb", volume, ask(self._engine))

    def _failed(self, error: Exception) -> None:
        """Note that DuckDB takes over."""
        first = (str(error).strip() or repr(error)).splitlines()[0]
        self._note = f"Spark: {first}"
        logger.warning(
            "DuckDB does what Spark failed at", extra={"work": self._work}, exc_info=error
        )

    def _counted(
        self, engine: str, volume: Volume, parts: Generator[pa.Table, None, None]
    ) -> Generator[pa.Table, None, None]:
        """Yield parts, and count them and the time until the last one."""
        started, rows = time.monotonic(), 0
        with closing(parts):
            for part in parts:
                rows += part.num_rows
                yield part
        self._count(engine, volume, rows, time.monotonic() - started)

    def _count(self, engine: str, volume: Volume, rows: int, seconds: float) -> None:
        """Count a statement that an engine has evaluated."""
        before = self.done.get(engine) or HydrationStatus(engine)
        self.done[engine] = HydrationStatus(
            engine,
            before.statements + 1,
            before.updates + volume.rows,
            before.bytes + volume.bytes,
            before.rows + rows,
            before.ms + round(1000 * seconds),
            self._note if engine == "duckdb" else None,
        )
