"""Views: what dataflows maintain, in clusters."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from foreshore.adapter.services.changelogs import Changelogs
from foreshore.catalog.item import Item
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.compute.controller.controller import ComputeController
from foreshore.compute.controller.pending_replicas import PendingReplicas
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


class Handoff(Protocol):
    """Lets a materialized view go on with another dataflow."""

    async def ready(self, planned: Mapping[GlobalId, Planned], state: State) -> None:
        """Wait until the views that will read other collections can continue over these."""

    async def wait_until_written(self, view: GlobalId, time: Timestamp) -> None:
        """Wait until a view's shard is written up to `time`, or no replica can write it."""


class Views(Protocol):
    """The collections that compute maintains."""

    @property
    def compute(self) -> ComputeController:
        """Runs dataflows on replicas."""

    @property
    def as_ofs(self) -> Mapping[GlobalId, Timestamp]:
        """The times from which dataflows are exact."""

    @property
    def view_handoff(self) -> Handoff:
        """Lets views go on with other dataflows."""

    @property
    def changelogs(self) -> Changelogs:
        """What subscriptions follow."""

    @property
    def resizes(self) -> PendingReplicas:
        """New replicas that are not in the catalog yet."""

    def is_hydrated(self, id: GlobalId) -> bool:
        """Return whether the output of a dataflow has been computed at some time."""

    def arranged(self, cluster: str) -> frozenset[GlobalId]:
        """Return the relations that have an index to be read on the cluster `cluster`."""

    def has_replica(self, cluster: str) -> bool:
        """Return whether the cluster with id `cluster` has a replica."""

    def index_for(self, id: GlobalId, cluster: str) -> Sequence[Item]:
        """Return the indexes on `id` to be read on the cluster with name `cluster`."""
