"""The sinks of dataflows: a writer for each shard, from creation to its end."""

import logging
from collections.abc import Callable, Collection, Mapping

from foreshore.compute.controller.error_log import ErrorLog, ErrorStore, Marks
from foreshore.compute.controller.error_policy import ErrorPolicy
from foreshore.compute.controller.maintained import Dataflow, Maintained
from foreshore.compute.controller.outputs import SinkWriter
from foreshore.errors import AdminShutdown, Fenced
from foreshore.ids import GlobalId
from foreshore.storage.controller import StorageController
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)


class Sinks:
    """Creates and runs the writers of sinks; `fail_waiters` is called when one has stopped.

    The errors of a dataflow that is `being_replaced` pass to its successor.
    """

    def __init__(
        self,
        storage: StorageController,
        errors: ErrorStore,
        dataflows: Mapping[GlobalId, Dataflow],
        being_replaced: dict[GlobalId, Dataflow],
        maintained: Maintained,
        fail_waiters: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._errors = errors
        self._dataflows = dataflows
        self._being_replaced = being_replaced
        self._maintained = maintained
        self._fail_waiters = fail_waiters

    def writer(
        self,
        dataflow: Dataflow,
        shard: GlobalId,
        lost: Timestamp | None,
        backpressure: Callable[[], None],
        *,
        policy: ErrorPolicy,
    ) -> SinkWriter:
        """Return a new writer of a shard; its contents are unknown from `lost` until `as_of`."""
        as_of = dataflow.description.as_of
        errors = ErrorLog(shard, as_of, self._errors, policy=policy, marks=self._marks(dataflow))
        if (before := self._being_replaced.pop(shard, None)) is not None:
            errors.take_over_waiters(before.writers[shard].errors)
        if lost is not None:
            errors.mark_unknown(lost)
        return SinkWriter(
            dataflow.writes[shard],
            errors,
            self._storage,
            lambda: self._readable(shard),
            backpressure,
            lambda since: self._pinned(shard, since),
        )

    def _marks(self, dataflow: Dataflow) -> Marks | None:
        """Return what finds the marks of a view with a schedule, None if it has none."""
        stored = dataflow.description.refresh  # refreshes that are added later are not stored
        if stored is None:
            return None

        def marks(lower: Timestamp, upper: Timestamp, initial: bool) -> Collection[Timestamp]:
            errors = self._maintained.read_errors
            return errors.marks(dataflow, stored, lower, upper, initial=initial)

        return marks

    async def run(self, writer: SinkWriter) -> None:
        """Write a sink's shard. On failure its contents stay readable and later reads fail."""
        try:
            await writer.run()
        except AdminShutdown:  # shutdown has begun
            writer.stop()
        except Fenced as error:
            logger.warning("a sink has stopped: %s", error, extra={"shard": writer.id})
            writer.fenced = error
            writer.stop()
            self._fail_waiters()
        except Exception:
            logger.exception("a sink has stopped", extra={"shard": writer.id})
            writer.stop()
            self._fail_waiters()

    def _readable(self, shard: GlobalId) -> Timestamp:
        """Return the earliest time at which a sink's shard, or any dependent, is readable."""
        found = [self._storage.since(shard)]
        for dataflow in (*self._dataflows.values(), *self._being_replaced.values()):
            if any(id == shard for id, _ in self._maintained.below(dataflow.description.imports)):
                sinks = filter(self._storage.exists, dataflow.writers)
                found += [*dataflow.entry.sinces.values(), *map(self._storage.since, sinks)]
        return min(found)

    def _pinned(self, shard: GlobalId, since: Timestamp) -> Collection[Timestamp]:
        """Return the times before `since` at which a sink's errors are still asked for."""
        dataflows = (*self._dataflows.values(), *self._being_replaced.values())
        return self._maintained.read_errors.pinned(shard, since, dataflows)
