"""Where a database comes from: whether it was restored from a backup of another one.

Its objects from before the restore have counterparts in the original, which may go on. So what they
have outside, such as a replication slot or the right to write a table, is the original's.
"""

from dataclasses import dataclass

from foreshore.ids import GlobalId, number_of
from foreshore.storage.consensus import Consensus
from foreshore.storage.directory import RESTORED_FROM
from foreshore.storage.identity import first_id, identity


@dataclass(frozen=True, slots=True)
class Lineage:
    """A database's id, the first number of its own ids, and the id of the original, if any."""

    database: str
    first_id: int
    restored_from: str | None

    def is_inherited(self, id: GlobalId) -> bool:
        """Return whether an object is one of the original, too."""
        return self.restored_from is not None and number_of(id) < self.first_id


async def lineage_of(consensus: Consensus) -> Lineage:
    """Return where the database of `consensus` comes from."""
    head = await consensus.head(RESTORED_FROM)
    return Lineage(
        await identity(consensus),
        await first_id(consensus),
        None if head is None else head.data.decode(),
    )
