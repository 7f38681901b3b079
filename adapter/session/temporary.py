"""Temporary objects: a session's own, under names that hide all others, gone with the session.

They are items of the catalog like any other, in a schema for each session, but have no rows in the
catalog's shard. So all that works on a table works on them, and after a restart they are not there:
their shards are in no catalog, and what is in no catalog is dropped at a start.

    CREATE TEMP ...        makes the schema, if there is none, and the item in it
    COMMIT                 sees to ON COMMIT: such rows are never written, such tables never shown
    DISCARD TEMP           drops the items
    the session's end      leaves a schema of nobody, which `TemporarySchemas` drops a moment later
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from foreshore.adapter.coordinator import Coordinator
from foreshore.adapter.ddl.drop import drop_objects
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.catalog_commit import CatalogChange
from foreshore.adapter.transaction.group_commit import Write
from foreshore.catalog.state import PERMANENT
from foreshore.errors import DatabaseError

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session

logger = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 1.0


def before_commit(context: StatementContext) -> None:
    """Do what ON COMMIT says of the session's tables to the transaction that is to be committed."""
    items = context.planner.state.temporary_items(context.temporary_schema)
    for item in items:
        if item.on_commit == "delete rows":  # as every time: there are no others than its own
            context.transaction.unwrite(item.id)
    if dropped := [item for item in items if item.on_commit == "drop"]:
        drop_objects(context, dropped, cascade=True)


def discard(context: StatementContext) -> None:
    """Drop all temporary objects of the session, in its transaction."""
    if items := context.planner.state.temporary_items(context.temporary_schema):
        drop_objects(context, items, cascade=True)


class TemporarySchemas:
    """Drops what sessions have left behind; all that was left together in one change."""

    def __init__(self, coordinator: Coordinator, sessions: Mapping[int, "Session"]) -> None:
        """`sessions` are those that have not ended, at any time."""
        self._coordinator = coordinator
        self._sessions = sessions
        self._left = asyncio.Event()

    def left(self) -> None:
        """Hear that a session has ended."""
        self._left.set()

    async def run(self) -> None:
        """Drop what was left whenever a session ends, until cancelled.

        What fails is tried again. So is looking: a statement that was under way when its client
        went may make a schema after the session's end.
        """
        while True:
            try:
                async with asyncio.timeout(SWEEP_INTERVAL_S):
                    await self._left.wait()
            except TimeoutError:
                pass
            self._left.clear()
            try:
                await self.sweep()
            except DatabaseError:
                logger.warning("temporary objects not dropped yet", exc_info=True)
                await asyncio.sleep(SWEEP_INTERVAL_S)

    async def sweep(self) -> None:
        """Drop the temporary schemas of sessions that have ended."""
        live = {each.temporary_schema for each in self._sessions.values()}
        change = self._coordinator.catalog.transaction()
        for schema in change.base.parts:
            if schema != PERMANENT and schema not in live:
                change.drop_temporary(schema)
        if change.changed:
            await self._coordinator.catalog_commits.commit(Write({}), CatalogChange(change))
