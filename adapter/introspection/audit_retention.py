"""Remove events of the audit that are older than `audit_retention`, in the background.

It looks every hour, and reads the audit only when the oldest event that it knows of is due, so that
a quiet system reads it once. Events go in commits of at most `MOST` rows.
"""

import asyncio
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.services.collections import Stored
from foreshore.adapter.services.engines import Engines
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.state import AUDIT_EVENTS
from foreshore.catalog.system_settings import system_setting
from foreshore.rows import negated
from foreshore.setting_kinds import milliseconds
from foreshore.upkeep import goes_on

LOOK_SECONDS = 3600.0
FIRST_LOOK_SECONDS = 60.0
LOCK_TIMEOUT_MS = 10_000
MOST = 10_000


class Audited(Stored, Engines, Protocol):
    """The audit, and threads for it."""


class AuditRetention:
    """Trims the audit of one environment."""

    def __init__(self, coordinator: Audited) -> None:
        self._coordinator = coordinator
        self._oldest_us: int | None = None  # of the events that are left; None: not known

    async def run(self) -> None:
        """Look every hour until cancelled, or until the audit is corrupted."""
        await asyncio.sleep(FIRST_LOOK_SECONDS)
        while await goes_on(self.trim, "the audit was not trimmed"):  # noqa: ASYNC110 - for time to pass
            await asyncio.sleep(LOOK_SECONDS)

    async def trim(self) -> None:
        """Remove the events that are due."""
        coordinator = self._coordinator
        kept_ms = milliseconds(system_setting(coordinator.state, "audit_retention"))
        now_us = coordinator.clock.now() * 1000
        if not kept_ms:
            return
        before = now_us - kept_ms * 1000
        if self._oldest_us is not None and self._oldest_us >= before:
            return
        read, _ = coordinator.capabilities[AUDIT_EVENTS.id]
        with coordinator.storage.snapshot(read, coordinator.oracle.read_ts()) as snapshot:
            present = await snapshot.rows()
        due, oldest = await blocking.run(coordinator.executor, _due, present, before)
        for start in range(0, due.num_rows, MOST):
            rows = [negated(due.slice(start, MOST))]
            await coordinator.group.write(
                Write({AUDIT_EVENTS.id: rows}, lock_timeout_ms=LOCK_TIMEOUT_MS)
            )
        self._oldest_us = now_us if oldest is None else oldest


def _due(present: pa.Table, before_us: int) -> tuple[pa.Table, int | None]:
    """Return the events before a time, and the time of the oldest one that is left."""
    times = present.column("occurred_at").cast(pa.int64())
    is_due = pc.less(times, before_us)
    left = pc.min(times.filter(pc.invert(is_due))).as_py()
    return present.filter(is_due), left
