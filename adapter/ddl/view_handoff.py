"""How a materialized view goes on where its dataflow ends: over other collections, and at a start.

ALTER TABLE gives a table another shard, and so the views over it another dataflow; at a start each
view gets one anew. The next one begins as of where the view's shard ends, so that no step is lost
and none is written twice. Where its inputs do not reach back so far, the view's past is lost, and
whoever follows the view is told.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.errors import DatabaseError
from foreshore.expr.ir import sources_of
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator

logger = logging.getLogger(__name__)

AWAY_SECONDS = 30.0  # that replicas are given to be at work (again), where views wait for them


@dataclass(frozen=True, slots=True)
class Beginning:
    """As of when a view is maintained, and from when on it is `lost` what it was until then."""

    as_of: Timestamp
    lost: Timestamp | None = None  # None: nothing is


class ViewHandoff:
    """One dataflow of a materialized view after another."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self._coordinator = coordinator

    def moved(self, planned: Mapping[GlobalId, Planned], state: State) -> list[Item]:
        """Return the materialized views that are there and will be made of other collections.

        They are `planned` anew, for the catalog to be `state`.
        """
        found = []
        for id, each in planned.items():
            now, item = self._coordinator.catalog.planned.get(id), state.get(id)
            if now is not None and isinstance(item, Item) and item.type == "materialized view":
                assert now.definition is not None, item
                assert each.definition is not None, item
                if sources_of(now.definition) != sources_of(each.definition):
                    found.append(item)
        return found

    async def ready(self, planned: Mapping[GlobalId, Planned], state: State) -> None:
        """Wait until the views that will be made of other collections can go on over those.

        These hold no past: a view that has come as far as they begin finds its next step there. It
        is not waited for where nobody brings it there for now.
        """
        for item in self.moved(planned, state):
            definition = planned[item.id].definition
            assert definition is not None, item
            items = map(state.get, sources_of(definition))
            since = max((each.since for each in items if isinstance(each, Item)), default=0)
            await self._come_to(item.id, since)

    async def hand_over(self, item: Item) -> None:
        """Let a materialized view go on over other collections, from where its shard ends.

        Those that they take the place of have ended just before the change, and were the same since
        the others begin: so the old dataflow has said nothing of the change, and what it has not
        said before the next one says.
        """
        coordinator = self._coordinator
        coordinator.compute.drop_dataflow(item.id, replaced=True)
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
        """Return as of when a materialized view can be maintained over what it is made of now.

        That is where its shard ends, if its inputs are there at that time. Else what was in between
        is lost, and the view is known anew from when they are.
        """
        coordinator = self._coordinator
        storage, inputs = coordinator.storage, sources_of(coordinator.relation_of(item))
        since = max(map(coordinator.holds.since, inputs), default=0)
        now = coordinator.oracle.read_ts()
        readable = min((storage.upper(id) for id in inputs), default=now + 1) - 1
        upper, known = storage.upper(item.id), storage.since(item.id)
        if upper == 0:  # nothing has ever been written: it begins as of when it was made
            as_of = max(since, known or item.since or readable)
            await coordinator.downgrade(item.id, max(as_of, known))
            began = min(coordinator.as_ofs.get(item.id, as_of), known or as_of)
            return Beginning(as_of, began if began < as_of else None)
        as_of = max(since, min(upper - 1, readable))
        return Beginning(as_of, upper if upper < as_of else None)

    async def _come_to(self, view: GlobalId, time: Timestamp) -> None:
        """Wait until a materialized view is known at `time`, or nobody is there to say it."""
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
