"""Ingestion as the coordinator sees it: which sources run, and the commit of their rows.

The rows of a source go through group commit like those of INSERT, so they have their place in the
order of all transactions, and a read after a commit sees them.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.transaction.write import Write
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import Item, Object
from foreshore.errors import UndefinedObject
from foreshore.ids import GlobalId
from foreshore.processes.launch import Launcher
from foreshore.source_spec import PROGRESS
from foreshore.storage.ingest.controller import IngestController, Progressed, SourceDescription
from foreshore.update import DIFF, DIFF_FIELD

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator


class Ingestion:
    """The sources of one environment."""

    def __init__(self, coordinator: "Coordinator", launcher: Launcher) -> None:
        self._coordinator = coordinator
        self.controller = IngestController(launcher, self._commit, coordinator.clock)

    async def open(self) -> None:
        """Run the sources of the catalog from the positions in their shards."""
        for item in self._coordinator.state.all(Item):
            if item.feed and item.feed.spec is not None:
                description = self._described(item)
                position = await self._position(description.progress)
                self.controller.start(description, position)

    async def follow(self, created: Iterable[Object], dropped: Iterable[Object]) -> None:
        """Run new sources, stop dropped ones, and run anew those whose parts were dropped."""
        for item in dropped:
            if not isinstance(item, Item) or not item.feed:
                continue
            position = await self.controller.stop(GlobalId(item.feed.source))
            source = self._coordinator.state.get(item.feed.source)
            if position is not None and isinstance(source, Item):
                self.controller.start(self._described(source), position)
        for item in created:
            if isinstance(item, Item) and item.feed and item.feed.spec is not None:
                self.controller.start(self._described(item), {})

    async def close(self) -> None:
        """End all processes."""
        await self.controller.close()

    # --- what runs -----------------------------------------------------------------------------

    def _described(self, item: Item) -> SourceDescription:
        assert item.feed, item
        assert item.feed.spec is not None, item
        assert item.cluster is not None, item
        parts = self._coordinator.state.items_of(parts_of(item.id))
        outputs = {each.feed.reference: each.id for each in (item, *parts) if each.feed}
        progress = outputs.pop(PROGRESS)
        return SourceDescription(item.id, item.cluster, item.feed.spec, outputs, progress)

    async def _position(self, progress: GlobalId) -> dict[str, int]:
        """Return the durable position of a source, from the relation that has it."""
        coordinator = self._coordinator
        read, _ = coordinator.capabilities[progress]
        with coordinator.storage.snapshot(read, coordinator.oracle.read_ts()) as snapshot:
            rows = (await snapshot.contents()).to_pylist()
        return {row["part"]: row["offset"] for row in rows}

    # --- commits -------------------------------------------------------------------------------

    async def _commit(self, progressed: Progressed) -> None:
        coordinator, planned = self._coordinator, self._coordinator.catalog.planned
        ids = (progressed.progress, *progressed.rows)
        if any(id not in planned for id in ids):
            raise UndefinedObject("a relation of the source was dropped")
        rows: dict[GlobalId, Sequence[pa.Table]] = {
            id: [_shaped(part, planned[id].desc.stored_schema()) for part in parts]
            for id, parts in progressed.rows.items()
        }
        schema = planned[progressed.progress].desc.stored_schema()
        rows[progressed.progress] = [_moved(progressed, schema)]
        await coordinator.group.write(Write({**rows}))


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
