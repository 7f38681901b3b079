"""The engine of a replica whose dataflows are spread over several workers.

The replica's own process keeps frontiers and queues, and answers peeks; it has no rows itself. A
step goes to all workers with a share of the changes each, and is done when all have done it. What
they put out is gathered if a shard or a subscriber wants it.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from msgspec.structs import replace as replace_struct

from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.engine import (
    ERRORS,
    ArrangementSize,
    Cancellation,
    Dataflow,
    Engine,
    Input,
    empty_output,
    output_schema,
)
from foreshore.compute.flow.build import Builder
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import batch_sizing_of, operators_of, placed_by
from foreshore.compute.flow.index import index_key
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.peers import can_be_shared
from foreshore.compute.flow.spread_hydration import groups_in_bulk
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.inputs import conform
from foreshore.compute.linear_dataflow import is_linear
from foreshore.compute.memory_limit import MemoryBudget, MemoryLimitExceeded
from foreshore.compute.merged_times import MergedTimes
from foreshore.compute.output import IndexRows, Output
from foreshore.compute.over_engine import OverEngine
from foreshore.compute.protocol import DataflowDescription, IndexExport, OperatorWork
from foreshore.compute.workers.index import GatheredIndex, OwnersOf
from foreshore.compute.workers.messages import (
    Cancel,
    Close,
    DataflowReport,
    Fetch,
    GroupsShare,
    Hydrate,
    IndexWanted,
    Reply,
    Report,
    Share,
    Step,
)
from foreshore.compute.workers.owners import Owners, possible_keys
from foreshore.compute.workers.pool import Answer, Pool
from foreshore.errors import DatabaseError, OutOfMemory, QueryCanceled
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.lowered import check_lowered
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.processes.transport import Tables
from foreshore.types import ColumnType, arrow_type
from foreshore.update import Timestamp, encode_schema

logger = logging.getLogger(__name__)

REPORT_SECONDS = 4.0  # between two reports of the workers


class WorkersEngine(OverEngine[Engine]):
    """An engine whose dataflows are operators of several workers; `bulk` has what they have not."""

    def __init__(self, bulk: Engine, pool: Pool) -> None:
        super().__init__(bulk)
        self._pool = pool
        self._numbers = itertools.count(1)
        self._reports: dict[int, list[tuple[int, DataflowReport]]] = {}
        self._shared: tuple[ArrangementSize, ...] = ()
        self._ended = threading.Event()
        self.report()  # when all workers have started
        threading.Thread(target=self._follow, name="reports", daemon=True).start()

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow, of the bulk engine if it is linear, or a part has no operator."""
        if is_linear(description.relation) and not _has_own_indexes(description):
            return self._engine.create(description, schemas)
        try:
            sizing = _batch_sizing(description)
        except Unsupported as error:
            logger.info("a dataflow is left to the bulk engine", extra={"cause": str(error)})
            return self._engine.create(description, schemas)
        return SpreadDataflow(next(self._numbers), description, self, self._pool, sizing)

    def check(self) -> None:
        """Raise Unavailable if a worker has ended, or the bulk engine is lost."""
        self._pool.check()
        super().check()

    @property
    def processes(self) -> Sequence[int]:
        """The ids of the workers' processes."""
        return [each.pid for each in self._pool.processes]

    def sizes(self) -> Iterator[ArrangementSize]:
        """Return the sizes of what dataflows share, worker by worker."""
        yield from self._shared
        yield from super().sizes()

    def reports_of(self, dataflow: int) -> Sequence[tuple[int, DataflowReport]]:
        """Return the last reports about a dataflow, with their workers."""
        return self._reports.get(dataflow, ())

    def report(self) -> None:
        """Ask the workers for sizes and work."""
        reports: dict[int, list[tuple[int, DataflowReport]]] = {}
        shared: list[ArrangementSize] = []
        for worker, (reply, _) in enumerate(
            self._pool.ask_each(Report(0), range(self._pool.count))
        ):
            shared += (replace(size, worker=worker) for size in reply.shared)
            for each in reply.reports:
                reports.setdefault(each.dataflow, []).append((worker, each))
        self._reports, self._shared = reports, tuple(shared)

    def _follow(self) -> None:
        while not self._ended.wait(REPORT_SECONDS):
            try:
                self.report()
            except DatabaseError:
                return  # the workers are lost

    def close(self) -> None:
        """End the workers."""
        self._ended.set()
        self._pool.close()
        super().close()


class SpreadOutput:
    """The output of a step, which the workers have until the next one."""

    def __init__(
        self,
        fetch: Callable[[], list[Tables]],
        columns: tuple[ColumnType, ...],
        rows: int,
        errors: int,
    ) -> None:
        self._fetch = fetch
        self._columns = columns
        self._row_count = rows
        self._error_count = errors

    @property
    def count(self) -> int:
        """Return the number of updates."""
        return self._row_count + self._error_count

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.count

    @cached_property
    def _tables(self) -> list[Tables]:
        return self._fetch()

    @property
    def rows(self) -> pa.Table:
        """Return the updates of the rows; asks the workers."""
        if not self._row_count:
            return empty_output(self._columns)
        schema = output_schema(self._columns)
        return pa.concat_tables([conform(tables[0], schema) for tables in self._tables])

    @property
    def errors(self) -> pa.Table:
        """Return the updates of the errors; asks the workers if there are any."""
        if not self._error_count:
            return empty_output(ERRORS)
        schema = output_schema(ERRORS)
        return pa.concat_tables([conform(tables[1], schema) for tables in self._tables])


class SpreadDataflow:
    """A dataflow of all workers, or of one of them if it cannot be shared."""

    def __init__(
        self,
        number: int,
        description: DataflowDescription,
        engine: WorkersEngine,
        pool: Pool,
        sizing: BatchSizing | None,
    ) -> None:
        self.batch_sizing = sizing
        self._number = number
        self._description = description
        self._columns = columns_of(description.relation)
        self._engine = engine
        self._pool = pool
        self._attempt = 0
        self._indexes: dict[GlobalId, GatheredIndex] = {}
        self._next_due: Timestamp | None = None
        self._budget = MemoryBudget(None)
        self._cancellation = Cancellation()
        # Of those that cannot be shared each worker gets some.
        shared = can_be_shared(description.relation)
        self._workers = tuple(range(pool.count)) if shared else (number % pool.count,)

    # --- steps

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute the output as of the description's `as_of`."""
        self._attempt += 1
        shares = []
        tables: list[list[pa.Table]] = [[] for _ in self._workers]
        for id, input in inputs.items():
            schema = encode_schema(input.schema)
            shares.append(Share(id, schema, input.files, len(input.tail)))
            for table in input.tail:
                for mine, part in zip(tables, self._parts(table), strict=True):
                    mine.append(part)
        groups = []
        for number, parts in self._groups(inputs):
            groups.append(GroupsShare(number, len(parts)))
            for part in parts:
                for mine, share in zip(tables, self._parts(part), strict=True):
                    mine.append(share)
        wanted = tuple(IndexWanted(id, index.since) for id, index in self._indexes.items())
        request = Hydrate(
            0, self._number, self._attempt, self._description, tuple(shares), wanted,
            len(self._workers) == 1, self._limit, tuple(groups),
        )  # fmt: skip
        output = self._stepped(request, tables)
        self._engine.report()
        return output

    def _groups(self, inputs: Mapping[GlobalId, Input]) -> Iterator[tuple[int, list[pa.Table]]]:
        """Yield the groups with which reductions begin, by the number of the operator."""
        if len(self._workers) == 1:
            return
        description = self._description
        operators = operators_of(description, len(self._workers))
        for number, plan in groups_in_bulk(operators, inputs).items():
            read = {id: inputs[id] for id in sources_of(plan.rows)}
            types = [column.type for column in columns_of(plan.bulk.plan)]
            parts, size = [], 0
            for part in self._engine.evaluate_parts(
                plan.rows, read, description.as_of, self._cancellation, may_fail=False
            ):
                size += part.nbytes
                self._budget.check(size)
                arrays = [
                    column.cast(arrow_type(type))
                    for column, type in zip(part.columns, types, strict=False)
                ]
                names = [f"c{i}" for i in range(part.num_columns)]
                parts.append(pa.table([*arrays, part.column(len(arrays))], names=names))
            yield number, parts

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper), each at its exact time."""
        self._attempt += 1
        changed = tuple(deltas)
        tables: list[list[pa.Table]] = [[] for _ in self._workers]
        for table in deltas.values():
            for mine, part in zip(tables, self._parts(table), strict=True):
                mine.append(part)
        since = {id: index.since for id, index in self._indexes.items()}
        request = Step(0, self._number, self._attempt, lower, upper, changed, since, self._limit)
        return self._stepped(request, tables)

    def _parts(self, table: pa.Table) -> list[pa.Table]:
        """Return each worker's share of updates: any will do, as operators exchange them."""
        count, rows = len(self._workers), table.num_rows
        ends = [rows * i // count for i in range(count + 1)]
        return [table.slice(ends[i], ends[i + 1] - ends[i]) for i in range(count)]

    @property
    def _limit(self) -> int | None:
        limit = self._budget.limit
        return None if limit is None else limit // len(self._workers)

    def _stepped(self, request: Any, tables: Sequence[Sequence[pa.Table]]) -> Output:
        if self._budget.refusal is not None:
            raise self._budget.refusal
        replies = [reply for reply, _ in self._asked(request, tables)]
        due = [reply.next_due for reply in replies if reply.next_due is not None]
        self._next_due = min(due, default=None)
        for id, index in self._indexes.items():
            sizes = zip(*(reply.indexes[id] for reply in replies), strict=True)
            updates, runs, size = map(sum, sizes)
            index.size = updates, runs, size
        rows, errors = sum(r.rows for r in replies), sum(r.errors for r in replies)
        return SpreadOutput(self._fetch, self._columns, rows, errors)

    def _fetch(self) -> list[Tables]:
        """Return the rows and errors that each worker has put out last."""
        return [tables for _, tables in self._asked(Fetch(0, self._number))]

    def _asked(self, request: Any, tables: Sequence[Sequence[pa.Table]] = ()) -> list[Answer]:
        """Return the workers' answers; raises what has failed, and loses them if only some did."""
        answers = self._pool.ask_each(request, self._workers, tables)
        failed = [reply for reply, _ in answers if reply.failure is not None]
        if not failed:
            return answers
        if len(failed) < len(answers) and isinstance(request, Hydrate | Step):
            logger.error("workers do not agree on a step", extra={"dataflow": self._description.id})
            self._pool.lose()
        raise self._error(next((each for each in failed if not each.by_peer), failed[0]))

    def _error(self, reply: Reply) -> Exception:
        """Return the error of a failed reply."""
        failure = reply.failure
        assert failure is not None
        if reply.cancelled:
            return QueryCanceled()
        if reply.out_of_memory:
            if self._budget.refusal is None and self._budget.limit is not None:
                with suppress(MemoryLimitExceeded):
                    self._budget.check(self._budget.limit + 1)
            return self._budget.refusal or OutOfMemory(failure.message)
        return DatabaseError(
            failure.message, sqlstate=failure.sqlstate, detail=failure.detail, hint=failure.hint
        )

    def small_window(self, changed: Sequence[GlobalId]) -> int:
        """Return 0: a step waits for workers, so it is not for the event loop."""
        return 0

    def limit_memory(self, budget: MemoryBudget) -> None:
        """Let the workers check a budget, each its share."""
        self._budget = budget

    def cancel(self) -> None:
        """Make a call that is under way raise soon."""
        self._cancellation.cancel()
        self._pool.tell(Cancel(self._number))

    def due(self, upper: int) -> int:
        """Return 1 if an update is scheduled before `upper`."""
        return int(self._next_due is not None and self._next_due < upper)

    def advanced(self, upper: int) -> None:
        """Do nothing: the next step tells the workers."""

    def allow_compaction(self, since: int) -> None:
        """Do nothing: state is compacted to the beginning of each window."""

    def merge_times(self, merged: MergedTimes) -> None:
        """Do nothing: each worker keeps all times."""

    def index(self, export: IndexExport, since: Timestamp) -> IndexRows | None:
        """Return an index of the workers, None if its key is not some of the rows' words."""
        if index_key(export.key, layout_of(self._columns)) is None:
            return None
        as_of = self._description.as_of
        owners = self._owners(export)
        found = GatheredIndex(export, self._columns, self._read, owners, as_of, since)
        self._indexes[export.id] = found
        return found

    def _owners(self, export: IndexExport) -> OwnersOf:
        """Return what finds the workers that may have rows under keys of an index."""
        types = [type_of(scalar) for scalar in export.key]
        if len(self._workers) == 1 or placed_by(self._description) != export:
            return lambda keys: dict.fromkeys(self._workers, possible_keys(keys, types))
        pool = self._pool
        return Owners(types, pool.count, pool.seed, pool.strings_seed).by_owner

    def _read(self, request: Any, shares: Mapping[int, Tables] | None) -> list[pa.Table]:
        """Return the answers of some workers, or all, to a read of an index."""
        request = replace_struct(request, dataflow=self._number)
        if shares is None:
            shares = dict.fromkeys(self._workers, ())
        answers = self._pool.ask_each(request, tuple(shares), tuple(shares.values()))
        for reply, _ in answers:
            if reply.failure is not None:
                raise self._error(reply)
        return [answer[0] for _, answer in answers]

    @property
    def maintenance_due(self) -> bool:
        """Return False: the workers merge by themselves."""
        return False

    def maintain(self) -> bool:
        """Do nothing."""
        return False

    # --- introspection

    def sizes(self) -> Iterator[ArrangementSize]:
        """Yield the sizes of all workers' arrangements, as they were last reported."""
        for worker, report in self._engine.reports_of(self._number):
            for size in report.sizes:
                yield replace(size, worker=worker)

    def work(self) -> Iterator[OperatorWork]:
        """Yield the work of each operator, of all workers, as it was last reported."""
        reports = [report.work for _, report in self._engine.reports_of(self._number)]
        for works in zip(*reports, strict=False):
            yield replace_struct(
                works[0],
                hydration_ns=sum(each.hydration_ns for each in works),
                step_ns=sum(each.step_ns for each in works),
                merge_ns=sum(each.merge_ns for each in works),
                rows_in=sum(each.rows_in for each in works),
                rows_out=sum(each.rows_out for each in works),
            )

    def close(self) -> None:
        """Free what the workers have."""
        self._pool.tell(Close(self._number))


def _batch_sizing(description: DataflowDescription) -> BatchSizing | None:
    """Return how a dataflow sizes its windows; raises Unsupported if it has no operators."""
    check_lowered(description.relation)
    builder = Builder(Collections(Interner(), 0), description.as_of)
    builder.output(description.relation)
    return batch_sizing_of(builder.operators)


def _has_own_indexes(description: DataflowDescription) -> bool:
    """Whether all exports are indexes that the workers keep."""
    layout = layout_of(columns_of(description.relation))
    return all(
        isinstance(export, IndexExport) and index_key(export.key, layout) is not None
        for export in description.exports
    )
