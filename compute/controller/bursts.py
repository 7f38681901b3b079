"""Burst replicas: an extra replica serves a cluster while its own replicas hydrate.

A cluster with a burst gets one more replica, of the size that the burst names, when one of its own
replicas has had a dataflow that is not hydrated for `PATIENCE` seconds: after a start, a resize or
a CREATE. All replicas of a cluster compute the same, so whichever is first answers. The extra one
ends when the others have been ready for the linger duration. It is in no catalog: a server that
starts decides anew whether one is needed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from foreshore.burst import Burst
from foreshore.compute.controller.readiness import Readiness
from foreshore.errors import UndefinedObject
from foreshore.upkeep import goes_on

if TYPE_CHECKING:
    from foreshore.compute.controller.controller import ComputeController

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5  # between two looks at whether replicas are ready
PATIENCE = 1.0  # seconds that a hydration may take without an extra replica

# An extra replica lives too briefly for its state to be worth saving.
_OPTIONS = {"checkpoint_interval_ms": "0"}


@dataclass(slots=True)
class BurstReplica:
    """The extra replica of a cluster; `ready_at`: when the others were found ready, or None."""

    cluster: str
    name: str
    burst: Burst
    ready_at: float | None = None


class Bursts:
    """The bursts of clusters, by the clusters' ids, and the extra replicas that there are."""

    def __init__(self, compute: "ComputeController") -> None:
        self._compute = compute
        self._bursts: dict[str, Burst] = {}
        self._replicas: dict[str, BurstReplica] = {}  # by cluster
        # Clusters that hydrate: since when, and what tells that they have ended.
        self._hydrating: dict[str, tuple[float, Readiness]] = {}
        self._number = 0

    def __iter__(self) -> Iterator[BurstReplica]:
        """Iterate over the extra replicas."""
        return iter(list(self._replicas.values()))

    def follow(self, bursts: Mapping[str, Burst]) -> None:
        """Set the bursts of all clusters that have one."""
        self._bursts = dict(bursts)

    async def run(self) -> None:
        """Create and end extra replicas, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            look = partial(self.look, asyncio.get_running_loop().time())
            await goes_on(look, "the burst replicas of clusters were not looked after")

    async def look(self, now: float) -> None:
        """Create and end extra replicas as needed at `now`, in seconds of the loop's clock."""
        for id in {*self._bursts, *self._replicas}:
            burst, extra = self._bursts.get(id), self._replicas.get(id)
            if extra is not None and (extra.burst != burst or not self._own_replicas(id)):
                await self._end(extra)
            elif burst is not None:
                await self._look_at(id, burst, now)
        for id in self._hydrating.keys() - self._bursts.keys():
            del self._hydrating[id]

    async def _look_at(self, id: str, burst: Burst, now: float) -> None:
        own, extra = self._own_replicas(id), self._replicas.get(id)
        since, readiness = self._hydrating.get(id, (now, None))
        if not own or (readiness or self._compute.readiness(id, own)).reached():
            self._hydrating.pop(id, None)
            if extra is not None:
                extra.ready_at = now if extra.ready_at is None else extra.ready_at
                if now - extra.ready_at >= burst.linger_ms / 1000:
                    await self._end(extra)
            return
        if readiness is None or not readiness.follows(own):
            readiness = self._compute.readiness(id, own)
        self._hydrating[id] = since, readiness
        if extra is not None:
            extra.ready_at = None
        elif now - since >= PATIENCE:
            self._begin(id, burst)

    def _own_replicas(self, id: str) -> list[str]:
        """Return the names of a cluster's replicas without the extra one; none if it is gone."""
        try:
            replicas = self._compute.clusters[id].replicas
        except UndefinedObject:
            return []
        extra = self._replicas.get(id)
        return [name for name in replicas if extra is None or name != extra.name]

    def _begin(self, id: str, burst: Burst) -> None:
        self._number += 1
        extra = BurstReplica(id, f"{id}-burst{self._number}", burst)
        options = {**self._compute.clusters[id].instance.options, **_OPTIONS}
        options.pop("master", None)  # the size implies it
        if burst.size != "embedded":
            options.pop("workers", None)
        self._compute.create_replica(id, extra.name, size=burst.size, options=options)
        self._replicas[id] = extra
        logger.info("a burst replica begins", extra={"cluster": id, "replica": extra.name})

    async def _end(self, extra: BurstReplica) -> None:
        del self._replicas[extra.cluster]
        with contextlib.suppress(UndefinedObject):  # it may have ended with its cluster
            await self._compute.drop_replica(extra.cluster, extra.name)
        logger.info("a burst replica ended", extra={"replica": extra.name})
