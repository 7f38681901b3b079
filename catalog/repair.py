"""Repairs a catalog that names what does not exist, as versions could leave one behind.

What an object can do without is forgotten (`forgetting.py`). What it needs cannot be made again,
and is only reported.
"""

from dataclasses import dataclass

from foreshore.catalog.dangling import dangling, describe
from foreshore.catalog.durable import CATALOG_SHARD, difference, read_catalog
from foreshore.catalog.forgetting import forget
from foreshore.catalog.state import with_objects
from foreshore.errors import Fenced
from foreshore.storage.capability import WriteCapability
from foreshore.storage.controller import StorageController
from foreshore.update import EMPTY


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did: a line for each reference that was forgotten, or that remains."""

    forgotten: tuple[str, ...]
    remaining: tuple[str, ...]


async def repair(storage: StorageController) -> Repaired:
    """Forget the references of a catalog to what does not exist, durably."""
    if not storage.exists(CATALOG_SHARD):
        return Repaired((), ())
    capabilities = await storage.acquire_capabilities([CATALOG_SHARD])
    read, write = capabilities[CATALOG_SHARD]
    old = (await read_catalog(storage, read)).state
    lost = [] if old is None else dangling(old)
    if old is None or not lost:
        return Repaired((), ())
    gone = {each.reference for each in lost}
    users = {each.object.id: each.object for each in lost}
    new = with_objects(old, {id: forget(each, gone.__contains__) for id, each in users.items()})
    remaining = tuple(map(describe, dangling(new)))
    time = max(upper for id in storage.ids() if (upper := storage.upper(id)) != EMPTY)
    if new.changed(old):
        done = await storage.append_at(write, difference(old, new, time), time + 1)
        if not isinstance(done, WriteCapability):
            raise Fenced("another server has written to the catalog meanwhile")
    described = map(describe, lost)
    return Repaired(tuple(each for each in described if each not in remaining), remaining)
