"""Input holds: read holds on the inputs of dataflows, which follow the outputs.

A hold stays at the earliest time from which a new replica may have to read the input, from the
beginning or from a checkpoint on.
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from foreshore.compute.controller import index_streams
from foreshore.compute.controller.maintained import Dataflow
from foreshore.compute.controller.refreshes import next_beginning, readable_imports
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.storage.controller import StorageController
from foreshore.update import Timestamp
from foreshore.upkeep import goes_on

logger = logging.getLogger(__name__)

HOLDS_SECONDS = 5.0
AWAY_SECONDS = 600.0  # after which the inputs are not kept for a replica's checkpoint


async def run_holds(storage: StorageController, dataflows: Mapping[GlobalId, Dataflow]) -> None:
    """Downgrade the holds on inputs periodically, following the outputs."""
    while True:
        await asyncio.sleep(HOLDS_SECONDS)
        downgraded = partial(_downgrade_holds, storage, dataflows)
        await goes_on(downgraded, "read holds could not be downgraded")


async def _downgrade_holds(
    storage: StorageController, dataflows: Mapping[GlobalId, Dataflow]
) -> None:
    compact_sinks(storage, dataflows)
    now = asyncio.get_running_loop().time()
    for dataflow in list(dataflows.values()):
        since = _needed_since(dataflow, now)
        if since is None:
            continue
        if dataflow.description.refresh is not None:  # another one may be added before the next
            since = min(since, readable_imports(storage, dataflow.holds))
        for id, hold in list(dataflow.holds.items()):
            if hold.frontier < since and storage.exists(id):
                try:
                    lower = await storage.downgrade_capability(hold, since)
                except DatabaseError:
                    logger.exception("a hold cannot be downgraded", extra={"shard": id})
                    continue
                if id in dataflow.holds:
                    dataflow.holds[id] = lower


def _needed_since(dataflow: Dataflow, now: float) -> Timestamp | None:
    """Return the time from which on a dataflow's inputs are read.

    A replica that starts from its checkpoint reads what came after it. None: that is not known, as
    a checkpoint is being made. A replica that has been away for long does not count.
    """
    since = dataflow.since
    for replica in dataflow.replicas:
        if replica.saving:
            return None
        saved = replica.checkpoints.get(dataflow.description.id)
        away = replica.connection is None and now - replica.away_since > AWAY_SECONDS
        if saved is not None and not away:
            since = min(since, saved.upper - 1)
    return since


def compact_sinks(storage: StorageController, dataflows: Mapping[GlobalId, Dataflow]) -> None:
    """Note the time at which a new replica has to start sinks and subscriptions."""
    for dataflow in dataflows.values():
        histories = [cluster.history for cluster in dataflow.clusters]
        for shard in dataflow.writers:
            begins = next_beginning(storage, dataflow, shard)
            if begins is not None:
                for history in histories:
                    history.allow_compaction(shard, begins)
        for id, subscription in dataflow.subscriptions.items():
            dataflow.cluster.history.allow_compaction(id, subscription.since)
        index_streams.note_received(dataflow)
