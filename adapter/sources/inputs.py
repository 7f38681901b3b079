"""The relations that sources read, such as the one over which a function is called.

A source has a durable subscription to it as a part. The subscription holds the history that the
source has not read, and moves in the commit of the rows that the source has made of it.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from foreshore.adapter.external.signal import Signal
from foreshore.adapter.services.collections import Collections
from foreshore.adapter.subscribe.reading import changed, contents, interval, sound_through
from foreshore.adapter.transaction.moves import move_positions
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import Item
from foreshore.catalog.subscription_positions import Move
from foreshore.errors import ObjectNotInPrerequisiteState, UndefinedObject
from foreshore.expr.ir import Get
from foreshore.ids import GlobalId
from foreshore.sources.python import INPUT
from foreshore.update import Timestamp


class SourceInputs:
    """The inputs of all sources of an environment."""

    def __init__(self, coordinator: Collections) -> None:
        self._coordinator = coordinator
        self._moved = Signal()
        # By subscriptions: from when on changes were asked for, and the time before which there
        # are none.
        self._idle: dict[GlobalId, tuple[Timestamp, Timestamp]] = {}

    async def known_through(self, source: GlobalId, frontier: Timestamp | None) -> Timestamp:
        """Wait for changes at `frontier` or later; return a time through which to go.

        None: the time at which the source was created, with whose contents all begins; a later one
        if the input had an error then.
        """
        coordinator = self._coordinator
        subscription, relation = self._input(source)
        position = coordinator.subscriptions.position(subscription)
        if position is None:
            raise UndefinedObject(f"source {source} was dropped")
        if frontier is None:
            await coordinator.wait_readable(relation, position.began)
            return await sound_through(coordinator, relation, position.began)
        if frontier <= position.as_of:
            raise ObjectNotInPrerequisiteState(
                f"the source has read its input before {frontier} only, and the history before"
                f" {position.reached} is not kept for it",
                hint="Drop the source and create it anew.",
            )
        idle = partial(self._note_idle, subscription, frontier)
        through = await changed(coordinator, relation, frontier, idle)
        return await sound_through(coordinator, relation, through)

    async def changes(
        self, source: GlobalId, frontier: Timestamp | None, through: Timestamp
    ) -> AsyncGenerator[pa.Table, None]:
        """Yield the updates with frontier <= time <= through; None: the contents at `through`."""
        coordinator = self._coordinator
        _, relation = self._input(source)
        if frontier is None:
            found = contents(coordinator, relation, through)
        else:
            found = interval(coordinator, relation, frontier, through)
        async with aclosing(found) as tables:
            async for table in tables:
                yield table

    def move(self, write: Write, progress: Item, after: Mapping[str, int]) -> None:
        """Let a write of a source's rows move its input's subscription as its position moves."""
        upper, coordinator = after.get(INPUT), self._coordinator
        assert progress.feed, progress
        subscription = self._subscription(GlobalId(progress.feed.source))
        if upper is None or subscription is None:
            return
        before = coordinator.subscriptions.position(subscription.id)
        if before is None:
            raise UndefinedObject(f"source {progress.feed.source} was dropped")
        name = coordinator.state.full_name(subscription)
        write.moves = {subscription.id: Move(name, before, replace(before, reached=upper))}
        move_positions(write, coordinator.subscriptions, self._moved.set)

    # --- how far they are ------------------------------------------------------------------------

    def relation(self, source: GlobalId) -> GlobalId | None:
        """Return the relation that a source reads; None if it reads none."""
        return None if self._subscription(source) is None else self._input(source)[1]

    async def answered(self, source: GlobalId, time: Timestamp) -> None:
        """Wait until a source has written what comes of its input's changes up to `time`.

        Raises UndefinedObject if it is dropped meanwhile.
        """
        self._coordinator.storage.hurry(time + 1)
        while True:
            subscription, _ = self._input(source)
            position = self._coordinator.subscriptions.position(subscription)
            reached = 0 if position is None else position.reached
            asked, idle_before = self._idle.get(subscription, (0, 0))
            if max(reached, idle_before if asked == reached else 0) > time:
                return
            await self._moved.wait()

    def _note_idle(self, subscription: GlobalId, frontier: Timestamp, before: Timestamp) -> None:
        """Note that there are no changes from `frontier` on before a time."""
        self._idle[subscription] = (frontier, before)
        self._moved.set()

    def _subscription(self, source: GlobalId) -> Item | None:
        """Return the subscription to the input of a source; None if it has none."""
        parts = self._coordinator.state.items_of(parts_of(source))
        return next((each for each in parts if each.type == "subscription"), None)

    def _input(self, source: GlobalId) -> tuple[GlobalId, GlobalId]:
        """Return the subscription to the input of a source, and the input."""
        found = self._subscription(source)
        planned = None if found is None else self._coordinator.catalog.planned.get(found.id)
        if found is None or planned is None:
            raise UndefinedObject(f"source {source} was dropped")
        assert isinstance(planned.definition, Get), source
        return found.id, planned.definition.id
