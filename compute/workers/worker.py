"""A worker: its shares of the dataflows of one replica.

requests   a thread reads them and hands them on
dataflows  a thread each, which carries out the requests about it in order and merges between
reads      a few threads, which read indexes at any time
"""

import logging
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from foreshore.compute.engine import ArrangementSize, Input
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.index import FlowIndex
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.output import FlowOutput
from foreshore.compute.memory_limit import MemoryBudget, MemoryLimitExceeded
from foreshore.compute.output import Output
from foreshore.compute.peek import failure_of
from foreshore.compute.protocol import Failure, IndexExport
from foreshore.compute.workers.mesh import Channel, Mesh, PeerFailed
from foreshore.compute.workers.messages import (
    Cancel,
    Close,
    DataflowReport,
    Fetch,
    Hydrate,
    InRange,
    LookUp,
    Read,
    Reply,
    Report,
    Request,
    Scan,
    Step,
    Updates,
)
from foreshore.compute.workers.wire import Wire
from foreshore.datum import from_array
from foreshore.deep_trees import start_deep_thread
from foreshore.errors import DatabaseError, InternalError, OutOfMemory, QueryCanceled
from foreshore.expr.columns import type_of
from foreshore.ids import GlobalId
from foreshore.memory import give_back
from foreshore.processes.transport import Tables
from foreshore.types import SqlType
from foreshore.update import decode_schema

logger = logging.getLogger(__name__)

READ_THREADS = 2


class Worker:
    """One of the workers, which answers requests until their connection ends."""

    def __init__(self, wire: Wire, mesh: Mesh, seed: int, strings_seed: int) -> None:
        self._wire = wire
        self._mesh = mesh
        self._collections = Collections(Interner(strings_seed), seed)
        self._dataflows: dict[int, _Dataflow] = {}
        self._reads = ThreadPoolExecutor(READ_THREADS, "reads")

    def run(self) -> None:
        """Carry out requests until the connection ends."""
        try:
            while (received := self._wire.receive()) is not None:
                self._carry_out(*received)
        finally:
            self._mesh.close()
            for dataflow in self._dataflows.values():
                dataflow.end()
            self._reads.shutdown(wait=False, cancel_futures=True)

    def _carry_out(self, request: Request, tables: Tables) -> None:
        match request:
            case Hydrate(dataflow=number):
                if number not in self._dataflows:
                    made = _Dataflow(number, self._wire, self._mesh, self._collections)
                    self._dataflows[number] = made
                self._dataflows[number].tasks.put((request, tables))
            case Step(dataflow=number) | Fetch(dataflow=number):
                found = self._dataflows.get(number)
                if found is not None:
                    found.tasks.put((request, tables))
                else:
                    failure = failure_of(InternalError("the dataflow was dropped"))
                    self._wire.send(Reply(request.request, failure))
            case Cancel(dataflow=number):
                if (found := self._dataflows.get(number)) is not None:
                    found.cancel()
            case Close(dataflow=number):
                if (found := self._dataflows.pop(number, None)) is not None:
                    found.end()
            case Report():
                self._wire.send(self._report(request))
            case _:
                self._reads.submit(self._read, request, tables)

    def _read(self, request: Read, tables: Tables) -> None:
        try:
            found = self._dataflows.get(request.dataflow)
            if found is None:
                raise InternalError("the index was dropped")
            answer = found.read(request, tables)
        except Exception as error:
            self._wire.send(Reply(request.request, failure_of(error)))
        else:
            self._wire.send(Reply(request.request), (answer,))

    def _report(self, request: Report) -> Reply:
        reports = tuple(each.report() for each in list(self._dataflows.values()))
        shared = self._collections.sizes()
        sizes = [
            replace(spine.size("rows"), object=id)
            for id, spines in shared.items()
            for spine in spines
        ]
        interner = self._collections.interner
        strings = ArrangementSize("strings", len(interner), 1, interner.nbytes)
        return Reply(request.request, reports=reports, shared=(strings, *sizes))


class _Dataflow:
    """A worker's share of one dataflow."""

    def __init__(self, number: int, wire: Wire, mesh: Mesh, collections: Collections) -> None:
        self.tasks: queue.SimpleQueue[tuple[Request, Tables] | None] = queue.SimpleQueue()
        self._number = number
        self._wire = wire
        self._mesh = mesh
        self._collections = collections
        interner, seed = collections.interner, collections.seed
        self._channel = Channel(mesh, number, interner, seed)
        self._is_alone = False
        self._flow: FlowDataflow | None = None
        self._indexes: dict[GlobalId, FlowIndex] = {}
        self._key_types: dict[GlobalId, list[SqlType]] = {}
        self._advancing = threading.Lock()  # of indexes
        self._output: FlowOutput | None = None  # of the last step
        self._budget = MemoryBudget(None)
        self._cancelled = False
        start_deep_thread(self._run, f"dataflow {number}")

    # --- on any thread

    def cancel(self) -> None:
        """Let what is under way fail soon, and all that follows."""
        self._cancelled = True
        self._channel.cancel()
        if (flow := self._flow) is not None:
            flow.cancel()

    def end(self) -> None:
        """Free it as soon as what is under way has ended."""
        self.cancel()
        self.tasks.put(None)

    def report(self) -> DataflowReport:
        """Return its sizes and work."""
        flow = self._flow
        sizes = tuple(flow.sizes()) if flow is not None else ()
        work = tuple(flow.work()) if flow is not None else ()
        return DataflowReport(self._number, sizes, work)

    def read(self, request: Read, tables: Tables) -> pa.Table:
        """Return the answer to a read of an index."""
        index, types = self._indexes[request.index], self._key_types[request.index]
        self._advance(index, request.upper)
        match request:
            case LookUp(time=time):
                columns = [
                    from_array(column.combine_chunks(), type)
                    for column, type in zip(tables[0].columns, types, strict=True)
                ]
                keys = list(zip(*columns, strict=True))
                return pa.Table.from_batches([index.look_up(keys, time)])
            case Scan(time=time):
                return pa.Table.from_batches([index.scan(time)])
            case InRange(time=time, span=span):
                return pa.Table.from_batches(list(index.in_range(span, time, 1 << 62)))
            case Updates(time=time):
                return index.updates(time)

    def _advance(self, index: FlowIndex, upper: int) -> None:
        """Record that an index has all updates before `upper`, unless it is known of more."""
        with self._advancing:
            if index.upper < upper:
                index.advance(upper)

    # --- on its own thread

    def _run(self) -> None:
        try:
            self._carry_out()
        except BaseException:
            logger.critical("a dataflow's thread has failed", exc_info=True)
            self._wire.close()  # so that the replica ends and is restarted
        finally:
            self._close()
            self._mesh.close_box(self._number)
            give_back()

    def _carry_out(self) -> None:
        while True:
            try:
                task = self.tasks.get(block=not self._maintain())
            except queue.Empty:
                continue
            if task is None:
                return
            request, tables = task
            try:
                reply, answer = self._done(request, tables)
            except BaseException as error:
                if not self._is_alone and not isinstance(request, Fetch):
                    self._channel.give_up()
                reply, answer = self._failed(request, error), ()
            try:
                self._wire.send(reply, answer)
            except OSError:
                return  # the replica has ended

    def _done(self, request: Request, tables: Tables) -> tuple[Reply, Tables]:
        match request:
            case Hydrate():
                self._channel.begin(request.attempt)
                self._is_alone = request.alone
                return self._hydrate(request, tables), ()
            case Step():
                self._channel.begin(request.attempt)
                return self._step(request, tables), ()
            case Fetch():
                output = self._output
                if output is None:
                    raise InternalError("there is no output")
                return Reply(request.request), (output.rows, output.errors)
            case _:
                raise AssertionError(request)

    def _hydrate(self, request: Hydrate, tables: Tables) -> Reply:
        self._close()  # what an attempt before has left
        description = request.description
        self._budget.limit = request.memory_limit
        peers = None if request.alone else self._channel
        flow = self._flow = FlowDataflow(description, None, self._collections, peers)
        flow.limit_memory(self._budget)
        if self._cancelled:
            raise QueryCanceled
        exports = {export.id: export for export in description.exports}
        indexes = {}
        for wanted in request.indexes:
            export = exports[wanted.id]
            assert isinstance(export, IndexExport)
            index = flow.index(export, wanted.since)
            assert isinstance(index, FlowIndex), export
            indexes[wanted.id] = index
            self._key_types[wanted.id] = [type_of(scalar) for scalar in export.key]
        rest = iter(tables)
        count, part = (1, 0) if request.alone else (self._mesh.count, self._mesh.index)
        inputs = {
            share.id: Input(
                decode_schema(share.schema), share.files,
                tuple(next(rest) for _ in range(share.tables)), part, count,
            )
            for share in request.inputs
        }  # fmt: skip
        groups = {
            share.operator: tuple(next(rest) for _ in range(share.tables))
            for share in request.groups
        }
        output = flow.hydrate(inputs, groups)
        self._indexes = indexes
        return self._stepped(request.request, output, description.as_of + 1)

    def _step(self, request: Step, tables: Tables) -> Reply:
        flow = self._flow
        if flow is None:
            raise InternalError("the dataflow is not hydrated")
        self._budget.limit = request.memory_limit
        for id, since in request.since.items():
            if (index := self._indexes.get(id)) is not None:
                index.compact(since)
        flow.advanced(request.lower)
        deltas = dict(zip(request.changed, tables, strict=True))
        output = flow.step(request.lower, request.upper, deltas)
        return self._stepped(request.request, output, request.upper)

    def _stepped(self, number: int, output: Output, upper: int) -> Reply:
        """Insert the output of a step into the indexes; return the reply."""
        assert self._flow is not None
        assert isinstance(output, FlowOutput), output
        self._output = output
        for index in self._indexes.values():
            index.insert_output(output, upper)
            self._advance(index, upper)
        rows = len(output.batch)
        return Reply(
            number,
            rows=rows,
            errors=output.count - rows,
            next_due=self._flow.next_due(),
            indexes={id: index.size for id, index in self._indexes.items()},
        )

    def _failed(self, request: Request, error: BaseException) -> Reply:
        """Return the reply to a request that failed."""
        assert isinstance(request, Hydrate | Step | Fetch), request
        if isinstance(error, PeerFailed):
            failure = Failure("XX000", "another worker has failed")
            return Reply(request.request, failure, by_peer=True)
        memory = isinstance(error, MemoryError | MemoryLimitExceeded | OutOfMemory)
        if memory and not isinstance(error, DatabaseError):
            error = OutOfMemory("a worker of the replica has no more memory")
        cancelled = isinstance(error, QueryCanceled)
        return Reply(request.request, failure_of(error), out_of_memory=memory, cancelled=cancelled)

    def _maintain(self) -> bool:
        """Do some maintenance; return whether there is more to do."""
        flow = self._flow
        if flow is None or self._cancelled:
            return False
        more = [index.maintain() for index in self._indexes.values() if index.maintenance_due]
        if flow.maintenance_due:
            more.append(flow.maintain())
        return any(more)

    def _close(self) -> None:
        self._output, self._indexes = None, {}
        if self._flow is not None:
            self._flow.close()
            self._flow = None
