"""The audit: now and then a random materialized view is verified as of a random time.

Every `interval` seconds one view is computed from scratch, as VERIFY MATERIALIZED VIEW does, as of
a time that is drawn from those which it can be read at. `mz_internal.mz_view_audits` has the last
audit of each view. A view that differs is named in the log, and counted in the metrics.

It is off unless the server is started with `--audit-interval`.
"""

import asyncio
import logging
import random
from contextlib import suppress
from typing import Protocol

from prometheus_client import Counter

from foreshore.adapter.client import Rows, Session, Startup
from foreshore.adapter.services.collections import Collections
from foreshore.adapter.services.process import Audit, Process
from foreshore.catalog.item import Item, Role
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.sql.rewrite.full_names import dotted
from foreshore.update import EMPTY, Timestamp
from foreshore.upkeep import goes_on

AUDITS = Counter("foreshore_view_audits", "Audits of materialized views, by outcome.", ["outcome"])
MOST_SECONDS = 600  # of one audit

logger = logging.getLogger(__name__)


class State(Collections, Process, Protocol):
    """The collections, and what was found."""


class Audited(Protocol):
    """An environment whose views are audited."""

    @property
    def coordinator(self) -> State:
        """Its collections."""

    async def connect(self, startup: Startup) -> Session:
        """Begin a session."""


class Auditor:
    """Audits the views of one environment, one at a time."""

    def __init__(self, environment: Audited, chosen: random.Random) -> None:
        self._environment = environment
        self._chosen = chosen

    async def run(self, interval: float) -> None:
        """Audit a view every `interval` seconds until cancelled."""
        while True:
            await asyncio.sleep(interval)
            await goes_on(self.audit_one, "an audit has failed")

    async def audit_one(self) -> None:
        """Audit a random view; none if there is none that can be read."""
        coordinator = self._environment.coordinator
        found: list[tuple[Item, Timestamp, Timestamp]] = []
        for item in coordinator.state.all(Item):
            if item.type == "materialized view" and not item.refresh and not item.temporary:
                ids = (item.id, *coordinator.catalog.sources(item.id))
                ids = tuple(id for id in ids if id in coordinator.holds.collections)
                since = max(map(coordinator.since, ids))
                upper = min(map(coordinator.upper, ids))
                last = coordinator.oracle.read_ts() if upper == EMPTY else upper - 1
                if since <= last:
                    found.append((item, since, last))
        if found:
            item, since, last = self._chosen.choice(found)
            await self.audit(item, self._chosen.randint(since, last))

    async def audit(self, item: Item, time: Timestamp) -> None:
        """Verify a view as of a time, and keep what that has found."""
        coordinator = self._environment.coordinator
        began = coordinator.clock.now()
        differences, error = 0, None
        try:
            async with asyncio.timeout(MOST_SECONDS):
                differences = await self._differences(item, time)
        except DatabaseError as caught:
            error = f"{caught.sqlstate} {caught.message}"
        except TimeoutError:
            error = f"it takes longer than {MOST_SECONDS} s"
        now = coordinator.clock.now()
        outcome = "unknown" if error is not None else "different" if differences else "equal"
        AUDITS.labels(outcome).inc()
        coordinator.audits[item.id] = Audit(
            time, now * 1000, (now - began) / 1000, differences if error is None else None, error
        )
        for id in coordinator.audits.keys() - coordinator.state.objects.keys():
            del coordinator.audits[GlobalId(id)]
        if differences:
            logger.error(
                "materialized view %s differs from its query in %d rows as of %d",
                item.name,
                differences,
                time,
            )

    async def _differences(self, item: Item, time: Timestamp) -> int:
        """Return how many distinct rows differ."""
        state = self._environment.coordinator.state
        name = state.full_name(item)
        role = next(role for role in state.all(Role) if role.superuser)
        settings = {"application_name": "audit"}
        session = await self._environment.connect(Startup(role.name, name[0], settings))
        rows = 0
        try:
            sql = f"VERIFY MATERIALIZED VIEW {dotted(name)} AS OF {time}"
            async for execution in session.simple(sql):
                assert isinstance(execution, Rows), execution
                async for batch in execution.batches:
                    rows += batch.num_rows
        finally:
            with suppress(DatabaseError):
                await session.close()
        return rows
