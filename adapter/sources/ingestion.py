"""Ingestion as the coordinator sees it: which sources run, and the commit of their rows.

The rows of a source go through group commit like those of INSERT, so they have their place in the
order of all transactions, and a read after a commit sees them.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from foreshore.adapter.external.access import Find, accesses, affected_items
from foreshore.adapter.services.collections import Collections
from foreshore.adapter.services.copies import Copies
from foreshore.adapter.sources.inputs import SourceInputs
from foreshore.adapter.sources.schema_changes import SchemaChanges
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import Item, Object
from foreshore.catalog.watch import obstacle_of
from foreshore.errors import (
    CheckViolation,
    DatabaseError,
    InsufficientPrivilege,
    UndefinedObject,
)
from foreshore.ids import GlobalId
from foreshore.processes.launch import Launcher
from foreshore.sources.files import PLACES, FilesSource
from foreshore.sources.kafka import Messages
from foreshore.sources.outputs import LATE, PROGRESS
from foreshore.sources.postgres import PostgresSource
from foreshore.sources.python import MemoSource, PythonSource
from foreshore.sources.spec import (
    SourceSpec,
    connections_of,
    connections_of_messages,
    is_place,
    is_pushed,
    known_outputs,
    secrets_of,
)
from foreshore.storage.external.access import Access, Accesses
from foreshore.storage.external.request import answer_to, answer_with_tables
from foreshore.storage.ingest.controller import (
    IngestController,
    Progressed,
    SourceDescription,
)
from foreshore.storage.ingest.messages import (
    Answer,
    Discover,
    Discovered,
    OutputRelation,
    ReadRows,
    Validate,
    Validated,
)
from foreshore.storage.ingest.postgres.own_slot import with_own_slot
from foreshore.update import DIFF, DIFF_FIELD

if TYPE_CHECKING:
    from foreshore.adapter.client import OpenSession

logger = logging.getLogger(__name__)

MOST_PRESENT_ROWS = 1_000_000  # of a table that is read at once, as its columns have changed
PRESENT_ROWS_SECONDS = 10.0  # for these, as the catalog is locked meanwhile
ROWS_AT_ONCE = 65_536  # that a source reads of a relation of its own


class Ingesting(Collections, Protocol):
    """The services of the environment that sources use."""

    @property
    def copies(self) -> Copies:
        """The places where files may be read."""


class Ingestion:
    """The sources of one environment."""

    def __init__(self, coordinator: Ingesting, launcher: Launcher) -> None:
        self._coordinator = coordinator
        self._launcher = launcher
        self.python_modules: frozenset[str] = frozenset()  # that sources may import
        self._changes: SchemaChanges | None = None
        # One at a time: else a source might be started twice, or from its beginning.
        self._following = asyncio.Lock()
        self.inputs = SourceInputs(coordinator)
        self.controller = IngestController(
            launcher,
            self._commit,
            self._read,
            self.inputs,
            coordinator.clock,
            coordinator.storage.scratch,
        )

    async def open(self, open_session: "OpenSession") -> None:
        """Run the sources of the catalog from the positions in their shards."""
        self._changes = SchemaChanges(self._coordinator, self.controller, open_session)
        self.controller.ceased = self._changes.ceased
        for item in self._coordinator.state.all(Item):
            if item.feed and item.feed.spec is not None and not is_pushed(item.feed.spec):
                description = self._described(item, item.feed.spec)
                position = await self._position(description.progress)
                self.controller.start(description, position)

    async def follow(self, changed: Iterable[Object]) -> None:
        """Run new sources, stop dropped ones, and run anew those of which something changed.

        `changed` are the objects that the catalog has gained, lost or changed.
        """
        async with self._following:
            state = self._coordinator.state
            affected = [item for each in changed for item in affected_items(state, each)]
            ids = {GlobalId(item.feed.source) for item in affected if item.feed}
            # Those that are gone first: another may go on with the rows of one, under a new id.
            for id in sorted(ids, key=lambda id: id in state.objects):
                await self._follow_one(id)

    async def _follow_one(self, id: GlobalId) -> None:
        item = self._coordinator.state.get(id)
        running = self.controller.description(id)
        described = None
        spec = item.feed.spec if isinstance(item, Item) and item.feed else None
        if isinstance(item, Item) and spec is not None and not is_pushed(spec):
            described = self._described(item, spec)
        if described == running:
            return
        stopped = await self.controller.stop(id)
        if described is not None:
            position = None if stopped is None else stopped.position
            if position is None:  # it is new, or was altered and has another id
                position = await self._position(described.progress)
            self.controller.start(described, position, stopped)

    async def close(self) -> None:
        """End all processes."""
        if self._changes is not None:
            self._changes.close()
        await self.controller.close()

    # --- what runs -----------------------------------------------------------------------------

    async def discovered(self, spec: SourceSpec) -> Discovered:
        """Return the outputs of a source as its external system has them.

        Raises DatabaseError if that cannot be reached, or does not have what is asked for.
        """
        if (known := known_outputs(spec)) is not None:
            return Discovered(spec, dict(known))
        given = self.accesses(spec)
        found = await answer_to(self._launcher, Discover(spec, given), Answer)
        assert isinstance(found, Discovered), found
        return found

    async def validate(self, access: Access) -> Sequence[tuple[str, str | None]]:
        """Reach an external system; raises DatabaseError if that fails.

        Returns what it lacks for sources, as messages with hints.
        """
        found = await answer_to(self._launcher, Validate(access), Answer)
        assert isinstance(found, Validated), found
        return found.lacks

    async def rows_of(self, spec: SourceSpec, output: OutputRelation) -> pa.Table | None:
        """Return all rows of an output of a source as its system has them now, with `__diff`.

        None if there are more than MOST_PRESENT_ROWS. Raises DatabaseError, also if that takes
        longer than PRESENT_ROWS_SECONDS.
        """
        request = ReadRows(spec, output, self.accesses(spec), MOST_PRESENT_ROWS)
        _, tables = await answer_with_tables(self._launcher, request, Answer, PRESENT_ROWS_SECONDS)
        return tables[0] if tables else None

    async def equip(self) -> None:
        """Run anew the sources that get something else now, such as secrets or allowed places."""
        items = self._coordinator.state.all(Item)
        await self.follow([each for each in items if each.feed and each.feed.spec is not None])

    def check_module(self, module: str) -> None:
        """Raise InsufficientPrivilege unless sources and sinks may import a Python module."""
        if module not in self.python_modules:
            raise InsufficientPrivilege(
                f'the module "{module}" is not allowed',
                hint="The server's option --python-source-module names those that are.",
            )

    def accesses(
        self,
        spec: SourceSpec,
        tables: Iterable[Messages | None] = (),
        find: Find | None = None,
    ) -> Accesses:
        """Return what a source needs to reach its external system, and to decode for its tables.

        `find` gives objects that may have been dropped. Raises DatabaseError if a secret cannot be
        read, or a module is not allowed.
        """
        if isinstance(spec, PythonSource | MemoSource):
            self.check_module(spec.module)
        coordinator = self._coordinator
        needed = dict.fromkeys(connections_of(spec))
        for each in tables:
            needed |= dict.fromkeys(connections_of_messages(each))
        given = accesses(coordinator, find or coordinator.state.get, tuple(needed))
        if isinstance(spec, FilesSource) or is_place(spec):
            given[PLACES] = Access("files", coordinator.copies.places.as_options())
        return given

    def own_spec(self, item: Item, spec: SourceSpec) -> SourceSpec:
        """Return what a source reads here: in a restored database not by the original's slot."""
        lineage = self._coordinator.lineage
        if isinstance(spec, PostgresSource) and lineage.is_inherited(item.id):
            return with_own_slot(spec, lineage)
        return spec

    def _described(self, item: Item, spec: SourceSpec) -> SourceDescription:
        assert item.cluster is not None, item
        coordinator, spec = self._coordinator, self.own_spec(item, spec)
        planned = coordinator.catalog.planned
        outputs = {
            each.feed.reference: OutputRelation(
                each.id, planned[each.id].desc, each.feed.details, each.feed.messages
            )
            for each in (item, *coordinator.state.items_of(parts_of(item.id)))
            if each.feed
        }
        progress = outputs.pop(PROGRESS).id
        for reference in [each for each in outputs if each.startswith(LATE)]:
            del outputs[reference]
        given, obstacle = {}, None
        try:
            given = self.accesses(spec, [each.messages for each in outputs.values()])
        except DatabaseError as error:
            obstacle = error.message
        used = dict.fromkeys((*connections_of(spec), *secrets_of(spec)))
        for each in outputs.values():
            used |= dict.fromkeys(connections_of_messages(each.messages))
        obstacle = obstacle_of(coordinator.state, planned, item, (), used, spec) or obstacle
        return SourceDescription(item.id, item.cluster, spec, outputs, progress, given, obstacle)

    async def _position(self, progress: GlobalId) -> dict[str, int]:
        """Return the durable position of a source, from the relation that has it."""
        return {
            part: offset
            async for table in self._read(progress)
            for part, offset in zip(
                *(table[c].to_pylist() for c in ("part", "offset")), strict=True
            )
        }

    async def _read(self, output: GlobalId) -> AsyncGenerator[pa.Table, None]:
        coordinator = self._coordinator
        read, _ = coordinator.capabilities[output]
        with coordinator.storage.snapshot(read, coordinator.oracle.read_ts()) as snapshot:
            async with aclosing(snapshot.parts()) as parts:
                async for part in parts:
                    for start in range(0, part.num_rows, ROWS_AT_ONCE):
                        yield part.slice(start, ROWS_AT_ONCE)

    async def caught_up(self, id: GlobalId) -> None:
        """Wait until all is durable here that the external system of a source has now.

        Raises FeatureNotSupported if the source cannot say.
        """
        while not await self.controller.caught_up(id):
            async with self._following:  # it may be run anew, as its connection was altered
                if self.controller.description(id) is None:
                    return

    # --- commits -------------------------------------------------------------------------------

    async def _commit(self, progressed: Progressed) -> None:
        try:
            await self._write(progressed)
        except CheckViolation:  # the clock moved a watermark after late rows were separated
            await self._write(progressed)

    async def _write(self, progressed: Progressed) -> None:
        coordinator, planned = self._coordinator, self._coordinator.catalog.planned
        ids = (progressed.progress, *progressed.rows)
        if any(id not in planned for id in ids):
            raise UndefinedObject("a relation of the source was dropped")
        rows: dict[GlobalId, Sequence[pa.Table]] = {
            id: [_shaped(part, planned[id].desc.stored_schema()) for part in parts]
            for id, parts in progressed.rows.items()
        }
        for id in progressed.rows:
            await self._separate_late(id, rows)
        schema = planned[progressed.progress].desc.stored_schema()
        rows[progressed.progress] = [_moved(progressed, schema)]
        write = Write({**rows})
        self.inputs.move(write, coordinator.state.item(progressed.progress), progressed.after)
        await coordinator.group.write(write)

    async def _separate_late(self, id: GlobalId, rows: dict[GlobalId, Sequence[pa.Table]]) -> None:
        """Move the rows of a relation that are below its watermark to that of late rows.

        The source is the only one that writes it, one commit after the other. But the clock may
        move the watermark at any time.
        """
        coordinator, watermarks = self._coordinator, self._coordinator.watermarks
        if watermarks.of(id) is None:
            return
        await watermarks.ready(id)
        split = [watermarks.split(id, part) for part in rows[id]]
        late = [each for _, each in split if each is not None]
        if not late:
            return
        state = coordinator.state
        parts = state.items_of(parts_of(id))
        beside = next(each for each in parts if each.feed and each.feed.reference.startswith(LATE))
        schema = coordinator.catalog.planned[beside.id].desc.stored_schema()
        rows[id] = [each for each, _ in split]
        rows[beside.id] = [_shaped(each, schema) for each in late]


def _shaped(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with `__diff` in a shard's schema."""
    return part.select([*schema.names, DIFF]).cast(schema.append(DIFF_FIELD))


def _moved(progressed: Progressed, schema: pa.Schema) -> pa.Table:
    """Return the change of the position as rows with `__diff`."""
    found = [(part, offset, -1) for part, offset in progressed.before.items()]
    found += [(part, offset, 1) for part, offset in progressed.after.items()]
    parts, offsets, diffs = zip(*found, strict=True)
    arrays = [pa.array(parts, schema.field(0).type), pa.array(offsets, schema.field(1).type)]
    return pa.Table.from_arrays(
        [*arrays, pa.array(diffs, pa.int64())], schema=schema.append(DIFF_FIELD)
    )
