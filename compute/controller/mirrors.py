"""Mirrors: copies of small indexes in the environment, which answer reads without a replica.

    replicas ── contents, then each window of changes ──► Mirror ──► reads at times it knows

An index that is read again and again gets a mirror, if it has few rows. The mirror subscribes to
the index as a client's subscription does, so it takes each update once, from the replica that sends
it first, survives the loss of replicas, and knows the exact rows at each time from `since` to
`upper`. A read at a time that it does not know yet waits a little, then asks the cluster: the
cluster's answer is the same, and what hinders it is known there.

A mirror costs memory here, and messages. It ends if it outgrows its bounds, if much changes and
it answers no reads, if it lags behind, or if another one needs its place; reads are then answered
by the cluster again.

All methods belong on the event loop.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from dataclasses import dataclass

from foreshore.compute.arrange.arrangement import TooManyRows
from foreshore.compute.controller import index_streams
from foreshore.compute.controller.maintained import Dataflow
from foreshore.compute.controller.mirror import Mirror
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.controller.unchanged import UnchangedOutputs
from foreshore.compute.controller.uppers import Uppers
from foreshore.compute.peek import FEW_ROWS
from foreshore.compute.protocol import IndexExport, SubscribeIndex
from foreshore.compute.result import Result
from foreshore.errors import DatabaseError, ObjectNotInPrerequisiteState
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from foreshore.update import EMPTY, Timestamp

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of mirrors."""

    rows: int = 250_000  # updates of one mirror
    bytes: int = 16 << 20  # of one mirror
    all_bytes: int = 128 << 20  # of all mirrors
    reads: int = 3  # of an index, until it gets a mirror
    retry: int = 1_000  # reads of an index that had no room, until it is tried again
    unread: int = 50_000  # updates that nobody reads, until a mirror ends
    late_s: float = 2.0  # how long it may lag behind an index that is read
    patience_s: float = 0.1  # how long a read waits before it asks the cluster


@dataclass(frozen=True, slots=True)
class MirrorSize:
    """The size of a mirror of `index`."""

    index: GlobalId
    records: int
    batches: int
    bytes: int


class Mirrors:
    """The mirrors of all indexes; `exporters` are the controller's dataflows by export."""

    def __init__(
        self,
        exporters: MutableMapping[GlobalId, Dataflow],
        uppers: Uppers,
        unchanged: UnchangedOutputs,
        new_id: Callable[[], GlobalId],
        bounds: Bounds | None = None,
    ) -> None:
        self.bounds = bounds or Bounds()
        self._exporters = exporters
        self._uppers = uppers
        self._unchanged = unchanged
        self._new_id = new_id
        self._mirrors: OrderedDict[GlobalId, Mirror] = OrderedDict()  # last used last, by index
        self._reads: dict[GlobalId, int] = {}  # of indexes without a mirror
        self._tasks: set[asyncio.Task[None]] = set()

    # --- reading

    def of(self, index: GlobalId, time: Timestamp, *, whole: bool = False) -> Mirror | None:
        """Return the mirror of an index that knows or will know the rows at `time`.

        None if there is none; there may be one soon, as the read is noted, of the `whole` or not.
        """
        mirror = self._mirrors.get(index)
        if mirror is None:
            self.note_read(index, whole=whole)
            return None
        if not mirror.knows(time):
            self._unchanged.advance(index)
        return mirror if mirror.readable_from <= time else None

    def has(self, index: GlobalId) -> bool:
        """Whether an index has a mirror."""
        return index in self._mirrors

    def is_beyond(self, index: GlobalId, relation: Relation, *, whole: bool) -> bool:
        """Whether the mirror of an index, if it has one, surely leaves a read to the cluster."""
        mirror = self._mirrors.get(index)
        return mirror is not None and mirror.is_beyond(relation, whole=whole)

    async def knows_soon(self, mirror: Mirror, time: Timestamp) -> bool:
        """Return whether a mirror knows the rows at `time`, perhaps after waiting a little.

        One that receives nothing while replicas pass the times that are read ends.
        """
        self._uppers.hurry(time)
        if await mirror.passed(time, self.bounds.patience_s):
            return True
        lags = mirror.upper > 0 and not mirror.failed and self._uppers[mirror.index] > time
        if lags and mirror.is_late(time, self.bounds.late_s):
            mirror.fail(ObjectNotInPrerequisiteState("it lags behind its index"))
        return False

    def note_use(self, mirror: Mirror) -> None:
        """Note that a mirror has answered a read."""
        mirror.is_used, mirror.unread = True, 0
        if mirror.index in self._mirrors:
            self._mirrors.move_to_end(mirror.index)

    async def answer(self, request: PeekRequest) -> Result | None:
        """Return the answer of a mirror, None if there is none that knows it soon.

        Raises DataError if the answer is an error.
        """
        if request.index is None or request.replica is not None:
            return None
        whole = request.keys is None and request.span is None
        mirror = self.of(request.index, request.as_of, whole=whole)
        if mirror is None or mirror.is_beyond(request.relation, whole=whole):
            return None
        if not await self.knows_soon(mirror, request.as_of):
            return None
        try:
            rows = mirror.answer(request, is_repeated=request.is_repeated)
        except TooManyRows:
            return None
        self.note_use(mirror)
        return Result.of(rows)

    def sizes(self) -> Iterator[MirrorSize]:
        """Yield the size of each mirror."""
        for mirror in self._mirrors.values():
            yield MirrorSize(mirror.index, *mirror.size)

    def compact(self, index: GlobalId, since: Timestamp) -> None:
        """Note that an index is not read before `since` any more."""
        mirror = self._mirrors.get(index)
        if mirror is not None:
            mirror.compact(since)

    # --- their lives

    def note_read(self, index: GlobalId, *, whole: bool) -> None:
        """Note a read of an index without a mirror, of the `whole` or not; it may get one."""
        reads = self._reads.get(index, 0) + 1
        self._reads[index] = reads
        if reads >= self.bounds.reads:
            self._reads[index] = -self.bounds.retry
            self._begin(index, whole=whole)

    def _begin(self, index: GlobalId, *, whole: bool) -> None:
        """Begin a mirror of an index, if it is small and there is room.

        One that is read as a `whole` must be so small that the mirror answers that.
        """
        dataflow = self._exporters.get(index)
        size = None if dataflow is None else _size_of(dataflow, index)
        if dataflow is None or size is None:
            self._reads[index] = 0  # it has just begun
            return
        rows, bytes = size
        if whole and rows > FEW_ROWS:
            self._reads[index] = 0  # reads by key may come
            return
        if self._uppers[index] == EMPTY:
            return  # it is complete: no changes come that would tell of a later time
        if rows > self.bounds.rows or bytes > self.bounds.bytes:
            return
        while self._mirrors and self._bytes() + bytes > self.bounds.all_bytes:
            self._end(next(iter(self._mirrors.values())))
        export = next(each for each in dataflow.description.exports if each.id == index)
        assert isinstance(export, IndexExport), export
        columns = columns_of(dataflow.description.relation)
        as_of = self._uppers[index] - 1
        mirror = Mirror(self._new_id(), index, columns, export.key, as_of, self._changed)
        mirror.when_failed(self._failed)
        self._mirrors[index] = mirror
        request = SubscribeIndex(mirror.id, index, as_of, 0, self.bounds.rows)
        self._spawn(self._subscribe(mirror, request))

    async def _subscribe(self, mirror: Mirror, request: SubscribeIndex) -> None:
        try:
            await index_streams.begin(self._exporters, mirror, request)
        except DatabaseError as error:  # it was dropped
            mirror.fail(error)

    def _changed(self, mirror: Mirror) -> None:
        """End a mirror that has become too large, or that costs more than it gives."""
        rows, _, bytes = mirror.size
        too_large = rows > self.bounds.rows or bytes > self.bounds.bytes
        if too_large or mirror.unread > self.bounds.unread:
            self._end(mirror)
            if not too_large and mirror.is_used:
                self._reads.pop(mirror.index, None)
            return
        if self._bytes() > self.bounds.all_bytes:
            self._end(next(iter(self._mirrors.values())))
        if (merge := mirror.due_merge()) is not None:
            self._spawn(merge)

    def _failed(self, mirror: Mirror, error: DatabaseError) -> None:
        logger.info("a mirror has ended: %s", error.message, extra={"index": mirror.index})
        self._end(mirror)
        if mirror.index not in self._exporters:
            self._reads.pop(mirror.index, None)

    def _end(self, mirror: Mirror) -> None:
        if self._mirrors.get(mirror.index) is mirror:
            del self._mirrors[mirror.index]
            self._reads[mirror.index] = -self.bounds.retry
        mirror.close()
        index_streams.end(self._exporters, mirror.id)

    def _bytes(self) -> int:
        return sum(mirror.size[2] for mirror in self._mirrors.values())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _size_of(dataflow: Dataflow, index: GlobalId) -> tuple[int, int] | None:
    """Return the rows and bytes of an index, as a replica last reported them."""
    for replica in dataflow.cluster.replicas.values():
        for each in replica.status.dataflows if replica.status is not None else ():
            for status in each.indexes:
                if status.id == index and each.id == dataflow.description.id:
                    return status.rows, status.bytes
    return None
