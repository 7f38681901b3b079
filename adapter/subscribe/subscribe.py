"""SUBSCRIBE: the contents of a query at one time, and then every change at its own.

What is followed is a tail (`adapter/subscribe/changelogs.py`): that of a table or a materialized
view, of an index on a view, or of the query itself. Map, Filter and Project over the first two are
done here, once for all statements that are alike; the shard is read with them pushed down.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.coordinator import Coordinator, refuse_system_inputs
from foreshore.adapter.read.cluster_choice import answering_cluster
from foreshore.adapter.read.local import can_evaluate_locally, evaluate_linear
from foreshore.adapter.read.peek import bind_peek
from foreshore.adapter.read.peek_plan import PeekPlan
from foreshore.adapter.read.read_holds import Hold
from foreshore.adapter.read.result import RowSource, Selected
from foreshore.adapter.read.times import choose, tell_of_waiting, timestamp_of
from foreshore.adapter.subscribe.changelog import (
    Behind,
    Event,
    Pieces,
    Rendering,
    Tail,
    insertions_named,
)
from foreshore.adapter.subscribe.durable_statements import position_of
from foreshore.adapter.subscribe.envelope import Shape
from foreshore.catalog.item import Item
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.engine import rows_schema
from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    Unavailable,
)
from foreshore.expr.ir import (
    Filter,
    Get,
    Literal,
    Map,
    Project,
    Relation,
    columns_of,
    sources_of,
)
from foreshore.expr.split import split_errors
from foreshore.ids import GlobalId
from foreshore.sql.plan import AsOf, Subscribe
from foreshore.storage.controller import ListenEvent
from foreshore.storage.selection import ALL, Selection
from foreshore.types import MZ_TIMESTAMP, Datum
from foreshore.update import EMPTY, Timestamp, at_time

if TYPE_CHECKING:
    from foreshore.adapter.session.prepared import Prepared
    from foreshore.adapter.session.session import Session


async def subscribe(
    session: "Session", prepared: "Prepared", plan: Subscribe, args: Sequence[Datum]
) -> Selected:
    """Run a SUBSCRIBE."""
    transaction = session.begin()
    if transaction.has_effects:
        raise FeatureNotSupported("SUBSCRIBE after writes in the same transaction is not supported")
    peek = prepared.peek
    assert peek is not None
    refuse_system_inputs(peek.relation, "SUBSCRIBE")
    if peek.lookup is not None and (
        _single_input(peek.relation) is None or _is_before(session, peek.lookup.index, plan, args)
    ):
        peek = session.planner.peek_without_indexes(prepared)
    read = {peek.lookup.index} if peek.lookup is not None else peek.shards
    session.coordinator.compute.maintained.check_not_corrupt(read)
    beginning, snapshot = plan.as_of, plan.snapshot
    if plan.subscription is not None:
        position = position_of(session, plan.subscription)
        transaction.followed.setdefault(plan.subscription, position)
        state = session.planner.state
        name = state.full_name(state.item(plan.subscription))
        transaction.followed_as.setdefault(name, plan.subscription)
        beginning = AsOf(Literal(position.as_of, MZ_TIMESTAMP))
        snapshot = not position.confirmed if snapshot is None else snapshot
    assert snapshot is not None, plan
    as_of = choose(session, sorted(read), beginning, args).time
    tell_of_waiting(session, read, as_of)
    until = None if plan.up_to is None else timestamp_of(session, plan.up_to, args)
    if until is not None and until < as_of:
        raise InvalidParameterValue(
            f"UP TO {until} is before AS OF {as_of}", detail="Nothing could come of it."
        )
    relation, _, _ = bind_peek(session, peek, args, as_of)
    shape = Shape.of(plan)
    # To whoever goes on from a position, that is where it begins.
    begins = as_of + (plan.subscription is not None and not snapshot)
    source: RowSource
    if not peek.shards and can_evaluate_locally(relation):
        end = _end_of_constant(session.coordinator, as_of)
        end = end if until is None else min(end, until)
        source = _constant(relation, shape, as_of, begins, end, snapshot=snapshot)
    else:
        follow = _followed(session, peek, relation, shape, as_of)
        source = SubscribeSource(
            session.coordinator,
            follow,
            as_of,
            until,
            snapshot=snapshot,
            begins=begins,
            rests_on=_rests_on(session, prepared, plan, peek),
        )
    return Selected(plan.desc, source, "SUBSCRIBE")


def _is_before(session: "Session", index: GlobalId, plan: Subscribe, args: Sequence[Datum]) -> bool:
    """Whether AS OF is a time that the index does not know any more."""
    if plan.as_of is None or plan.as_of.at_least:
        return False
    return timestamp_of(session, plan.as_of.time, args) < session.coordinator.holds.since(index)


def _rests_on(
    session: "Session", prepared: "Prepared", plan: Subscribe, peek: PeekPlan
) -> frozenset[GlobalId]:
    """Return the tables whose promises the plan may make use of, also of those that it reads not.

    A table that is followed as it is needs none.
    """
    state = session.planner.state
    named = [id for id in prepared.meanings.found if not isinstance(id, tuple)]
    if plan.is_of_relation and not any(
        isinstance(item := state.get(id), Item) and item.type != "table" for id in named
    ):
        return frozenset()
    found: set[GlobalId] = set()
    stack = [*named, *peek.sources]
    while stack:
        item = state.get(stack.pop())
        if not isinstance(item, Item) or item.id in found:
            continue
        found.add(item.id)
        if item.type in ("view", "subscription"):
            stack.extend(item.depends_on)
    return frozenset(id for id in found if state.item(id).type == "table")


def _end_of_constant(coordinator: Coordinator, as_of: Timestamp) -> Timestamp:
    """Return where the stream of what never changes ends: all that can be confirmed is before."""
    return max(as_of, coordinator.oracle.read_ts()) + 1


def _constant(
    relation: Relation,
    shape: Shape,
    as_of: Timestamp,
    begins: Timestamp,
    end: Timestamp,
    *,
    snapshot: bool,
) -> "Ended":
    """Return what never changes: its contents, if they are asked for, and no more."""
    rendering = Rendering(None, shape)
    pieces = list(rendering.mark(begins))
    rows = at_time(evaluate_linear(relation), as_of)
    if snapshot and rows.num_rows:
        pieces += rendering.rows(rows)
    pieces += rendering.mark(end)
    return Ended([] if as_of == end else pieces)


@dataclass(frozen=True, slots=True)
class Followed:
    """What a statement follows: a tail, in a rendering.

    `follow` gives a tail for who begins as of a time, and whether it begins with the contents then.
    The contents as of a time come from the tail itself if it `begins` with them; else from `shard`,
    of which `selection` is read and `rest` remains to be done, or as the answer of `contents`.
    """

    tail: Tail
    rendering: Rendering
    hold: Hold
    follow: Callable[[Timestamp], tuple[Tail, bool]]
    begins: bool = False
    shard: GlobalId | None = None
    selection: Selection = ALL
    rest: Rendering | None = None
    contents: Callable[[], Awaitable[pa.Table]] | None = None


def _followed(
    session: "Session", peek: PeekPlan, relation: Relation, shape: Shape, as_of: Timestamp
) -> Followed:
    coordinator = session.coordinator
    tails, holds = coordinator.tails, coordinator.holds
    below = _single_input(relation)
    if below is not None and below.id in coordinator.capabilities:
        tail = tails.shard(below.id)
        rendering = tail.rendering(relation, shape)
        selection, rest = _pushed_down(relation)
        hold = holds.acquire([below.id], as_of, "subscription", session.pid)
        remaining = Rendering(rest, shape)
        return Followed(
            tail,
            rendering,
            hold,
            lambda _: (tails.shard(below.id), False),
            shard=below.id,
            selection=selection,
            rest=remaining,
        )
    cluster = answering_cluster(session)
    if below is not None and peek.lookup is not None:
        hold = holds.acquire([peek.lookup.index], as_of, "subscription", session.pid)
        follow = partial(tails.index, peek.lookup.index)
        tail, begins = follow(as_of)
        rendering = tail.rendering(relation, shape)
        request = PeekRequest(as_of, below, index=peek.lookup.index)
    else:
        imports = tuple(sorted(sources_of(relation)))
        hold = holds.acquire(imports, as_of, "subscription", session.pid)
        follow = partial(tails.query, cluster.id, relation)
        tail, begins = follow(as_of)
        rendering = tail.rendering(None, shape)
        request = PeekRequest(as_of, relation, imports=imports)

    async def contents() -> pa.Table:
        rows = await coordinator.compute.peek(cluster.id, request)
        return insertions_named(rows, as_of, rows_schema(columns_of(request.relation)).names)

    return Followed(tail, rendering, hold, follow, begins, contents=contents)


def _single_input(relation: Relation) -> Get | None:
    """Return the collection of which `relation` is Map, Filter and Project that cannot fail."""
    below = relation
    while isinstance(below, Map | Filter | Project):
        below = below.input
    if not isinstance(below, Get) or split_errors(relation)[1] is not None:
        return None
    return below


def _pushed_down(relation: Relation) -> tuple[Selection, Relation]:
    """Return what storage leaves out itself, and what remains to be done with the rest."""
    match relation:
        case Project(input=Filter(input=Get() as get, predicates=predicates), outputs=outputs):
            pass
        case Project(input=Get() as get, outputs=outputs):
            predicates = ()
        case Filter(input=Get() as get, predicates=predicates):
            return Selection(None, predicates), get
        case _:
            return Selection(), relation
    columns = tuple(sorted(set(outputs)))
    narrow = Get(get.id, tuple(get.columns[i] for i in columns))
    return Selection(columns, predicates), Project(narrow, tuple(map(columns.index, outputs)))


class Ended:
    """Rows that are all there are."""

    streaming = True

    def __init__(self, pieces: Sequence[pa.RecordBatch]) -> None:
        self._ready = deque(pieces)

    @property
    def has_ready(self) -> bool:
        """Whether `next` need not wait."""
        return True

    async def next(self, limit: int) -> pa.RecordBatch | None:
        """Return the next rows."""
        return _taken(self._ready, limit) if self._ready else None

    def close(self) -> None:
        """Forget the rows."""
        self._ready.clear()


class SubscribeSource:
    """The stream of one subscription, in the order of time: a cursor on a tail."""

    streaming = True

    def __init__(
        self,
        coordinator: Coordinator,
        followed: Followed,
        as_of: Timestamp,
        until: Timestamp | None,
        *,
        snapshot: bool,
        begins: Timestamp,
        rests_on: frozenset[GlobalId],
    ) -> None:
        """Tell what comes after `as_of`, behind a row of PROGRESS that says `begins`."""
        self._coordinator = coordinator
        self._followed = followed
        self._rendering = followed.rendering
        self._as_of = as_of
        self._until = until
        self._end: DatabaseError | None = None  # what comes at `until` in place of the end
        self.rests_on = rests_on
        self._upper = as_of + 1  # all before has been taken
        self._ready: deque[pa.RecordBatch] = deque(self._rendering.mark(begins))
        self._hold = followed.hold
        self._task: asyncio.Task[Pieces] | None = None
        self._error: DatabaseError | None = None  # what comes when all before it has been taken
        self._closed = False
        has_all = self._join(followed.tail, as_of)
        if as_of == until:
            self._ready.clear()
        elif followed.begins:
            self._upper = as_of  # the contents then are yet to come
            self._beyond = as_of - snapshot
        elif followed.shard is not None:
            if snapshot or not has_all:
                self._read(self._shard(as_of, snapshot=snapshot))
        elif snapshot:
            assert has_all, "a tail is shared by those who find their place in it"
            self._read(self._contents())
        if self._task is None:
            self._hold.release()

    def _join(self, tail: Tail, after: Timestamp) -> bool:
        """Follow `tail` from what comes after `after`; return whether it has all of that."""
        self._coordinator.tails.join(tail, self)
        self._tail = tail
        self._beyond = after
        place = tail.place(after)
        self.number = tail.next if place is None else place
        return place is not None

    @property
    def has_ready(self) -> bool:
        """Whether `next` need not wait."""
        return bool(self._ready)

    async def next(self, limit: int) -> pa.RecordBatch | None:
        """Return the next rows, as soon as there are any."""
        while not self._ready:
            if self._task is not None:
                pieces = await asyncio.shield(self._task)
                self._task = None
                if self._end is None or self._until is None or self._as_of < self._until:
                    self._ready.extend(pieces)
            elif self._error is not None:
                raise self._error
            elif self._until is not None and self._upper >= self._until:
                if self._end is not None:
                    raise self._end
                self.close()
                return None
            else:
                await self._advance()
        return _taken(self._ready, limit)

    def end(self, at: Timestamp, error: DatabaseError) -> None:
        """Tell what comes before `at`, and then `error`."""
        if self._until is None or at < self._until:
            self._until, self._end = at, error
            self._tail.wake()

    async def _advance(self) -> None:
        """Take the next event, or wait for it."""
        tail = self._tail
        if tail.frontier == EMPTY:
            self._end_as_constant()
        try:
            event = tail.event(self.number)
        except Behind:
            self._read_again()
            return
        if event is not None:
            pieces = await self._pieces(event)
            self.number += 1
            self._moved_to(event.upper)
            self._ready.extend(pieces)
            return
        reached = tail.frontier if self._until is None else min(tail.frontier, self._until)
        if reached > self._upper:
            self._moved_to(reached)
            self._ready.extend(self._rendering.mark(reached))
        elif reached == self._until:
            return
        elif tail.failure is not None:
            if tail.failed_at is None or tail.failed_at >= self._upper - 1:
                raise tail.failure
            self._follow_anew()
        else:
            idle = self._rendering.shape.progress or self._until is not None
            await tail.news(idle=idle)

    def _end_as_constant(self) -> None:
        """End, as at UP TO: what is followed will never change any more."""
        end = max(self._upper, _end_of_constant(self._coordinator, self._as_of))
        if self._until is None or end < self._until:
            self._until, self._end = end, None

    def _follow_anew(self) -> None:
        """Follow another tail: this one has ended for an error that was over before."""
        after, followed = self._upper - 1, self._followed
        if not followed.hold.ids <= self._coordinator.holds.collections.keys():
            raise ObjectNotInPrerequisiteState(
                "the subscription has ended because what it follows was dropped or altered"
            )
        try:
            tail, _ = followed.follow(after)  # contents that it begins with are not after that
        except Behind:
            raise self._late() from None
        self._coordinator.tails.leave(self._tail, self)
        self._rendering = tail.rendering(self._rendering.relation, self._rendering.shape)
        if not self._join(tail, after):
            self._read_again()

    def _moved_to(self, upper: Timestamp) -> None:
        self._upper = max(self._upper, upper if self._until is None else min(upper, self._until))

    async def _pieces(self, event: Event) -> Pieces:
        part = event.within(self._beyond, self._until)
        if part is None:
            return await event.pieces(self._rendering)
        upper = event.upper if self._until is None else min(event.upper, self._until)
        pieces = await self._rendering.made_of(part)
        # what came before AS OF, to a tail that was not there yet, is not progress
        return pieces + self._rendering.mark(upper) if upper > self._upper else pieces

    def _late(self) -> DatabaseError:
        return Unavailable(
            "the subscriber does not keep up",
            sqlstate="53400",
            detail=f"The changes from {self._upper} on are kept no longer.",
        )

    # --- what does not come from the tail

    def _read_again(self) -> None:
        """Read what the tail has no longer; raises why it cannot be read."""
        holds, shard, after = self._coordinator.holds, self._followed.shard, self._upper - 1
        if shard is None or shard not in holds.collections or after < holds.since(shard):
            raise self._tail.failure or self._late()
        pid = self._followed.hold.pid
        self._hold = holds.acquire([shard], after, "subscription", pid)
        self._read(self._shard(after, snapshot=False))

    def _read(self, work: Awaitable[Pieces]) -> None:
        async def run() -> Pieces:
            return await work

        self._task = asyncio.get_running_loop().create_task(run())
        self._task.add_done_callback(self._was_read)

    def _was_read(self, task: asyncio.Task[Pieces]) -> None:
        """Hold the past no longer; take note of a failure that nobody may come to ask for."""
        self._hold.release()
        if not task.cancelled():
            task.exception()

    async def _contents(self) -> Pieces:
        """Return the contents as of the beginning, as the answer of a query."""
        assert self._followed.contents is not None
        rows = await self._followed.contents()
        pieces = await self._rendering.made_of(rows) if rows.num_rows else ()
        return pieces + self._rendering.mark(self._upper)

    async def _shard(self, after: Timestamp, *, snapshot: bool) -> Pieces:
        """Return what the shard has later than `after`, and go on with the tail from there.

        An error ends it there; it is told behind what comes before.
        """
        followed, coordinator = self._followed, self._coordinator
        assert followed.shard is not None
        assert followed.rest is not None
        first: asyncio.Future[ListenEvent] = asyncio.get_running_loop().create_future()

        def deliver(event: ListenEvent) -> None:
            if not first.done():
                place = self._tail.place(event.upper - 1)
                self.number = -1 if place is None else place  # it may have left the log already
                first.set_result(event)

        read, _ = coordinator.capabilities[followed.shard]
        listen = coordinator.storage.subscribe_at(
            read, after, deliver, snapshot=snapshot, selection=followed.selection
        )
        try:
            assert listen.task is not None
            either: set[asyncio.Future[Any]] = {first, listen.task}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                if not listen.task.cancelled():
                    await listen.task  # raises what went wrong
                # the shard was dropped: nobody has cancelled who waits for it
                raise self._tail.failure or ObjectNotInPrerequisiteState(
                    "the subscription has ended"
                )
        finally:
            listen.cancel()
        event = first.result()
        if event.upper == EMPTY:
            self._end_as_constant()
        upper = event.upper if self._until is None else min(event.upper, self._until)
        last = max(after, upper - 1)
        await coordinator.compute.maintained.errors_known([followed.shard], last)
        failed = coordinator.compute.maintained.first_error([followed.shard], after, last + 1)
        if failed is not None:
            upper, self._error = failed
            if upper == after:
                raise self._error
        self._beyond = event.upper - 1
        self._moved_to(upper)
        updates = event.updates
        if updates is not None and upper < event.upper:
            times = updates.column(updates.num_columns - 2)
            updates = updates.filter(pc.less(times, upper))
        pieces = (
            () if updates is None or not updates.num_rows else await followed.rest.made_of(updates)
        )
        return pieces + self._rendering.mark(self._upper)

    def close(self) -> None:
        """Follow no longer."""
        if not self._closed:
            self._closed = True
            if self._task is not None:
                self._task.cancel()
            self._hold.release()
            self._coordinator.tails.leave(self._tail, self)


def _taken(ready: deque[pa.RecordBatch], limit: int) -> pa.RecordBatch:
    """Take up to `limit` rows; a whole batch as the object that it is, for others have it too."""
    first = ready.popleft()
    if first.num_rows <= limit:
        return first
    ready.appendleft(first.slice(limit))
    return first.slice(0, limit)
