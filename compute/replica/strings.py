"""Lets the engine forget strings, as soon as there are twice as many as after the last time.

See `compute/forgetting.py` for what a cycle is. It ends without effect if some work goes on for
long, or a dataflow is not between two steps; then it is tried again later. No checkpoint is made
meanwhile, and none from before is loaded afterwards: their state names strings by the numbers that
they had.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from foreshore import blocking
from foreshore.compute.checkpoint.state import Captured, Writer
from foreshore.compute.forgetting import Cycle, ForgettingEngine
from foreshore.compute.replica.checkpoints import Checkpointer, yield_to_others
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.instance import Instance
from foreshore.compute.replica.pools import Pool
from foreshore.ids import GlobalId

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 60.0  # for work that was under way
WAIT_SECONDS = 60.0  # after a cycle without effect


class StringWatch:
    """Watches the strings of a replica; belongs to the event loop.

    `working` are the pools whose work changes state, `reading` the one that reads it. `freed` is
    called with a dataflow that can step again.
    """

    def __init__(
        self,
        instance: Instance,
        dataflows: Mapping[GlobalId, DataflowState],
        checkpoints: Checkpointer,
        working: Sequence[Pool],
        reading: Pool,
        freed: Callable[[DataflowState], None],
    ) -> None:
        self._instance = instance
        self._dataflows = dataflows
        self._checkpoints = checkpoints
        self._working = working
        self._reading = reading
        self._freed = freed
        self._marking = Pool(1, "strings", initializer=yield_to_others)

    async def run(self) -> None:
        """Forget strings as often as it is worth while, until cancelled."""
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = LOOK_SECONDS
            engine = self._instance.engine
            if isinstance(engine, ForgettingEngine) and engine.is_crowded:
                try:
                    if not await self.forget(engine):
                        pause = WAIT_SECONDS
                except Exception:  # nobody else would try again
                    logger.exception("strings are not forgotten")
                    pause = WAIT_SECONDS

    async def forget(self, engine: ForgettingEngine) -> bool:
        """Run a cycle; return whether it came to its end."""
        async with self._checkpoints.pausing() as may_begin:
            if not may_begin:
                return False
            began, cycle = time.monotonic(), engine.forgetting()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    captured = await self._captured(cycle, began)
                for each in captured:
                    await blocking.run(self._marking, cycle.mark, each)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._reading.settled()
                self._checkpoints.forget_strings()
                gone = await blocking.run(self._marking, cycle.forget)
            except TimeoutError:
                return False
            finally:
                cycle.end()
        logger.info("strings are forgotten: %d", gone)
        return True

    async def _captured(self, cycle: Cycle, began: float) -> list[Captured]:
        """Return all state, given when the cycle has begun."""
        found = [*cycle.shared()]
        await asyncio.gather(*(pool.settled() for pool in (*self._working, self._reading)))
        found += await blocking.run(self._working[0], cycle.shared)
        for dataflow in list(self._dataflows.values()):
            found.append(await self._captured_of(dataflow, began))
        return found

    async def _captured_of(self, dataflow: DataflowState, began: float) -> Captured:
        """Capture a dataflow between two steps."""
        to = Writer()
        while not dataflow.is_between_steps:
            # What is hydrated since the cycle began names marked strings and those of collections.
            is_new = dataflow.state == "hydrating" and dataflow.times.began > began
            if dataflow.dropped or is_new or dataflow.state in ("pending", "stalled"):
                return to.captured
            await asyncio.sleep(0.005)
        dataflow.busy = True
        try:
            await blocking.run(self._working[0], dataflow.save_words, to)
        finally:
            dataflow.busy = False
            self._freed(dataflow)
        return to.captured

    def close(self) -> None:
        """End the thread, without waiting for it."""
        self._marking.shutdown(wait=False, cancel_futures=True)
