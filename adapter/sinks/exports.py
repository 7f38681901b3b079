"""Exports as the coordinator sees them: which sinks run, and what they get.

In the catalog a sink is a durable subscription to a relation with a shard: its position says how
far its target has come at least, and the history from there on is held. The target may be ahead,
if the server ended between a commit there and the move of the position.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import partial
from typing import Protocol

import pyarrow as pa
from msgspec.structs import replace

from foreshore.adapter.definitions.catalog_reader import DefinitionCatalog
from foreshore.adapter.external.access import Find, accesses, affected_items
from foreshore.adapter.external.inherited import PAUSED, is_paused
from foreshore.adapter.external.signal import Signal
from foreshore.adapter.services.collections import Collections
from foreshore.adapter.services.copies import Copies
from foreshore.adapter.sinks.previous import previous_of
from foreshore.adapter.subscribe.reading import (
    changed,
    changed_relation,
    check_errors,
    contents,
    interval,
    last_changes,
    sound_through,
)
from foreshore.adapter.transaction.moves import move_positions
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.durable import Position
from foreshore.catalog.item import Item, Object
from foreshore.catalog.subscription_positions import Move, Previous
from foreshore.catalog.watch import obstacle_of
from foreshore.errors import (
    DatabaseError,
    InvalidParameterValue,
    UndefinedObject,
)
from foreshore.expr.ir import Get, Scalar
from foreshore.ids import GlobalId
from foreshore.privileges import Need
from foreshore.processes.launch import Launcher
from foreshore.sinks.errors import TargetLost
from foreshore.sinks.kafka import KafkaTarget
from foreshore.sinks.python import PythonTarget
from foreshore.sinks.spec import (
    SinkSpec,
    connections_of,
    is_place,
    keeps_frontier,
    secrets_of,
)
from foreshore.sinks.webhook import SECRETS, WebhookTarget
from foreshore.sources.files import PLACES
from foreshore.sql.bind.definitions.sinks.partition import partition_hash
from foreshore.storage.export.controller import ExportController, SinkDescription
from foreshore.storage.export.exporter import NOTHING
from foreshore.storage.export.messages import Answer, CheckSink, Export
from foreshore.storage.external.access import Access, Accesses
from foreshore.storage.external.request import answer_to
from foreshore.storage.lineage import Lineage
from foreshore.types import RelationDesc
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)


class Modules(Protocol):
    """Python modules."""

    def check_module(self, module: str) -> None:
        """Raise InsufficientPrivilege unless sources and sinks may import a module."""


class Exporting(Collections, Protocol):
    """The services of the environment that sinks use."""

    @property
    def copies(self) -> Copies:
        """The places where files may be written."""

    @property
    def ingestion(self) -> Modules:
        """The Python modules that may be imported."""


class SinkExports:
    """The sinks of one environment; `lineage` is its database."""

    def __init__(self, coordinator: Exporting, launcher: Launcher, lineage: Lineage) -> None:
        self._coordinator = coordinator
        self._launcher = launcher
        self._lineage = lineage
        # The time before which the target has all changes, where its position is earlier.
        self._idle_before: dict[GlobalId, Timestamp] = {}
        # The ends of the interval that was sent last, frontiers that are ours whatever came of it;
        # or where the sink began.
        self._ends: dict[GlobalId, tuple[Timestamp, Timestamp]] = {}
        # The relation of the interval that was sent last: it may get another one meanwhile.
        self._sent: dict[GlobalId, GlobalId] = {}
        self._moved = Signal()
        self._following = asyncio.Lock()  # else a sink might be started twice
        self.controller = ExportController(launcher, self, coordinator.clock)

    def open(self) -> None:
        """Run the sinks of the catalog."""
        for item in self._coordinator.state.all(Item):
            if item.sink:
                self.controller.start(self._described(item, item.sink))

    async def follow(self, changed: Iterable[Object]) -> None:
        """Run new sinks, stop dropped ones, and run anew those of which something changed."""
        async with self._following:
            state = self._coordinator.state
            affected = [item for each in changed for item in affected_items(state, each)]
            for id in {item.id for item in affected if item.sink}:
                await self._follow_one(id)

    async def _follow_one(self, id: GlobalId) -> None:
        item = self._coordinator.state.get(id)
        running = self.controller.description(id)
        described = None
        if isinstance(item, Item) and item.sink:
            described = self._described(item, item.sink)
        if described == running:
            return
        await self.controller.stop(id)
        self._idle_before.pop(id, None)
        self._moved.set()
        if described is not None:
            self.controller.start(described)
            return
        self._ends.pop(id, None)
        self._sent.pop(id, None)

    async def close(self) -> None:
        """End all processes."""
        await self.controller.close()

    async def check(self, spec: SinkSpec, desc: RelationDesc) -> None:
        """Raise DatabaseError if a sink could not write these columns to its target."""
        export = Export(self.target_name("new", spec), spec, desc, self.accesses(spec))
        await answer_to(self._launcher, CheckSink(export), Answer)

    async def equip(self) -> None:
        """Run anew the sinks that get something else now, such as secrets or allowed places."""
        await self.follow([item for item in self._coordinator.state.all(Item) if item.sink])

    # --- what runs -----------------------------------------------------------------------------

    def accesses(self, spec: SinkSpec, find: Find | None = None) -> Accesses:
        """Return what a sink needs to reach its target.

        `find` gives objects that may have been dropped. Raises DatabaseError if a secret cannot be
        read.
        """
        coordinator = self._coordinator
        if isinstance(spec.target, PythonTarget):
            coordinator.ingestion.check_module(spec.target.module)
        given = accesses(coordinator, find or coordinator.state.get, connections_of(spec.target))
        if is_place(spec.target):
            given[PLACES] = Access("files", coordinator.copies.places.as_options())
        if isinstance(spec.target, WebhookTarget):
            given[SECRETS] = Access("webhook", secret_texts(coordinator, secrets_of(spec.target)))
        return given

    def target_name(self, id: str, spec: SinkSpec) -> str:
        """Return the name of a sink in its target, where several databases may write."""
        return f"foreshore_{(spec.written_as or self._lineage.database)[:12]}_{id}"

    async def check_relation(self, sink: GlobalId, time: Timestamp) -> None:
        """Raise DataError if the data of a sink's relation has an error; or UndefinedObject."""
        await check_errors(self._coordinator, self.relation(sink), time)

    def _described(self, item: Item, spec: SinkSpec) -> SinkDescription:
        assert item.cluster is not None, item
        coordinator = self._coordinator
        desc, given, obstacle = coordinator.catalog.planned[item.id].desc, {}, None
        hash: Scalar | None = None
        try:
            given = self.accesses(spec)
            hash = self._hash(item, spec, desc)
        except DatabaseError as error:
            obstacle = error.message
        obstacle = self._lost_right(item, spec) or obstacle
        paused = is_paused(self._lineage, item.id, spec)
        export = Export(self.target_name(item.id, spec), spec, desc, given, hash)
        return SinkDescription(
            item.id, item.cluster, export, PAUSED if paused else obstacle, paused
        )

    def _lost_right(self, item: Item, spec: SinkSpec) -> str | None:
        """Return the right that a sink's owner lacks, if any."""
        catalog = self._coordinator.catalog
        planned = catalog.planned[item.id]
        assert isinstance(planned.definition, Get), item.id
        needs = planned.needs or (Need(planned.definition.id, "SELECT"),)
        used = (*connections_of(spec.target), *secrets_of(spec.target))
        return obstacle_of(catalog.state, catalog.planned, item, needs, used, spec)

    def _hash(self, item: Item, spec: SinkSpec, desc: RelationDesc) -> Scalar | None:
        """Return PARTITION BY of a sink that has it."""
        if not isinstance(spec.target, KafkaTarget) or spec.target.partition_by is None:
            return None
        catalog = self._coordinator.catalog
        reader = DefinitionCatalog(catalog.state, catalog.planned, item)
        return partition_hash(reader, spec.target.partition_by, desc)

    # --- how far they are ----------------------------------------------------------------------

    def frontier(self, sink: GlobalId) -> Timestamp | None:
        """Return the time before which the target has all changes; None if it has nothing yet."""
        position = self._coordinator.subscriptions.position(sink)
        if position is None or not position.confirmed:
            return None
        if self._coordinator.subscriptions.previous(sink) is not None:
            return position.reached
        return max(position.reached, self._idle_before.get(sink, 0))

    def has_written(self, sink: GlobalId, time: Timestamp) -> bool:
        """Return whether the target of a sink has all changes up to `time`."""
        frontier = self.frontier(sink)
        return frontier is not None and frontier > time

    async def wait_for(self, sink: GlobalId, time: Timestamp) -> None:
        """Wait until the target of a sink has all changes up to `time`.

        Raises UndefinedObject if the sink is dropped meanwhile.
        """
        self._coordinator.storage.hurry(time + 1)
        while True:
            self.relation(sink)
            if self.has_written(sink, time):
                return
            await self._moved.wait()

    def _note_idle(self, sink: GlobalId, before: Timestamp) -> None:
        """Note that a sink which has written all changes has none to write before a time."""
        self._idle_before[sink] = before
        self._moved.set()

    # --- what they get -------------------------------------------------------------------------

    def begin(self, sink: GlobalId, frontier: Timestamp | None) -> Timestamp:
        """Return the time before which a sink has everything, when its target has `frontier`."""
        position = self._coordinator.subscriptions.position(sink)
        if position is None:
            raise UndefinedObject(f"sink {sink} was dropped")
        begins = self._beginning(sink, position, frontier)
        self._ends.setdefault(sink, (begins, begins))
        previous = self._previous(sink, begins)
        read = self.relation(sink) if previous is None else previous.relation
        since = self._coordinator.holds.since(read)
        if max(position.began, begins - 1) < since:
            raise TargetLost(
                "the history that the sink needs is lost",
                detail=f"The target has changes before {begins}, and later ones are known from"
                f" {since} on.",
                hint="Drop the sink and create it anew.",
            )
        return begins

    def _beginning(
        self, sink: GlobalId, position: Position, frontier: Timestamp | None
    ) -> Timestamp:
        if frontier is None or frontier == NOTHING:
            spec = self._coordinator.state.item(sink).sink
            if frontier is None and spec and not keeps_frontier(spec.target):
                return position.reached
            if position.confirmed:
                raise TargetLost(
                    "the target has lost how far the sink has come",
                    hint="Drop the sink and create it anew.",
                )
            return position.began
        if frontier <= position.as_of:
            raise TargetLost(
                f"the target has changes before {frontier} only",
                detail=f"The history before {position.reached} is not kept for it.",
                hint="Drop the sink and create it anew.",
            )
        spec, ends = self._coordinator.state.item(sink).sink, self._ends.get(sink)
        if ends is not None and frontier > position.reached and frontier not in ends:
            raise TargetLost(
                f"the target has changes before {frontier}, which this database has not written:"
                " another copy of it, such as one restored from a backup, writes there",
                hint="End one of the two. Then empty the target, drop the sink and create it anew.",
            )
        resumed = spec if spec and spec.resumed_in and ends is None else None
        if resumed and frontier > position.reached == resumed.resumed_from:
            raise TargetLost(
                f"the target has changes before {frontier}, which this database does not know",
                detail=f"The backup that it was restored from has them before {position.reached}"
                " only: the original database has written on.",
                hint="Empty the target, drop the sink and create it anew.",
            )
        if frontier > self._coordinator.oracle.read_ts() + 1:
            raise TargetLost(
                f"the target has changes before {frontier}, which this database does not know",
                hint="Another copy of the database has written to it.",
            )
        return frontier

    async def known_through(self, sink: GlobalId, frontier: Timestamp) -> Timestamp:
        """Wait until there are changes at `frontier` or later; return a time through which to go.

        The first interval begins at the sink's beginning, with the contents.
        """
        former = self._coordinator.subscriptions.previous(sink)
        if former is not None and frontier > former.cut:  # the target has told that it is beyond
            await self.exported(sink, frontier)
        while True:
            asked = self.relation(sink)
            relation, through = await self._through(sink, frontier)
            if self.relation(sink) == asked:  # else it was altered meanwhile
                break
        self._ends[sink], self._sent[sink] = (frontier, through + 1), relation
        return through

    async def _through(self, sink: GlobalId, frontier: Timestamp) -> tuple[GlobalId, Timestamp]:
        """Return the relation of the next interval, and the last time of it."""
        coordinator, relation = self._coordinator, self.relation(sink)
        position, previous = (
            coordinator.subscriptions.position(sink),
            self._previous(sink, frontier),
        )
        begins = position is None or frontier <= position.began
        spec = coordinator.state.item(sink).sink
        if previous is not None and begins and spec and not spec.with_snapshot:
            return previous.relation, frontier  # no row is read; its changes follow
        if previous is not None and not begins:
            former, cut = previous
            last = await last_changes(coordinator, former, frontier, cut)
            if last is not None:
                return former, last
        if begins or previous is not None:
            first = frontier if previous is None else max(frontier, previous.cut)
            await coordinator.wait_readable(relation, first)
            if spec and not spec.with_snapshot:  # no row is read
                return relation, first
            return relation, await sound_through(coordinator, relation, first)
        idle = partial(self._note_idle, sink)
        through = await changed(coordinator, relation, frontier, idle)
        through = await sound_through(coordinator, relation, through)
        # A view may be known beyond the present; ALTER SINK ... SET FROM may end it before that.
        newest = coordinator.oracle.read_ts()
        return relation, min(through, newest) if frontier <= newest else through

    def _previous(self, sink: GlobalId, frontier: Timestamp) -> Previous | None:
        """Return the relation before the present one, if a target has that at this frontier."""
        found = previous_of(self._coordinator.catalog, sink)
        return None if found is None or frontier > found.cut else found

    async def changes(
        self, sink: GlobalId, frontier: Timestamp, through: Timestamp
    ) -> AsyncGenerator[pa.Table, None]:
        """Yield the updates with frontier <= time <= through, or the contents at its beginning."""
        coordinator, present = self._coordinator, self.relation(sink)
        relation = self._sent.get(sink, present)
        position, previous = (
            coordinator.subscriptions.position(sink),
            self._previous(sink, frontier),
        )
        spec = coordinator.state.item(sink).sink
        begins = position is None or frontier <= position.began
        crosses = previous is not None and relation == present and not begins
        if not begins and not crosses:
            found = interval(coordinator, relation, frontier, through)
        elif not spec or not spec.with_snapshot:
            return
        elif previous is None or begins:
            found = contents(coordinator, relation, through)
        else:
            former = previous.relation
            found = changed_relation(coordinator, former, frontier - 1, relation, through)
        async with aclosing(found) as tables:
            async for table in tables:
                yield table

    async def exported(self, sink: GlobalId, upper: Timestamp) -> None:
        """Note durably that the target has everything before `upper`."""
        coordinator = self._coordinator
        before = coordinator.subscriptions.position(sink)
        if before is None:
            raise UndefinedObject(f"sink {sink} was dropped")
        name = coordinator.state.full_name(coordinator.state.item(sink))
        write = Write({})
        write.moves = {sink: Move(name, before, replace(before, reached=upper))}
        move_positions(write, coordinator.subscriptions)
        await coordinator.group.write(write)
        self._moved.set()

    def relation(self, sink: GlobalId) -> GlobalId:
        """Return the relation that a sink writes."""
        planned = self._coordinator.catalog.planned.get(sink)
        if planned is None:
            raise UndefinedObject(f"sink {sink} was dropped")
        assert isinstance(planned.definition, Get), sink
        return planned.definition.id


def secret_texts(coordinator: Exporting, ids: Iterable[str]) -> dict[str, str]:
    """Return the values of secrets by their ids; raises DatabaseError if one is no text."""
    found = {}
    for id in ids:
        try:
            found[id] = coordinator.secrets.read(id).decode()
        except UnicodeDecodeError:
            name = coordinator.state.objects[id].name
            raise InvalidParameterValue(f'the secret "{name}" is no text') from None
    return found
