"""The scheduler of a replica: which dataflow works when, on which thread.

    steps     two threads: the engine's steps, insertion into arrangements, merging; a
              dataflow is on at most one of them
    hydration one thread: one dataflow at a time, which bounds the peak of memory

A dataflow that fails is retried later, from where it was. One that takes too much memory stalls: it
frees what it has and waits until its limit is changed. Small steps are made on the loop itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from foreshore import blocking
from foreshore.compute.engine import Engine, HydratingEngine, SharingEngine
from foreshore.compute.peek import failure_of
from foreshore.compute.protocol import STATUS_SECONDS, DataflowDescription
from foreshore.compute.replica.checkpoints import Checkpointer
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.export_messages import Sent
from foreshore.compute.replica.instance import Instance
from foreshore.compute.replica.memory import MemoryWatch
from foreshore.compute.replica.pending_peeks import PendingPeeks
from foreshore.compute.replica.pools import Pool
from foreshore.compute.replica.registry import Registry
from foreshore.compute.replica.reports import Reports
from foreshore.compute.replica.resume import Resume
from foreshore.compute.replica.strings import StringWatch
from foreshore.compute.replica.turns import gives_way
from foreshore.memory import give_back
from foreshore.upkeep import goes_on

logger = logging.getLogger(__name__)

STEP_THREADS = 2
INLINE_SECONDS = 0.005  # for small steps on the loop, in one turn of it
RETRY_SECONDS = (0.2, 1.0, 5.0, 30.0)
GIVE_WAY_SECONDS = 0.2


class Scheduler:
    """Runs the dataflows of a registry; its methods belong to the event loop."""

    def __init__(
        self,
        instance: Instance,
        registry: Registry,
        reports: Reports,
        peeks: PendingPeeks,
        tasks: asyncio.TaskGroup,
        queries: Pool,
    ) -> None:
        self._instance = instance
        self._registry = registry
        self._reports = reports
        self._peeks = peeks
        self._tasks = tasks
        self.steps = Pool(STEP_THREADS, "steps")
        self._step_slots = asyncio.Semaphore(STEP_THREADS)
        self.hydration = Pool(1, "hydration")
        self._work = asyncio.Event()
        self._hydrations = asyncio.Event()
        self.memory = MemoryWatch(registry.dataflows, self._stall, lambda: instance.processes)
        self.checkpoints = Checkpointer(
            registry.dataflows,
            self.steps,
            self._freed,
            reports.send,
            lambda: self.memory.is_crowded,
        )
        self._strings = StringWatch(
            instance, registry.dataflows, self.checkpoints, (self.steps, self.hydration),
            queries, self._freed,
        )  # fmt: skip

    def start(self) -> None:
        """Start the tasks that look for work."""
        self._tasks.create_task(self._step_dataflows())
        self._tasks.create_task(self._hydrate_dataflows())
        self._tasks.create_task(self.checkpoints.run())
        self._tasks.create_task(self._strings.run())
        self._tasks.create_task(self._watch_engine())
        self._tasks.create_task(self.memory.run())

    def close(self) -> None:
        """End the threads, without waiting for them."""
        for pool in (self.steps, self.hydration):
            pool.shutdown(wait=False, cancel_futures=True)
        self._strings.close()

    def wake(self) -> None:
        """Look for dataflows that can make a step, or begin subscriptions."""
        self._work.set()

    def wake_hydration(self) -> None:
        """Look for dataflows that are to be hydrated."""
        self._hydrations.set()

    def advance_all(self, dataflows: Iterable[DataflowState]) -> None:
        """Advance dataflows whose imports have advanced, by small steps on the loop for a while."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + INLINE_SECONDS
        for dataflow in dataflows:
            self._advance(dataflow, inline=loop.time() < patience)

    def end(self, dataflow: DataflowState) -> None:
        """Free the resources of a dataflow that was dropped, once it does not work."""
        dataflow.turns.drop()
        if dataflow.busy:
            dataflow.cancel()
        else:
            self._close(dataflow)

    def _advance(self, dataflow: DataflowState, *, inline: bool = False) -> None:
        """Advance the frontier of a dataflow to its imports', by a step if any has changed.

        A small step is made at once if `inline`, because a thread takes longer to begin.
        """
        if dataflow.busy or dataflow.state != "running":
            return
        upper = dataflow.importable
        if upper <= dataflow.frontier:
            return
        if dataflow.progress(upper):
            self._frontier_moved(dataflow)
        elif inline and not self._instance.tick_seconds and dataflow.is_small_step:
            self._step_inline(dataflow)
        else:
            self._work.set()

    def _step_inline(self, dataflow: DataflowState) -> None:
        dataflow.busy = True
        dataflow.begin_step()
        try:
            sent = dataflow.step()
        except Exception as error:
            self._tasks.create_task(self._step_failed(dataflow, error))
            return
        if sent is None:
            self._retry_smaller(dataflow)
        else:
            self._went_well(dataflow, sent)
        self._work.set()

    def _close(self, dataflow: DataflowState) -> None:
        dataflow.busy = True
        engine, is_last = self._instance.engine, dataflow.id not in self._registry.dataflows
        if is_last and isinstance(engine, HydratingEngine):
            engine.forget_hydrations(dataflow.id)
        closing = partial(blocking.run, self.steps, dataflow.close)
        self._tasks.create_task(goes_on(closing, "a dataflow was not closed"))

    # --- hydration

    async def _hydrate_dataflows(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._hydrations.clear()
            while dataflow := self._to_hydrate():
                engine = self._instance.engine
                assert engine is not None
                waiting = [each.description for each in self._pending()]
                dataflow.busy = True
                dataflow.begin_hydration()
                self._reports.send_status()
                try:
                    resume = partial(self.checkpoints.resume, tell=loop.call_soon_threadsafe)
                    work = partial(hydrate, dataflow, engine, waiting, resume)
                    others = partial(self._others_wait, dataflow)
                    sent = await blocking.run(self.hydration, dataflow.turns.limited(work, others))
                except Exception as error:
                    await self._instance.check()
                    if gives_way(error):
                        self._give_way(dataflow, "pending")
                    else:
                        self._failed(dataflow, error, "pending")
                else:
                    self._went_well(dataflow, sent)
                self._reports.send_status(detailed=self._to_hydrate() is None)
            await self._hydrations.wait()

    def _to_hydrate(self) -> DataflowState | None:
        if self._instance.engine is None or not self.checkpoints.opened:
            return None
        return min(self._pending(), key=lambda each: each.turns.count, default=None)

    def _others_wait(self, dataflow: DataflowState) -> bool:
        """Whether dataflows wait to be hydrated while one is; any thread may call it."""
        others = list(self._registry.dataflows.values())
        return any(each.state == "pending" and each is not dataflow for each in others)

    def _pending(self) -> Iterator[DataflowState]:
        return (each for each in self._registry.dataflows.values() if each.state == "pending")

    # --- steps

    async def _step_dataflows(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._work.clear()
            wait: float | None = None
            for dataflow in list(self._registry.dataflows.values()):
                if self._is_free(dataflow) and dataflow.subscription_due:
                    dataflow.busy = True
                    self._tasks.create_task(self._begin_subscriptions(dataflow))
                    continue
                due = self._due(dataflow)
                if not self._is_free(dataflow) or dataflow.importable <= dataflow.frontier:
                    continue
                if self._instance.tick_seconds and due > loop.time():
                    wait = min(wait or due, due)
                    continue
                dataflow.busy = True
                self._tasks.create_task(self._step(dataflow))
            if self._work.is_set():
                continue
            if not self._step_slots.locked() and await self._maintain():
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wait):
                    await self._work.wait()

    def _due(self, dataflow: DataflowState) -> float:
        """Return when the next step is due: a tick after the last one.

        If somebody waits for it, it is due as long after the last one as that took.
        """
        wait = self._instance.tick_seconds
        if dataflow.frontier <= dataflow.awaited < dataflow.importable:
            wait = min(wait, dataflow.times.step_ms / 1000)
        return dataflow.times.stepped_at + wait

    @staticmethod
    def _is_free(dataflow: DataflowState) -> bool:
        return dataflow.state == "running" and not dataflow.busy and not dataflow.dropped

    async def _step(self, dataflow: DataflowState) -> None:
        async with self._step_slots:
            dataflow.begin_step()  # now, to include the updates received meanwhile
            await self._on_worker(dataflow, partial(step_and_merge, dataflow))
        self._work.set()

    async def _begin_subscriptions(self, dataflow: DataflowState) -> None:
        async with self._step_slots:
            dataflow.subscribers.begin(dataflow.frontier)
            await self._on_worker(dataflow, dataflow.beginnings)
        self._work.set()

    async def _maintain(self) -> bool:
        """Do a slice of merging for some arrangement; return whether there was any."""
        for dataflow in list(self._registry.dataflows.values()):
            if dataflow.state == "running" and not dataflow.busy and dataflow.merging_due:
                dataflow.busy = True
                try:
                    dataflow.merging_due = await blocking.run(self.steps, dataflow.maintain)
                except Exception as error:
                    await self._step_failed(dataflow, error)
                    return True
                dataflow.busy = False
                if dataflow.dropped:
                    self._close(dataflow)
                else:
                    self._advance(dataflow)
                return True
        return False

    async def _on_worker(self, dataflow: DataflowState, work: Callable[[], Sent | None]) -> None:
        try:
            sent = await blocking.run(self.steps, dataflow.turns.limited(work, lambda: True))
        except Exception as error:
            await self._step_failed(dataflow, error)
        else:
            if sent is not None:
                self._went_well(dataflow, sent)
            else:
                self._retry_smaller(dataflow)

    # --- outcomes

    def _went_well(self, dataflow: DataflowState, sent: Sent) -> None:
        dataflow.busy = False
        if dataflow.dropped:
            self._close(dataflow)
            return
        dataflow.state = "running"
        dataflow.failures = 0
        if dataflow.turns.ended() or dataflow.failure is not None:
            dataflow.failure = None
            self._reports.send_status()
        dataflow.merging_due = dataflow.maintenance_due
        self._reports.flush()  # what a window begins at must have been reported before its updates
        for message, tables in dataflow.wanted(sent):
            self._reports.send(message, tables)
        self._frontier_moved(dataflow)
        self._advance(dataflow)

    def _frontier_moved(self, dataflow: DataflowState) -> None:
        exports = (*dataflow.exports, *dataflow.subscribers.current)
        self._reports.frontier_moved(dataflow, exports)
        if dataflow.subscription_due:
            self._work.set()
        self._peeks.wake_waiters(dataflow.indexes)

    def _freed(self, dataflow: DataflowState) -> None:
        """Go on with a dataflow whose state was captured."""
        if dataflow.dropped:
            self._close(dataflow)
        else:
            self._advance(dataflow)
            self._work.set()

    def _retry_smaller(self, dataflow: DataflowState) -> None:
        """Retry a step at once with a smaller window; this is not a failure."""
        dataflow.busy = False
        if dataflow.dropped:
            self._close(dataflow)

    async def _step_failed(self, dataflow: DataflowState, error: Exception) -> None:
        await self._instance.check()
        if gives_way(error):
            self._give_way(dataflow, "running")
        else:
            self._failed(dataflow, error, "running")
        self._work.set()

    def _give_way(self, dataflow: DataflowState, again: str) -> None:
        """Let others go first for a moment, while what has been asked of functions goes on."""
        dataflow.busy = False
        if dataflow.dropped:
            self._close(dataflow)
            return
        dataflow.state = "failed"  # for now
        dataflow.failure = dataflow.turns.taken()
        self._reports.send_status()
        asyncio.get_running_loop().call_later(GIVE_WAY_SECONDS, self._retry, dataflow, again)

    def _failed(self, dataflow: DataflowState, error: Exception, again: str) -> None:
        """Record that a dataflow failed, and retry it later from where it was."""
        dataflow.busy = False
        if dataflow.dropped:
            self._close(dataflow)
            return
        if dataflow.budget.refusal is not None or isinstance(error, MemoryError):
            self._stall(dataflow)
            return
        failure = failure_of(error)
        logger.error(
            "dataflow failed",
            extra={"dataflow": dataflow.id, "state": dataflow.state, "error": failure.message},
        )
        seconds = RETRY_SECONDS[min(dataflow.failures, len(RETRY_SECONDS) - 1)]
        dataflow.state = "failed"
        dataflow.failure = failure
        dataflow.failures += 1
        self._reports.send_status()
        asyncio.get_running_loop().call_later(seconds, self._retry, dataflow, again)
        self._peeks.wake_waiters()

    def _retry(self, dataflow: DataflowState, state: str) -> None:
        if dataflow.state == "failed" and not dataflow.dropped:
            dataflow.state = state
            self._work.set()
            self._hydrations.set()

    def _stall(self, dataflow: DataflowState) -> None:
        """Free what a dataflow has, and let it stand still."""
        dataflow.failure = failure_of(self.memory.refusal_of(dataflow))
        dataflow.state = "stalled"
        logger.error(
            "dataflow stalled", extra={"dataflow": dataflow.id, "why": dataflow.failure.message}
        )
        self._registry.end_imports(dataflow)
        dataflow.busy = True
        self._tasks.create_task(self._free(dataflow))
        self._reports.send_status()
        self._peeks.wake_waiters()

    async def _free(self, dataflow: DataflowState) -> None:
        for work in (dataflow.free, give_back):
            freeing = partial(blocking.run, self.steps, work)
            await goes_on(freeing, "a dataflow does not give its memory back")
        dataflow.busy = False

    async def _watch_engine(self) -> None:
        while True:
            await asyncio.sleep(STATUS_SECONDS)
            await self._instance.check()


def hydrate(
    dataflow: DataflowState,
    engine: Engine,
    waiting: Iterable[DataflowDescription],
    resume: Resume,
) -> Sent:
    """On the worker: hydrate a dataflow, which shares what it reads with those that wait.

    This is one piece of work: when the replica serves another database, the engine forgets what was
    shared behind it.
    """
    if isinstance(engine, SharingEngine):
        engine.expect(waiting)
    return dataflow.hydrate(engine, resume)


def step_and_merge(dataflow: DataflowState) -> Sent | None:
    """On the worker: let a dataflow make a step, and merge some runs if more is pending.

    Merges are made when nothing has to be stepped, which does not come about behind.
    """
    sent = dataflow.step()
    if sent is not None and not dataflow.times.stepped_at:
        dataflow.maintain()
    return sent
