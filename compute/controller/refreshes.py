"""Refreshes: materialized views that follow their inputs at scheduled times only.

Between two refreshes a view does not change. So its shard advances with its inputs up to the next
refresh, whether or not a replica runs, and reads do not wait. A replica that starts in between
begins at the next refresh: the shard has the contents until then. With the policy full, all
replicas drop the dataflow after each refresh, and begin anew at the next one; with the policy auto
they do so while that costs less (`refresh_costs.py`).

A view with TARGET LAG = DOWNSTREAM has no times of its own. It gets those of the scheduled views
that read it, as refreshes that are added some seconds ahead, before any import reaches them.
"""

from collections.abc import Iterable, Mapping

import msgspec

from foreshore.compute.controller.maintained import Dataflow
from foreshore.compute.controller.refresh_costs import RefreshCost, RefreshCosts
from foreshore.compute.protocol import AddRefresh, AllowCompaction
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.refresh import Refresh
from foreshore.storage.controller import Listen, ListenEvent, StorageController
from foreshore.update import EMPTY, Timestamp

AHEAD_MS = 10_000  # how far ahead refreshes are added to a view for those that read it
MOST_AHEAD = 64  # refreshes


class Refreshes:
    """The dataflows of one controller that have a schedule."""

    def __init__(self, storage: StorageController, dataflows: Mapping[GlobalId, Dataflow]) -> None:
        self._storage = storage
        self._dataflows = dataflows
        self._listens: dict[GlobalId, list[Listen]] = {}  # by dataflow
        self._costs = RefreshCosts()

    def add(self, dataflow: Dataflow) -> None:
        """Advance the sinks of a dataflow with its imports, and start it when it can begin."""
        id = dataflow.description.id

        def heard(_: ListenEvent) -> None:
            if self._dataflows.get(id) is dataflow:
                self._advance(dataflow)

        self._listens[id] = [
            self._storage.listen(
                shard, max(self._storage.upper(shard), self._storage.since(shard)), heard
            )
            for shard in dataflow.description.imports
        ]
        self._advance(dataflow)
        for each in self._scheduled():  # of which this view may need refreshes
            self._add_downstream(each)

    def advance_all(self) -> None:
        """Advance all dataflows, and start those that can begin on a new replica."""
        for id in self._listens:
            self._advance(self._dataflows[id])

    def remove(self, dataflow: Dataflow) -> None:
        """Forget a dataflow."""
        self._costs.forget(dataflow.description.id)
        for listen in self._listens.pop(dataflow.description.id, ()):
            listen.cancel()

    def schedule(self, id: GlobalId) -> Refresh | None:
        """Return the schedule of a dataflow, with the refreshes that were added."""
        dataflow = self._dataflows.get(id)
        return None if dataflow is None else dataflow.description.refresh

    def cost(self, id: GlobalId) -> RefreshCost:
        """Return what refreshes of a view with the policy auto cost, and how the next is done."""
        return self._costs.of(id)

    def refresh_now(self, id: GlobalId, at_least: Timestamp) -> Timestamp:
        """Let a view be refreshed as soon as it can, at `at_least` or later; return the time.

        Nobody has read the view at that time yet, so the history of the view stays as it was.
        """
        dataflow = self._dataflows.get(id)
        if dataflow is None or dataflow.description.refresh is None:
            raise ObjectNotInPrerequisiteState(f'"{id}" is not maintained')
        time = max(at_least, self._free(dataflow))
        self._add_refresh(dataflow, time)
        return time

    def _free(self, dataflow: Dataflow) -> Timestamp:
        """Return the first time at which a refresh may be added: no import has passed it."""
        shards = [*dataflow.writers, *dataflow.description.imports]
        return max((u for u in map(self._storage.upper, shards) if u != EMPTY), default=0)

    def _add_downstream(self, dataflow: Dataflow) -> None:
        """Add the next refreshes of the views that read a DOWNSTREAM view."""
        schedule = dataflow.description.refresh
        assert schedule is not None, dataflow.description.id
        if not (schedule.is_downstream and self._exists(dataflow)):
            return
        free = self._free(dataflow)
        wanted: set[Timestamp] = set()
        for each in self._scheduled():
            reader = each.description
            if dataflow.writers.keys() & set(reader.imports) and reader.refresh is not None:
                wanted.update(reader.refresh.upcoming(free, free + AHEAD_MS, MOST_AHEAD))
        for time in sorted(wanted.difference(schedule.at)):
            self._add_refresh(dataflow, time)

    def _scheduled(self) -> list[Dataflow]:
        """Return the dataflows that have a schedule."""
        return [self._dataflows[id] for id in self._listens if id in self._dataflows]

    def _exists(self, dataflow: Dataflow) -> bool:
        """Whether all that a dataflow reads and writes is there."""
        shards = (*dataflow.description.imports, *dataflow.writers)
        return all(map(self._storage.exists, shards))

    def _add_refresh(self, dataflow: Dataflow, time: Timestamp) -> None:
        """Let a view be refreshed at `time` too."""
        description = dataflow.description
        assert description.refresh is not None, description.id
        written = min(map(self._storage.upper, dataflow.writers))
        schedule = description.refresh.and_at(time, written)
        dataflow.description = msgspec.structs.replace(description, refresh=schedule)
        for entry in dataflow.entries:
            entry.description = msgspec.structs.replace(entry.description, refresh=schedule)
            for shard in dataflow.writers:  # where it begins, if it has not begun yet
                if entry.sinces[shard] > time:
                    entry.sinces[shard] = time
        for cluster in dataflow.clusters:
            cluster.send(AddRefresh(description.id, time))

    def _advance(self, dataflow: Dataflow) -> None:
        if not self._exists(dataflow):
            return  # the dataflow is dropped with its import soon
        self._add_downstream(dataflow)
        schedule, imports = dataflow.description.refresh, dataflow.description.imports
        assert schedule is not None, dataflow.description.id
        known = min(map(self._storage.upper, imports))
        for shard, writer in dataflow.writers.items():
            upper = self._storage.upper(shard)
            if upper in (0, EMPTY):
                continue  # it has no contents yet, or has them for ever
            reached = min(known, schedule.at_or_after(upper))
            if reached > upper:
                writer.errors.add(reached, reached, None, initial=False)
                writer.progress(reached)
            if schedule.policy == "full" or self._is_anew(dataflow, schedule, upper):
                self._end_after_refresh(dataflow, shard, upper)
        for entry, cluster in zip(dataflow.entries, dataflow.clusters, strict=True):
            for shard in dataflow.writers:
                begins = next_beginning(self._storage, dataflow, shard)
                if begins is not None:
                    cluster.history.allow_compaction(shard, begins)
            if known > entry.since:
                cluster.create(entry)

    def _is_anew(self, dataflow: Dataflow, schedule: Refresh, upper: Timestamp) -> bool:
        """Whether the policy auto computes the next refresh anew, with the shard at `upper`."""
        if schedule.policy != "auto":
            return False
        id, refreshed = dataflow.description.id, schedule.at_or_before(upper - 1)
        for cluster in dataflow.clusters:
            for replica in cluster.replicas.values():
                self._costs.note(id, replica.name, refreshed, replica.operators)
        return self._costs.of(id).is_anew

    def _end_after_refresh(self, dataflow: Dataflow, shard: GlobalId, upper: Timestamp) -> None:
        """Let replicas that began before `upper` forget a dataflow, if its shard is written."""
        id = dataflow.description.id
        for cluster in dataflow.clusters:
            for replica in cluster.replicas.values():
                created = replica.created.get(id)
                if created is None or created.as_of >= upper:
                    continue
                if replica.connection is not None:
                    replica.connection.send(AllowCompaction(shard, None))
                    replica.created.pop(id)
                    replica.uppers.pop(shard, None)
                    replica.begun.discard(shard)
                    replica.release(id)


def next_beginning(
    storage: StorageController, dataflow: Dataflow, shard: GlobalId
) -> Timestamp | None:
    """Return the time at which a new replica begins with a sink, None if the sink has no rows yet.

    That is at the next refresh if there is a schedule, otherwise just before the present.
    """
    shards = [shard, *dataflow.holds]
    # a dropped shard takes the dataflow with it, soon
    if not all(map(storage.exists, shards)) or not dataflow.writers[shard].corrected:
        return None
    schedule, upper = dataflow.description.refresh, storage.upper(shard)
    if schedule is not None:
        return None if upper in (0, EMPTY) else schedule.at_or_after(upper)
    upper = min(map(storage.upper, shards))
    return None if upper == EMPTY else upper - 1  # a complete one can start at any time


def readable_imports(storage: StorageController, imports: Iterable[GlobalId]) -> Timestamp:
    """Return the last time at which all imports are known."""
    return min((storage.upper(id) for id in imports if storage.exists(id)), default=EMPTY) - 1
