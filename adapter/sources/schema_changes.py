"""SCHEMA CHANGES = APPLY: a table that ceases, as it has changed, is refreshed by itself.

The statement is the one that users have, in a session of the source's owner. It is tried again,
after growing pauses, until the table goes on or is dropped.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from foreshore.adapter.external.details import table_of
from foreshore.adapter.services.names import Names
from foreshore.catalog.item import Item
from foreshore.catalog.roles import role_with
from foreshore.errors import DatabaseError, DependentObjectsStillExist, InternalError
from foreshore.ids import GlobalId
from foreshore.sources.files import FilesSource
from foreshore.sources.iceberg import IcebergSource
from foreshore.sources.postgres import PostgresSource
from foreshore.sql.rewrite.full_names import dotted
from foreshore.storage.external.retries import waits
from foreshore.storage.ingest.controller import IngestController, SourceDescription
from foreshore.storage.ingest.statuses import OutputStatus

if TYPE_CHECKING:
    from foreshore.adapter.client import OpenSession

logger = logging.getLogger(__name__)


class SchemaChanges:
    """Refreshes the tables of one environment; owned by the event loop."""

    def __init__(
        self, coordinator: Names, controller: IngestController, open_session: "OpenSession"
    ) -> None:
        self._coordinator, self._controller = coordinator, controller
        self._open_session = open_session
        self._refreshing: dict[GlobalId, asyncio.Task[None]] = {}  # by tables

    def ceased(self, source: SourceDescription, table: GlobalId) -> None:
        """Refresh a table of a source that has ceased, if the source wants that."""
        spec = source.spec
        if not isinstance(spec, PostgresSource | FilesSource | IcebergSource):
            return
        if spec.applies_changes and table not in self._refreshing:
            task = asyncio.get_running_loop().create_task(self._refresh(source.id, table))
            self._refreshing[table] = task
            task.add_done_callback(lambda done: self._refreshing.pop(table, None))

    def close(self) -> None:
        """Refresh no more."""
        for task in self._refreshing.values():
            task.cancel()

    async def _refresh(self, source: GlobalId, table: GlobalId) -> None:
        pauses = waits()
        while (status := self._status(source, table)) is not None:
            refusal: DatabaseError
            try:
                await self._run(source, table)
                return
            except DatabaseError as error:
                refusal = error
                logger.warning(
                    "a schema change is not applied: %s", error, extra={"source": source}
                )
            except Exception:
                refusal = InternalError("internal error")
                logger.exception("a schema change is not applied", extra={"source": source})
            status.refused = self._told(source, table, refusal)
            self._controller.show_refusal(table, status)
            await asyncio.sleep(next(pauses))

    def _told(self, source: GlobalId, table: GlobalId, error: DatabaseError) -> str:
        """Return an error in one line, with what helps."""
        hint = error.hint
        if isinstance(error, DependentObjectsStillExist) and not (hint and "CREATE TABLE" in hint):
            state = self._coordinator.state
            item, part = state.item(source), state.item(table)
            assert part.feed, part
            hint = "Drop that, or read the table beside this one by another source"
            if source != table:
                name = table_of(part.feed)
                again = f"CREATE TABLE ... FROM SOURCE {item.name} (REFERENCE {name})"
                hint = f"Drop that, or read the table beside this one: {again}"
        said = [error.message, *(error.detail or "").splitlines()[:1]]
        return f"{': '.join(said)} ({hint})" if hint else ": ".join(said)

    def _status(self, source: GlobalId, table: GlobalId) -> OutputStatus | None:
        """Return the status of a table if it is there and has ceased."""
        found = self._controller.statuses().get(source)
        status = None if found is None else found.outputs.get(table)
        is_there = table in self._coordinator.state.objects
        return status if is_there and status is not None and status.state == "ceased" else None

    async def _run(self, source: GlobalId, table: GlobalId) -> None:
        state = self._coordinator.state
        item, part = state.item(source), state.item(table)
        assert isinstance(item, Item), source
        owner, (database, *_) = role_with(state, item.owner), state.full_name(item)
        names = [dotted(state.full_name(each)) for each in (item, part)]
        variables = {"application_name": f"foreshore source {item.name}"}
        session = self._open_session(owner, database, variables)
        try:
            async for _ in session.simple(f"ALTER SOURCE {names[0]} REFRESH TABLE {names[1]}"):
                pass
        finally:
            await session.close()
