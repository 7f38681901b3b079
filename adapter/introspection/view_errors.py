"""The errors of materialized views, stored in a table of the system.

`mz_internal.mz_materialized_view_errors` has a row for each time at which the least error of a view
changed; its error is NULL if the view had none from then on. Only the system writes the table. A
dataflow that continues another one's work reads the view's errors from it (`ErrorStore` in
`compute/controller/error_log.py`).

The table's contents are also in memory, so a write needs no read to know the rows it retracts. The
rows of a dropped view are deleted, at the latest by the next start. Once the table is corrupted it
is not written any more, and reading errors from it raises the corruption.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from foreshore.adapter.services.collections import Stored
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.state import VIEW_ERRORS
from foreshore.compute.controller.error_log import Steps
from foreshore.compute.controller.stored_errors import Row, StoredErrors, table_of
from foreshore.errors import AdminShutdown, CollectionCorrupted, OutOfDisk
from foreshore.expr.recursion import may_fail
from foreshore.ids import GlobalId
from foreshore.update import DIFF_FIELD, Timestamp

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class ViewErrors:
    """The table of one environment; `coordinator` returns its coordinator once that exists."""

    def __init__(self, coordinator: Callable[[], Stored]) -> None:
        self._coordinator = coordinator
        self._stored = StoredErrors()
        self._locks: defaultdict[GlobalId, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._corruption: CollectionCorrupted | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._storing: dict[GlobalId, asyncio.Task[None]] = {}

    async def open(self, time: Timestamp) -> None:
        """Read the table as of `time`, and delete the rows of views that do not exist."""
        coordinator = self._coordinator()
        read, _ = coordinator.capabilities[VIEW_ERRORS.id]
        try:
            with coordinator.storage.snapshot(read, time) as snapshot:
                rows = await snapshot.rows()
        except CollectionCorrupted as corruption:
            self._stop(corruption)
            return
        self._stored.load(rows)
        for id in self._stored:
            if self._is_gone(id):
                self.forget(id)

    def _is_gone(self, id: GlobalId) -> bool:
        return self._coordinator().state.get(id) is None

    def load(self, id: GlobalId) -> Steps:
        """Return the stored errors of a view.

        Raises CollectionCorrupted if the table is corrupted and the view may have errors.
        """
        if self._corruption is not None:
            coordinator = self._coordinator()
            relation = coordinator.catalog.relation_of(coordinator.state.item(id))
            if may_fail(relation):
                raise self._corruption
        return self._stored.of(id)

    async def store(self, id: GlobalId, times: Collection[Timestamp], steps: Steps) -> None:
        """Make durable that a view has exactly `steps` at `times`.

        The write continues if the caller is cancelled, so that the contents in memory stay exact.
        Raises OutOfDisk if nothing was written.
        """
        storing = self._storing[id] = self._spawn(self._store(id, times, steps))
        storing.add_done_callback(lambda _: self._storing.pop(id, None))
        await asyncio.shield(storing)

    async def settled(self, id: GlobalId) -> None:
        """Wait until the last errors of a view's ended dataflow are stored."""
        if (storing := self._storing.get(id)) is not None:
            await asyncio.wait([storing])

    async def _store(self, id: GlobalId, times: Collection[Timestamp], steps: Steps) -> None:
        if self._is_gone(id):  # no one would remove its lock
            return
        async with self._locks[id]:
            if self._is_gone(id):
                return
            rows = self._stored.difference(id, times, steps)
            if rows and self._corruption is None:
                await self._write(rows)
                self._stored.replace(id, times, steps)

    def forget(self, id: GlobalId) -> None:
        """Delete the rows of a dropped view, in the background."""
        if id in self._locks or id in self._stored:
            self._spawn(self._forget(id))

    async def _forget(self, id: GlobalId) -> None:
        async with self._locks[id]:
            rows = self._stored.difference(id, self._stored.of(id).keys(), {})
            while rows:
                try:
                    await self._write(rows)
                    break
                except OutOfDisk:
                    await asyncio.sleep(RETRY_SECONDS)
                except AdminShutdown:
                    return  # the next start deletes them
            self._stored.remove(id)
        del self._locks[id]

    async def _write(self, rows: list[Row]) -> None:
        coordinator = self._coordinator()
        schema = coordinator.catalog.planned[VIEW_ERRORS.id].desc.stored_schema().append(DIFF_FIELD)
        write = Write({VIEW_ERRORS.id: [table_of(rows, schema)]}, waits=False)
        try:
            await coordinator.group.write(write)
        except CollectionCorrupted as corruption:
            self._stop(corruption)

    def _stop(self, corruption: CollectionCorrupted) -> None:
        """Stop writing to the table."""
        logger.warning("errors of materialized views are kept no more: %s", corruption)
        self._corruption = self._corruption or corruption

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        """Log a failure, since its caller may be gone."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.info("errors of a view are not written", extra={"error": str(error)})

    async def close(self) -> None:
        """Cancel the running writes, which cannot commit any more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
