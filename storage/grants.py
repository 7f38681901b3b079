"""Grants: acquires, clones, downgrades and expires capabilities on the shards of a controller.

Every change is an event of the log. A downgrade of a read capability is piggybacked on the next
record, since no caller waits for it; everything else is durable on return.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from foreshore.clock import Clock
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.storage.capability import (
    AnyCapability,
    Capability,
    ReadCapability,
    Tokens,
    WriteCapability,
    downgraded,
    grant_of,
)
from foreshore.storage.corruption import Corruptions
from foreshore.storage.expiry import TICK_SECONDS, Expiry
from foreshore.storage.lease import Leases
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.piggyback import PiggybackedEvents
from foreshore.storage.reader import ShardReader
from foreshore.storage.record import Downgraded, Expired, Grant, Granted
from foreshore.storage.shard import Shard
from foreshore.storage.wal import Entry, Wal
from foreshore.update import EMPTY, Timestamp

logger = logging.getLogger(__name__)


class ShardGrants(ShardReader):
    """Manages the capabilities on the shards of a controller."""

    def __init__(
        self,
        shards: dict[GlobalId, Shard],
        files: LocalFiles,
        leases: Leases,
        corruptions: Corruptions,
        wal: Wal,
        piggybacked: PiggybackedEvents,
        epoch: int,
        clock: Clock,
    ) -> None:
        super().__init__(shards, files, leases, corruptions)
        self.epoch = epoch
        self._wal = wal
        self._piggybacked = piggybacked
        self._tokens = Tokens(epoch)
        self._dropped: set[GlobalId] = set()
        self._expiry = Expiry(clock)
        self._expiry_timer: asyncio.TimerHandle | None = None

    async def confirm(self) -> None:
        """Return when everything requested before is durable; one record covers all downgrades."""
        await self._wal.log([], lambda: None)

    async def acquire_capabilities(
        self, ids: Iterable[GlobalId], lease_ms: int | None = None
    ) -> dict[GlobalId, tuple[ReadCapability, WriteCapability]]:
        """Return new capabilities at since and upper, durably, replacing lost ones.

        Capabilities of earlier environments end, except leases. A frontier that was given up, by
        its last holder or by dropping the shard, cannot be regained: that capability is at EMPTY
        and allows nothing.
        """
        acquired = {}
        grants: list[tuple[GlobalId, Grant]] = []
        for id in ids:
            shard = None if id in self._dropped else self._shard(id)
            since, upper = (shard.since, shard.upper) if shard is not None else (EMPTY, EMPTY)
            if shard is not None and shard.reserved == EMPTY:
                upper = EMPTY  # once the write in flight is durable
            read = ReadCapability(self._tokens.issue(), id, since)
            write = WriteCapability(self._tokens.issue(), id, upper)
            acquired[id] = read, write
            if shard is None:
                continue
            shard.capabilities.end_earlier_epochs(self.epoch)
            for capability in (read, write):
                if capability.frontier != EMPTY:
                    grant = self._grant(shard, capability, lease_ms)
                    grants.append((id, grant))
        if grants:
            await self._wal.log(Granted(tuple(grants), True), lambda: None)
        return acquired

    async def clone_capability(
        self, capability: Capability, lease_ms: int | None = None
    ) -> Capability:
        """Return another capability on the same shard at the same frontier, durably.

        With `lease_ms` it expires unless a heartbeat arrives in every interval of that length. The
        clone of a lease is a lease too.
        """
        shard = self._shard(capability.id)
        held = shard.capabilities.check(capability)
        clone = replace(capability, token=self._tokens.issue())
        grant = self._grant(shard, clone, held.lease_ms if lease_ms is None else lease_ms)
        try:
            await self._wal.log(Granted(((clone.id, grant),), False), lambda: None)
        except asyncio.CancelledError:
            self._expiry.forget([clone.token])
            with suppress(DatabaseError):  # the log has ended, and this entry with it
                self._end_lost(shard, clone.token)  # no one will receive the clone
            raise
        return clone

    async def downgrade_capability(self, capability: Capability, frontier: Timestamp) -> Capability:
        """Return the capability with its frontier advanced to `frontier`; EMPTY drops it.

        For a read capability, this takes effect at once and becomes durable with the next record,
        see `confirm`. For a write capability, it is durable on return, and upper is then at least
        the least frontier of the remaining writers.
        """
        shard = self._shard(capability.id)
        shard.capabilities.check(capability)
        lower = downgraded(capability, frontier)
        if frontier == EMPTY:
            await self.drop_capability(capability)
            return lower
        shard.capabilities.advance(capability.token, frontier)
        await self._log_downgrade(shard, capability, frontier)
        return lower

    async def drop_capability(self, capability: AnyCapability) -> None:
        """End the capability.

        If it was the last of its mode, since or upper is EMPTY for ever, which is durable on
        return.
        """
        shard = self._shard(capability.id)
        shard.capabilities.check(capability)
        last = shard.capabilities.is_last(capability.token)
        shard.capabilities.drop(capability.token)
        self._expiry.forget([capability.token])
        await self._log_downgrade(shard, capability, None)
        if last:
            await self.confirm()

    async def _log_downgrade(
        self, shard: Shard, capability: AnyCapability, frontier: Timestamp | None
    ) -> None:
        if isinstance(capability, ReadCapability):
            self._piggybacked.downgrade(shard, capability.token, frontier)
            return
        event = Downgraded(((shard.id, capability.token, frontier),))
        await self._wal.log(event, self._reserve_given_up(shard))

    def _reserve_given_up(self, shard: Shard) -> Callable[[], None]:
        """Reserve the interval that all writers gave up; upper advances when that is durable."""
        frontier = shard.write_frontier()
        if frontier <= shard.reserved:  # other writers continue and are not delayed
            return lambda: None
        shard.reserve(frontier)
        return partial(self._reserved, shard)

    def _reserved(self, shard: Shard) -> None:
        shard.in_flight -= 1
        shard.catch_up()

    def heartbeat(self, capabilities: Iterable[AnyCapability]) -> None:
        """Renew the leases among the capabilities for their full duration.

        In memory only. Raises InvalidCapability for the first invalid capability; those before it
        are renewed.
        """
        for capability in capabilities:
            shard = self._shard(capability.id)
            self._start_lease(shard.id, shard.capabilities.check(capability))

    def expire(self) -> None:
        """End the leases that have run out. A timer calls this every second."""
        for id, token in self._expiry.take_ended():
            self._end_lost(self._shards[id], token)
            logger.info("a lease has expired", extra={"shard": id, "token": token})

    def _end_lost(self, shard: Shard, token: str) -> None:
        """End a capability whose holder is gone and did not drop it."""
        if shard.capabilities.expire(token) == "write":
            self._wal.append(Entry(Expired(((shard.id, token),)), self._reserve_given_up(shard)))
        else:
            self._piggybacked.expire(shard, token)

    def _grant(self, shard: Shard, capability: AnyCapability, lease_ms: int | None) -> Grant:
        assert lease_ms is None or lease_ms > 0, lease_ms
        grant = grant_of(capability, lease_ms)
        shard.capabilities.add(grant)
        self._start_lease(shard.id, grant)
        return grant

    def _start_lease(self, id: GlobalId, grant: Grant) -> None:
        """Start the lease of a grant, if it has one."""
        if grant.lease_ms is not None:
            self._expiry.renew(id, grant.token, grant.lease_ms)
            if self._expiry_timer is None:
                self._start_expiry_timer()

    def _start_expiry_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._expiry_timer = loop.call_later(TICK_SECONDS, self._check_leases)

    def _check_leases(self) -> None:
        self._expiry_timer = None
        self.expire()
        if len(self._expiry):
            self._start_expiry_timer()
