"""Removes what dropped sources and sinks have left in other systems, in the background.

The catalog's shard has the list (`catalog/leftovers.py`). Each removal is tried until it succeeds,
also after restarts, or until `mz_forget_leftover` gives it up. A try takes a process of its own.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from foreshore.adapter.external.access import Find
from foreshore.adapter.external.inherited import is_paused
from foreshore.adapter.services.collections import Stored
from foreshore.adapter.services.leftovers import Removal
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.builtin.relation import Row
from foreshore.catalog.durable import CATALOG_SHARD, left
from foreshore.catalog.item import Item, Object
from foreshore.catalog.leftovers import Leftover, leftover
from foreshore.catalog.rights import owns
from foreshore.errors import DatabaseError, InsufficientPrivilege
from foreshore.ids import GlobalId
from foreshore.processes.launch import Launcher
from foreshore.sinks import spec as sinks
from foreshore.sinks.spec import SinkSpec
from foreshore.sources import spec as sources
from foreshore.sources.spec import SourceSpec
from foreshore.storage.export.messages import Answer as ExportAnswer
from foreshore.storage.export.messages import DisposeSink, Export
from foreshore.storage.external.access import Accesses
from foreshore.storage.external.request import answer_to
from foreshore.storage.external.retries import error_text
from foreshore.storage.ingest.messages import Answer as IngestAnswer
from foreshore.storage.ingest.messages import Dispose
from foreshore.types import Datum, RelationDesc

if TYPE_CHECKING:
    from foreshore.adapter.statement.context import StatementContext

logger = logging.getLogger(__name__)

AT_ONCE = 2  # tries, as each starts a process


class Sources(Protocol):
    """How sources reach their systems."""

    def own_spec(self, item: Item, spec: SourceSpec) -> SourceSpec:
        """Return what a source reads here: in a restored database not by the original's slot."""

    def accesses(self, spec: SourceSpec, *, find: Find) -> Accesses:
        """Return what a source needs to reach its external system."""


class Sinks(Protocol):
    """How sinks reach their targets."""

    def target_name(self, id: str, spec: SinkSpec) -> str:
        """Return the name of a sink in its target."""

    def accesses(self, spec: SinkSpec, find: Find) -> Accesses:
        """Return what a sink needs to reach its target."""


class Leaving(Stored, Protocol):
    """The services that are asked about leftovers."""

    @property
    def ingestion(self) -> Sources:
        """Sources that run."""

    @property
    def exports(self) -> Sinks:
        """Sinks that run."""

    @property
    def ingest(self) -> Launcher:
        """Starts processes of sources."""

    @property
    def export(self) -> Launcher:
        """Starts processes of sinks."""


class Leftovers:
    """The leftovers of one environment; owned by the event loop."""

    def __init__(self, coordinator: Leaving) -> None:
        self._coordinator = coordinator
        self._removals: dict[GlobalId, Removal] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    def open(self, stored: Mapping[GlobalId, Leftover]) -> None:
        """Load what the catalog's shard has; `begin` has it removed."""
        self._removals = {id: Removal(each) for id, each in stored.items()}

    def removals(self) -> Sequence[Removal]:
        """Return all that is not removed yet."""
        return tuple(self._removals.values())

    def left_by(self, dropped: Iterable[Object], remain: Iterable[Object]) -> list[Leftover]:
        """Return what objects leave that are about to be dropped, unless one of others uses it."""
        used = {left.what for each in remain if (left := self._left_by(each)) is not None}
        found = [left for each in dropped if (left := self._left_by(each)) is not None]
        return [each for each in found if each.what not in used]

    def add(self, more: Iterable[Leftover]) -> None:
        """Note leftovers that have become durable."""
        self._removals |= {each.id: Removal(each) for each in more}

    def begin(self) -> None:
        """Begin to remove what nobody removes yet."""
        loop = asyncio.get_running_loop()
        for removal in self._removals.values():
            if removal.task is None:
                removal.task = loop.create_task(self._remove(removal))

    def follow(self, changed: Iterable[Object]) -> None:
        """Try those again at once that changed connections or secrets may help."""
        changed = list(changed)
        for removal in self._removals.values():
            if any(map(removal.leftover.needs, changed)):
                removal.pauses.cut_short()

    async def forget(self, id: GlobalId) -> bool:
        """Remove a leftover from the list, durably; return whether it was there."""
        removal = self._removals.pop(id, None)
        if removal is None:
            return False
        write = Write({CATALOG_SHARD: ()})
        write.at = lambda time: {CATALOG_SHARD: left((), time, without=[removal.leftover])}
        try:
            await self._coordinator.group.write(write)
        except BaseException:
            self._removals[id] = removal
            raise
        if removal.task is not None and removal.task is not asyncio.current_task():
            removal.task.cancel()
        return True

    async def close(self) -> None:
        """End all tries; the next start goes on."""
        tasks = [each.task for each in self._removals.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- one of them ---------------------------------------------------------------------------

    def _left_by(self, each: Object) -> Leftover | None:
        """Return what an object would leave, if it were dropped now."""
        coordinator = self._coordinator
        if not isinstance(each, Item):
            return None
        state, now = coordinator.state, coordinator.clock.now()
        if each.feed and each.feed.spec is not None:
            source = coordinator.ingestion.own_spec(each, each.feed.spec)
            what, uses = sources.left_by(source), sources.connections_of(source)
            return None if what is None else leftover(state, each, what, uses, now, source=source)
        if not each.sink or is_paused(coordinator.lineage, each.id, each.sink):
            return None
        if each.sink.written_as:
            return None  # the database that this was restored from may still use it
        name = coordinator.exports.target_name(each.id, each.sink)
        what, uses = sinks.left_by(each.sink.target, name), sinks.connections_of(each.sink.target)
        return None if what is None else leftover(state, each, what, uses, now, name)

    async def _remove(self, removal: Removal) -> None:
        """Try to remove a leftover until that succeeds."""
        kept = removal.leftover

        def announce(seconds: float) -> None:
            removal.next_try = self._coordinator.clock.now() + round(seconds * 1000)

        while True:
            try:
                async with self._room:
                    removal.tries, removal.next_try = removal.tries + 1, None
                    await self._dispose(kept)
                await self.forget(kept.id)
            except (DatabaseError, OSError) as error:
                _note(removal, error_text(error))
            except Exception:
                logger.exception("%s is not removed", kept.what, extra={"id": kept.id})
                _note(removal, "internal error")
            else:
                logger.info("%s is removed", kept.what, extra={"id": kept.id})
                return
            await removal.pauses.pause(announce)

    async def _dispose(self, kept: Leftover) -> None:
        """Have a process remove a leftover; raises DatabaseError if that fails."""
        coordinator = self._coordinator

        def find(id: str) -> Object | None:
            return kept.find(coordinator.state, id)

        if kept.source is not None:
            dispose = Dispose(kept.source, coordinator.ingestion.accesses(kept.source, find=find))
            await answer_to(coordinator.ingest, dispose, IngestAnswer)
        elif kept.sink is not None:
            given = coordinator.exports.accesses(kept.sink, find)
            export = Export(kept.written_as, kept.sink, RelationDesc((), ()), given)
            await answer_to(coordinator.export, DisposeSink(export), ExportAnswer)


def _note(removal: Removal, error: str) -> None:
    """Note why a try has failed; the log has each reason once."""
    if error != removal.error:
        kept = removal.leftover
        logger.warning(
            "%s of a dropped object is left: %s", kept.what, error, extra={"id": kept.id}
        )
    removal.error = error


async def forget(context: "StatementContext", id: Datum) -> bool | None:
    """Give up a removal, as its owner or a superuser; return whether there was one."""
    leftovers = context.feeds.leftovers
    found = next((each.leftover for each in leftovers.removals() if each.leftover.id == id), None)
    if found is None:
        return None if id is None else False
    if not owns(context.planner.state, context.role, found.owner):
        raise InsufficientPrivilege(f"must be owner of the dropped object {found.name}")
    return await leftovers.forget(found.id)


def rows(removals: Iterable[Removal]) -> Iterator[Row]:
    """Yield the rows of mz_leftovers."""
    for each in removals:
        kept = each.leftover
        yield {
            "id": kept.id,
            "name": kept.name,
            "type": "sink" if kept.source is None else "source",
            "leftover": kept.what,
            "connection_id": kept.connection,
            "dropped_at": kept.dropped_at * 1000,
            "tries": each.tries,
            "error": each.error,
            "next_try_at": None if each.next_try is None else each.next_try * 1000,
        }
