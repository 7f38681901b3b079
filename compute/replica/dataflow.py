"""A dataflow on a replica: its input queues, frontier, exports and state.

    pending -> hydrating -> running          failed: the last attempt failed and is retried later
                                             stalled: it took too much memory and has freed it

Each import has a queue of updates received. A *window* [frontier, upper) is taken from all queues
at once. `upper` is the least of their uppers, or less if there are more times than one step should
have (`compute/batch_sizing.py`). The engine turns the window into output updates, which go
to the exports: into arrangements, or to the controller as messages. A window without changes only
advances the frontier.

Methods marked "on the worker" run on the worker's thread, all others on the event loop. While
`busy`, the worker owns the dataflow, and the loop must not touch the window, frontier and
arrangements.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from time import thread_time_ns

import msgspec
import numpy as np
import pyarrow as pa

from foreshore.compute import merged_times
from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.arrange.table_index import table_index
from foreshore.compute.checkpoint.state import State, Writer
from foreshore.compute.engine import (
    ERRORS,
    Dataflow,
    Engine,
    empty_output,
    output_schema,
    rows_schema,
    steps_told,
)
from foreshore.compute.inputs import Contents, conform
from foreshore.compute.memory_limit import MemoryBudget
from foreshore.compute.merged_times import MergedTimes
from foreshore.compute.output import Output, TableOutput
from foreshore.compute.protocol import (
    ArrangementStatus,
    DataflowDescription,
    DataflowStatus,
    Failure,
    IndexExport,
    OperatorStatus,
    SubscribeExport,
    SubscribeResponse,
)
from foreshore.compute.replica.export_messages import ExportMessages, Sent
from foreshore.compute.replica.index_subscribers import IndexSubscribers
from foreshore.compute.replica.indexes import Index, arrangement_status
from foreshore.compute.replica.queues import Part, Window, at_or_after, before, import_queue
from foreshore.compute.replica.resume import Resume, Resumed
from foreshore.compute.replica.turns import Turns
from foreshore.errors import OutOfMemory
from foreshore.expr.columns import columns_of
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import Timestamp

FIRST_STEPS = 2  # are made on the worker, where they may have something to compile
WEIGHED_SECONDS = 0.1  # between two looks at the memory after small steps
ALL_TIMES = 1 << 62
SMALL_STEP_MS = 5.0  # a dataflow whose last step took longer steps on the worker

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Times:
    hydration_ms: int = 0
    steps: int = 0
    step_ms: float = 0.0
    stepped_at: float = 0.0
    began: float = 0.0  # start of the current hydration or step
    # CPU of the threads at work, in nanoseconds.
    hydration_ns: int = 0
    step_ns: int = 0
    merge_ns: int = 0


class DataflowState:
    """The state of one dataflow."""

    def __init__(
        self,
        description: DataflowDescription,
        imports: Mapping[GlobalId, Contents],
        persisted: Mapping[GlobalId, Contents],
        number: int = 0,
    ) -> None:
        self.description = description
        self.state = "pending"
        self.failure: Failure | None = None  # the last one, until success
        self.failures = 0
        self.busy = self.dropped = self.merging_due = False
        self.times = _Times()
        self.queues = {
            id: import_queue(c.snapshot.upper, description.refresh) for id, c in imports.items()
        }
        self._contents: Mapping[GlobalId, Contents] = imports
        self._messages = ExportMessages(description, persisted, number)
        self._columns = columns_of(description.relation)
        self.turns = Turns(description.relation)
        self._dataflow: Dataflow | None = None
        self._window: Window | None = None
        self._stepped: Output | None = None  # the engine's output for the window
        self._changed: Sent | None = None  # the messages for it
        self._since: Timestamp | None = None  # to be passed to the engine
        self._merged = merged_times.NONE  # the loop replaces it as a whole
        self.budget = MemoryBudget(description.memory_limit)
        self._weighed_at = 0.0  # when its memory was last compared with its limit
        as_of = description.as_of
        self.frontier = as_of  # all before it is processed, once hydrated
        self.awaited = as_of  # somebody waits until the frontier is beyond it
        self.settled = as_of  # no output was put out at this time or later
        self.exact_from = as_of  # times before were merged, or are not known
        self.indexes = {
            export.id: Index(
                export, table_index(export.id, self._columns, export.key, as_of), as_of
            )
            for export in description.exports
            if isinstance(export, IndexExport)
        }
        self.errors = Arrangement(description.id, rows_schema(ERRORS), (), lambda _: [], as_of)
        self.exports = {export.id for export in description.exports}
        self.subscribers = IndexSubscribers(self.indexes)

    @property
    def id(self) -> GlobalId:
        """Return the dataflow's id."""
        return self.description.id

    @property
    def importable(self) -> Timestamp:
        """Return the least upper of the imports; without imports, the end of time."""
        least: Timestamp = (1 << 63) - 1
        for queue in self.queues.values():
            least = min(least, queue.upper)
        return least

    @property
    def indexes_ready(self) -> bool:
        """Whether the arrangements hold the output as of `as_of`."""
        return self.frontier > self.description.as_of

    # --- hydration

    def begin_hydration(self) -> None:
        """Mark the dataflow as hydrating."""
        self.state = "hydrating"
        self.times.began = time.monotonic()

    def hydrate(self, engine: Engine, resume: Resume | None = None) -> Sent:
        """On the worker: compute the output as of `as_of` and return the messages for it.

        `resume` gives the state in which the dataflow can begin instead, if there is one.
        """
        started, cpu = time.monotonic(), thread_time_ns()
        schemas = {id: contents.schema for id, contents in self._contents.items()}
        if self._dataflow is not None:  # of a failed attempt
            self._dataflow.close()
            self._dataflow = None
        resumed = None
        if resume is not None:
            resumed = resume(self.description, self._contents, self._messages.shards)
        if resumed is not None:
            return self._resumed(resumed, started, cpu)
        self._dataflow = engine.create(self.description, schemas)
        self._dataflow.limit_memory(self.budget)
        for index in list(self.indexes.values()):
            index.rows = self._dataflow.index(index.export, index.since) or index.rows
        with ExitStack() as reading:
            inputs = {id: reading.enter_context(c.input()) for id, c in self._contents.items()}
            output = self._conformed(self._dataflow.hydrate(inputs))
        as_of = self.description.as_of
        later = {id: contents.after(as_of) for id, contents in self._contents.items()}
        sent = self._messages.initial(output)
        self._insert(output, as_of + 1)
        self.budget.check(self.memory)
        self.frontier = self.settled = as_of + 1
        self._precede(as_of + 1, {id: pa.concat_tables(each) for id, each in later.items() if each})
        self._contents = {}
        self._messages.persisted = {}
        self.times.hydration_ms = round(1000 * (time.monotonic() - started))
        self.times.hydration_ns += thread_time_ns() - cpu
        return sent

    def _resumed(self, resumed: Resumed, started: float, cpu: int) -> Sent:
        """Take a state over, advance it to `as_of`, and return the messages for it."""
        as_of = self.description.as_of
        self._dataflow, errors = resumed.dataflow, resumed.errors
        self._dataflow.limit_memory(self.budget)
        begin = resumed.upper
        frontier = max(begin, as_of + 1)
        self.settled = resumed.settled
        output = _nothing(self._columns)
        if begin <= as_of:
            deltas = {id: before(table, as_of + 1) for id, table in resumed.updates.items()}
            self._dataflow.merge_times(MergedTimes(((begin, as_of),)))  # nobody reads these
            if any(map(len, deltas.values())) or self._due(as_of + 1):
                output = self._conformed(self._dataflow.step(begin, as_of + 1, deltas))
            else:
                self._dataflow.advanced(as_of + 1)
            errors.insert(output.errors, as_of + 1)
            if not output.is_empty:
                self.settled = as_of + 1
        sent = self._messages.resumed(errors, frontier)
        self.errors = errors  # from now on the loop may compact them beyond the frontier
        for id, index in list(self.indexes.items()):
            index.rows = resumed.indexes[id]
        if begin <= as_of:
            self._insert(output, as_of + 1)
        self.frontier = frontier
        rest = {id: at_or_after(table, frontier) for id, table in resumed.updates.items()}
        self._precede(frontier, {id: table for id, table in rest.items() if table.num_rows})
        self._contents = {}
        self._messages.persisted = {}
        self.budget.check(self.memory)
        self.times.hydration_ms = round(1000 * (time.monotonic() - started))
        self.times.hydration_ns += max(thread_time_ns() - cpu, 1)
        return sent

    @property
    def is_savable(self) -> bool:
        """Whether the state can be saved now."""
        return (
            self.state == "running"
            and self.description.refresh is None  # else it begins at the next refresh
            and not self.busy
            and not self.dropped
            and self._window is None
            and not self._messages.corrections
            and isinstance(self._dataflow, State)
            and all(isinstance(index.rows, State) for index in self.indexes.values())
            and not any(isinstance(each, SubscribeExport) for each in self.description.exports)
        )

    @property
    def is_between_steps(self) -> bool:
        """Whether `save_words` can be called."""
        return (
            self.state in ("running", "failed")
            and not self.busy
            and not self.dropped
            and self._stepped is None
        )

    def save_words(self, to: Writer) -> None:
        """On the worker: write all rows that the engine holds, saved for no restart."""
        parts = {id: index.rows for id, index in self.indexes.items()}
        for name, part in (("dataflow", self._dataflow), *parts.items()):
            if isinstance(part, State):
                part.save(to.part(name))

    def save(self, to: Writer) -> None:
        """On the worker: write the state before `frontier`."""
        assert isinstance(self._dataflow, State)
        self._dataflow.save(to.part("dataflow"))
        for id, index in self.indexes.items():
            assert isinstance(index.rows, State)
            index.rows.save(to.part("indexes").part(id))
        self.errors.save(to.part("errors"))

    # --- steps

    def progress(self, upper: Timestamp) -> bool:
        """Advance the frontier to `upper` if no import changed before it; return whether it did."""
        if self._window is not None:
            return False  # a failed step is retried first
        for queue in self.queues.values():
            if queue.changes_before(upper):
                return False
        if self._messages.corrections and self._messages.corrects_before(upper):
            return False
        dataflow = self._dataflow
        if dataflow is not None and dataflow.due(upper):
            return False
        self.errors.advance(upper)
        for index in self.indexes.values():
            index.rows.advance(upper)
        if dataflow is not None:
            dataflow.advanced(upper)
        self.frontier = upper
        return True

    def _due(self, upper: Timestamp) -> int:
        """Return the number of updates scheduled before `upper`."""
        return self._dataflow.due(upper) if self._dataflow is not None else 0

    def begin_step(self) -> None:
        """Take the next window from the queues, unless one is waiting for a retry."""
        if self._window is None:
            merged = self._mergeable
            upper, times = self._paced(self.importable, merged)
            taken = {id: queue.take(upper) for id, queue in self.queues.items()}
            deltas = {id: pa.concat_tables(parts) for id, parts in taken.items() if parts}
            last = upper == self.importable
            self._window = Window(self.frontier, upper, deltas, times, last, merged)
        self.times.began = time.monotonic()

    def _paced(self, upper: Timestamp, merged: MergedTimes) -> tuple[Timestamp, int | None]:
        """Return the end of a window of a suitable size, and its number of times."""
        if self._dataflow is None or self._dataflow.batch_sizing is None:
            return upper, None
        most = self._dataflow.batch_sizing.times
        looked_at = most + 1 if not merged else ALL_TIMES
        found = [t for queue in self.queues.values() for t in queue.times(upper, looked_at)]
        if not found:
            return upper, 0
        times = np.unique(np.concatenate(found))
        begins = np.unique(merged.moved(times, upper), return_index=True)[1]
        if len(begins) <= most:
            return upper, len(begins)
        return int(times[begins[most]]), most

    def merge_times(self, lower: Timestamp, upper: Timestamp) -> None:
        """Note that no index is read from `lower` on and before `upper`."""
        self._merged = self._merged.beyond(self.frontier).with_range(lower, upper)

    @property
    def _mergeable(self) -> MergedTimes:
        """The times that the next step may merge: none if somebody gets each change."""
        if self.subscribers.ids or not all(
            isinstance(export, IndexExport) for export in self.description.exports
        ):
            return merged_times.NONE
        return self._merged

    def _give_back(self, window: Window) -> None:
        """On the worker: return the window to the queues."""
        self._precede(window.lower, window.deltas)
        self._window = None
        self.times.stepped_at = 0.0  # the next one does not wait for a tick

    def _precede(self, lower: Timestamp, updates: Mapping[GlobalId, pa.Table]) -> None:
        """On the worker: put updates at or beyond `lower` at the front of the queues.

        All or none of them: if memory is exhausted it is tried again.
        """
        parts = {id: Part.ordered(lower, table) for id, table in updates.items()}
        for id, part in parts.items():
            self.queues[id].precede(part)

    def step(self) -> Sent | None:
        """On the worker: process the window and return the messages for its output.

        None: nothing was done, and the next window will be smaller.
        """
        window = self._window
        assert window is not None
        assert self._dataflow is not None
        started, cpu = time.monotonic(), thread_time_ns()
        if self._since is not None:
            self._dataflow.allow_compaction(self._since)
            self._since = None
        self._dataflow.merge_times(window.merged)
        self.exact_from = max(self.exact_from, window.merged.end(window.upper))
        # After a failure only the missing part is repeated.
        if self._stepped is None and (window.deltas or self._due(window.upper)):
            self._stepped = self._paced_step(self._dataflow, window)
            if self._stepped is None:
                return None
        output = self._conformed(self._stepped or _nothing(self._columns))
        if self._changed is None:
            lower, upper = window.lower, window.upper
            if self._messages.corrections or not output.is_empty:
                self.settled = upper
            self._changed = [
                *self._messages.changes(output, lower, upper, self.exports),
                *self.subscribers.changes(output, lower, upper),
            ]
        sent = self._changed
        self._insert(output, window.upper)
        self.frontier = window.upper
        self._window = self._stepped = self._changed = None
        self.times.steps += 1
        ended = time.monotonic()
        # A dataflow that is behind does not wait for a tick.
        self.times.stepped_at = ended if window.last else 0.0
        self.times.step_ms = 1000 * (ended - started)
        self._weigh(ended)
        self.times.step_ns += thread_time_ns() - cpu
        return sent

    def _weigh(self, now: float) -> None:
        """On the worker: raise MemoryLimitExceeded if the state has become too large.

        Few small steps add little, so not every one is followed by it.
        """
        if (
            self.times.step_ms >= SMALL_STEP_MS
            or now > self._weighed_at + WEIGHED_SECONDS
            or self.budget.refusal is not None
        ):
            self._weighed_at = now
            self.budget.check(self.memory if self.budget.limit is not None else 0)

    @property
    def memory(self) -> int:
        """Return the bytes of its arrangements and indexes, without what dataflows share."""
        return sum(each.bytes for each in self.arrangement_status())

    def _paced_step(self, dataflow: Dataflow, window: Window) -> Output | None:
        """Return the output of a window, and adjust the batch size to the cost.

        None: memory was exhausted and the window was returned to the queues.
        """
        if dataflow.batch_sizing is None or not window.times:
            return dataflow.step(window.lower, window.upper, window.deltas)
        started = time.monotonic()
        try:
            output = dataflow.step(window.lower, window.upper, window.deltas)
        except OutOfMemory:
            dataflow.batch_sizing.exhausted(window.times)
            self._give_back(window)
            if dataflow.batch_sizing.times >= window.times:
                raise  # it cannot be smaller
            extra = {"dataflow": self.id, "times": window.times}
            logger.warning("a step did not fit in memory", extra=extra)
            return None
        dataflow.batch_sizing.stepped(window.times, time.monotonic() - started)
        return output

    def _insert(self, output: Output, upper: Timestamp) -> None:
        # errors first: a reader that sees rows up to a time must see errors up to it
        if self.errors.upper < upper:
            self.errors.insert(output.errors, upper)
        for index in list(self.indexes.values()):
            if index.rows.upper >= upper:
                continue
            if output.is_empty:
                index.rows.advance(upper)
            else:
                index.rows.insert_output(output, upper)

    def _conformed(self, output: Output) -> Output:
        """Return an engine's tables with the columns' names."""
        if not isinstance(output, TableOutput):
            return output
        return TableOutput(
            conform(output.rows, output_schema(self._columns)),
            conform(output.errors, output_schema(ERRORS)),
        )

    # --- subscribers to indexes

    @property
    def subscription_due(self) -> bool:
        """Whether a subscriber can be sent the initial contents."""
        return self._window is None and self.subscribers.due(self.frontier)

    def beginnings(self) -> Sent:
        """On the worker: return the initial contents for subscribers."""
        return self.subscribers.beginnings(self.errors, self.frontier)

    def wanted(self, sent: Sent) -> Sent:
        """Filter the worker's messages by the subscribers that are still there.

        Those that got their initial contents receive changes from now on.
        """
        self.subscribers.begun()
        return [
            (message, tables)
            for message, tables in sent
            if not isinstance(message, SubscribeResponse)
            or message.id in self.exports
            or message.id in self.subscribers.current
        ]

    @property
    def is_small_step(self) -> bool:
        """Whether the next step surely takes a few milliseconds at most."""
        dataflow = self._dataflow
        if (
            dataflow is None
            or self.turns.calls_python
            or self._window is not None
            or self._messages.corrections
            or self.times.steps < FIRST_STEPS
            or self.times.step_ms >= SMALL_STEP_MS
        ):
            return False
        due = dataflow.due(self.importable)
        changed = [id for id, queue in self.queues.items() if queue.pending or due]
        updates = sum(queue.pending for queue in self.queues.values())
        return updates + due <= dataflow.small_window(changed)

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return (
            self.errors.maintenance_due
            or (self._dataflow is not None and self._dataflow.maintenance_due)
            or any(index.rows.maintenance_due for index in self.indexes.values())
        )

    def maintain(self) -> bool:
        """On the worker: merge some runs; return whether there is more to do."""
        cpu = thread_time_ns()
        more = [index.rows.maintain() for index in list(self.indexes.values())]
        if self._dataflow is not None:
            more.append(self._dataflow.maintain())
        more.append(self.errors.maintain())
        self.times.merge_ns += thread_time_ns() - cpu
        return any(more)

    def add_refresh(self, time: Timestamp) -> None:
        """Let updates take effect at `time` too, which no import has passed."""
        for queue in self.queues.values():
            queue.add_refresh(time, self.frontier)

    # --- the end of things

    def allow_compaction(self, id: GlobalId, since: Timestamp | None) -> None:
        """Let history of export `id` before `since` be compacted; None: it was dropped."""
        if since is None:
            self.exports.discard(id)
            self.indexes.pop(id, None)
            self.subscribers.remove(id)
            self.dropped = not self.exports
            return
        index = self.indexes.get(id)
        if index is not None:
            index.rows.compact(since)
            index.since = max(index.since, since)
        held = min((i.since for i in self.indexes.values()), default=since)
        self.errors.compact(held)
        self._since = held

    def cancel(self) -> None:
        """Make the worker's call end soon, if it can."""
        if self._dataflow is not None:
            self._dataflow.cancel()

    def limit_memory(self, limit: int | None) -> None:
        """Change the limit; a stalled dataflow keeps the one that it has exceeded."""
        if self.state == "stalled":
            return
        self.description = msgspec.structs.replace(self.description, memory_limit=limit)
        self.budget.limit = limit

    def free(self) -> None:
        """On the worker: free all that a stalled dataflow has; it only keeps its exports."""
        self.close()
        as_of = self.description.as_of
        for id, index in list(self.indexes.items()):
            index.rows = table_index(id, self._columns, index.export.key, as_of)
        self.errors = Arrangement(self.id, rows_schema(ERRORS), (), lambda _: [], as_of)
        self.queues = {id: import_queue(as_of, self.description.refresh) for id in self.queues}
        self._window = self._stepped = self._changed = None
        self._contents = {}
        self._messages.forget()
        self.merging_due = False

    def close(self) -> None:
        """On the worker: free the engine's resources."""
        if self._dataflow is not None:
            self._dataflow.close()
            self._dataflow = None

    def status(self) -> DataflowStatus:
        """Return the dataflow's status report."""
        at_work = self.state == "hydrating" or self._window is not None
        busy_ms = round(1000 * (time.monotonic() - self.times.began)) if at_work else 0
        return DataflowStatus(
            self.id,
            self.state,
            self.times.hydration_ms,
            self.times.steps,
            self.times.step_ms,
            busy_ms,
            self.turns.notice if self.failure is None else self.failure.message,
            tuple(index.status(id) for id, index in self.indexes.items()),
            None if self.failure is None else self.failure.sqlstate,
            self.failures,
            self.times.hydration_ns,
            self.times.step_ns,
            self.times.merge_ns,
            None if self.failure is None else self.failure.hint,
            self.description.memory_limit,
            last_steps=steps_told(self._dataflow),
        )

    def arrangement_status(self) -> Iterator[ArrangementStatus]:
        """Yield the sizes of its arrangements, and of the indexes that it exports."""
        for size in self._dataflow.sizes() if self._dataflow is not None else ():
            yield arrangement_status(size, self.id)
        for id, index in self.indexes.items():
            rows, runs, bytes = index.rows.size
            yield ArrangementStatus(id, None, "index", rows, runs + 1, bytes)  # with the newest

    def operator_status(self) -> Iterator[OperatorStatus]:
        """Yield what each of its operators has done."""
        for work in self._dataflow.work() if self._dataflow is not None else ():
            yield OperatorStatus(**msgspec.structs.asdict(work), dataflow=self.id)


def _nothing(columns: tuple[ColumnType, ...]) -> Output:
    return TableOutput(empty_output(columns), empty_output(ERRORS))
