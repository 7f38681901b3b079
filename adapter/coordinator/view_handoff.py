"""View handoff: a materialized view continues with another dataflow.

ALTER TABLE can give a table another shard, and so the views over it other dataflows; at a start
each view gets a new one. The next dataflow begins where the view's shard ends, so that no step is
lost or written twice. If its inputs do not reach back that far, the history in between is lost and
subscriptions to the view end.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from foreshore.adapter.services.collections import Stored
from foreshore.catalog.item import Item
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.catalog.table_changes import moved_views
from foreshore.compute.controller.controller import ComputeController
from foreshore.errors import DatabaseError
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

AWAY_SECONDS = 30.0  # how long views wait for replicas that are not running


@dataclass(frozen=True, slots=True)
class Beginning:
    """The time at which a dataflow begins; the view's history from `lost` until then is lost."""

    as_of: Timestamp
    lost: Timestamp | None = None  # None: no history is lost


class Ends(Protocol):
    """Ends subscriptions."""

    def end_dropped(self, reasons: Mapping[str, str]) -> None:
        """End what needs a dropped or altered object; `reasons` says for each why."""


class Handing(Stored, Protocol):
    """Prepares the next dataflow of a view."""

    @property
    def compute(self) -> ComputeController:
        """Runs it."""

    @property
    def as_ofs(self) -> Mapping[GlobalId, Timestamp]:
        """The times from which dataflows are exact."""

    @property
    def changelogs(self) -> Ends:
        """The followers of the view."""

    async def downgrade(self, id: GlobalId, since: Timestamp) -> None:
        """Give up the right to read a shard before `since`."""

    async def maintain(self, item: Item, begins: Beginning) -> None:
        """Create the dataflow of a materialized view."""


class ViewHandoff:
    """Replaces dataflows of materialized views."""

    def __init__(self, coordinator: Handing) -> None:
        self._coordinator = coordinator

    async def ready(self, planned: Mapping[GlobalId, Planned], state: State) -> None:
        """Wait until the views that will read other collections can continue over these.

        The new collections have no history before they begin. So each view's shard must reach that
        time first, unless no replica advances it for now.
        """
        for item in moved_views(self._coordinator.catalog.planned, planned, state):
            definition = planned[item.id].definition
            assert definition is not None, item
            items = map(state.get, sources_of(definition))
            since = max((each.since for each in items if isinstance(each, Item)), default=0)
            await self.wait_until_written(item.id, since)

    async def hand_over(self, item: Item) -> None:
        """Start a view's dataflow over its new inputs, where the view's shard ends.

        The old inputs ended just before the change, and equal the new ones from the time at which
        these begin. So the old dataflow has written nothing of the change, and the next one writes
        all that the old one has not.

        The change is durable: if the next dataflow cannot be created, the view stops where it is.
        """
        compute = self._coordinator.compute
        compute.drop_dataflow(item.id, replaced=True)
        try:
            await self._begin_next(item)
        except Exception:
            logger.exception("a view has no next dataflow", extra={"view": item.id})
            compute.stop_replaced(item.id)

    async def _begin_next(self, item: Item) -> None:
        coordinator = self._coordinator
        begins = await self.beginning(item)
        if begins.lost is not None:
            above = coordinator.holds.collections.keys() & coordinator.state.above(item.id)
            coordinator.changelogs.end_dropped(
                dict.fromkeys(above, f'the past of "{item.name}" is lost')
            )
            for id in above:
                coordinator.holds.forget_before(id, begins.as_of)
        await coordinator.maintain(item, begins)

    async def beginning(self, item: Item) -> Beginning:
        """Return the time at which a materialized view's next dataflow can begin.

        That is where its shard ends, if its inputs are readable at that time. Otherwise it is the
        first time at which they are, and the history in between is lost.
        """
        coordinator = self._coordinator
        storage, inputs = coordinator.storage, coordinator.catalog.sources(item.id)
        since = max(map(coordinator.holds.since, inputs), default=0)
        now = coordinator.oracle.read_ts()
        readable = min((storage.upper(id) for id in inputs), default=now + 1) - 1
        upper, known = storage.upper(item.id), storage.since(item.id)
        if upper == 0:  # nothing was ever written: it begins when the view was created
            as_of = max(since, known or item.since or readable)
            await coordinator.downgrade(item.id, max(as_of, known))
            began = min(coordinator.as_ofs.get(item.id, as_of), known or as_of)
            return Beginning(as_of, began if began < as_of else None)
        if item.refresh and inputs:
            # The shard has the contents until the next refresh. If the inputs of that time are
            # gone, the view is refreshed as of the first time at which they are known.
            refresh = item.refresh.at_or_after(upper)
            return Beginning(refresh) if refresh >= since else Beginning(since, refresh)
        as_of = max(since, min(upper - 1, readable))
        return Beginning(as_of, upper if upper < as_of else None)

    async def wait_until_written(self, view: GlobalId, time: Timestamp) -> None:
        """Wait until a view's shard is written up to `time`, or no replica can write it."""
        coordinator = self._coordinator
        while (
            view in coordinator.state.objects
            and coordinator.storage.upper(view) <= time
            and coordinator.compute.maintained.can_advance(
                view, time, AWAY_SECONDS, coordinator.compute.upper
            )
        ):
            try:
                async with asyncio.timeout(1):
                    await coordinator.compute.wait_upper(view, time, patient=False)
            except TimeoutError:
                continue
            except DatabaseError as error:
                logger.warning("a view stands still: %s", error, extra={"shard": view})
                return
