"""Periodic work of the controller: for holds, old checkpoints and burst replicas.

Holds follow outputs. Checkpoints of replicas that were dropped stay for a while, as another
replica of their cluster may be about to start from them.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from foreshore import blocking
from foreshore.compute.checkpoint.manifest import DIRECTORY, prefix_of
from foreshore.compute.controller.bursts import Bursts
from foreshore.compute.controller.cluster import Cluster
from foreshore.compute.controller.clusters import Clusters
from foreshore.compute.controller.input_holds import run_holds
from foreshore.compute.controller.maintained import Dataflow
from foreshore.ids import GlobalId
from foreshore.storage.blob import Blob, open_blob
from foreshore.storage.controller import StorageController
from foreshore.upkeep import goes_on

logger = logging.getLogger(__name__)

TIDY_SECONDS = 600.0


async def run_background(
    storage: StorageController,
    dataflows: Mapping[GlobalId, Dataflow],
    clusters: Clusters,
    bursts: Bursts,
) -> None:
    """Do all of it, until cancelled."""
    await asyncio.gather(run_holds(storage, dataflows), bursts.run(), _tidy(clusters))


async def _tidy(clusters: Clusters) -> None:
    options = clusters.options
    if "data_dir" not in options:
        return
    blob = open_blob(options.get("blob"), Path(options["data_dir"]))
    while True:
        await asyncio.sleep(TIDY_SECONDS)
        deleted = partial(delete_abandoned, blob, clusters)
        await goes_on(deleted, "abandoned checkpoints could not be deleted")


async def delete_abandoned(blob: Blob, clusters: Iterable[Cluster]) -> None:
    """Delete the checkpoints of replicas that there are no longer."""

    def found() -> list[str]:
        return [key for key, _ in blob.list(f"{DIRECTORY}/")]

    keys = await blocking.run(None, found)
    live = tuple(prefix_of(cluster.id, name) for cluster in clusters for name in cluster.replicas)
    for key in keys:
        if not key.startswith(live):
            await blocking.run(None, blob.delete, key)
