"""The replication slots of PostgreSQL sources in a database that was restored from a backup.

The original reads its own slot. So the restored source has one of another name, which is made at
its first start: as a copy of the original's while that has what follows, else anew.
"""

import hashlib

from msgspec.structs import replace

from foreshore.sources.postgres import PostgresSource
from foreshore.storage.lineage import Lineage


def with_own_slot(spec: PostgresSource, lineage: Lineage) -> PostgresSource:
    """Return a source of the original with a slot for this database alone.

    The original may have been restored itself, and then had a slot of another name.
    """
    copied = [_slot_in(spec.slot, lineage.restored_from)] if lineage.restored_from else []
    own = _slot_in(spec.slot, lineage.database)
    return replace(spec, slot=own, copied_slots=(*copied, spec.slot))


def _slot_in(slot: str, database: str) -> str:
    return "foreshore_" + hashlib.sha256(f"{slot} {database}".encode()).hexdigest()[:16]
