"""Tables: shards, and how they are written and locked."""

from collections.abc import Mapping
from typing import Protocol

from foreshore.activity import Activity
from foreshore.adapter.transaction.advisory_locks import AdvisoryLocks
from foreshore.adapter.transaction.group_commit import GroupCommit
from foreshore.adapter.transaction.locks import Locks
from foreshore.adapter.transaction.watermarks import Watermarks
from foreshore.catalog.sequence_numbers import Sequences
from foreshore.catalog.subscription_positions import DurablePositions
from foreshore.compute.keys.key_indexes import KeyIndexes
from foreshore.ids import GlobalId
from foreshore.storage.controller import ReadCapability, StorageController, WriteCapability


class Tables(Protocol):
    """The shards of the environment, and what belongs to those of tables."""

    @property
    def storage(self) -> StorageController:
        """Reads and writes shards."""

    @property
    def capabilities(self) -> Mapping[GlobalId, tuple[ReadCapability, WriteCapability]]:
        """What allows to read and write a shard; of all that are there."""

    @property
    def group(self) -> GroupCommit:
        """Makes writes durable."""

    @property
    def keys(self) -> KeyIndexes:
        """The indexes of unique constraints, and others of tables."""

    @property
    def locks(self) -> Locks:
        """The locks of tables, keys and the catalog."""

    @property
    def advisory(self) -> AdvisoryLocks:
        """The locks whose meaning is up to clients."""

    @property
    def watermarks(self) -> Watermarks:
        """Times before which tables get no more rows."""

    @property
    def sequences(self) -> Sequences:
        """The numbers of sequences."""

    @property
    def subscriptions(self) -> DurablePositions:
        """The positions of durable subscriptions and of sinks."""

    @property
    def activity(self) -> Activity:
        """The counts of rows that were changed."""

    def capabilities_of(self, id: GlobalId) -> tuple[ReadCapability, WriteCapability]:
        """Return the capabilities on a shard; raises UndefinedObject if it has been dropped."""
