"""The watch over a replica's memory: which dataflow has to stop when there is too little."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from foreshore.compute.memory_limit import MemoryLimitExceeded, ReplicaMemory
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.ids import GlobalId
from foreshore.upkeep import goes_on

LOOK_SECONDS = 0.1  # between two looks at the memory of the process
RELIEVED_SECONDS = 2.0  # after a dataflow was stalled: memory is given back with a delay


class MemoryWatch:
    """Watches the memory of the process; belongs to the event loop.

    `stall` stops a dataflow that no worker has, and frees its state. `workers` returns the ids of
    the processes that have a share of the state.
    """

    def __init__(
        self,
        dataflows: Mapping[GlobalId, DataflowState],
        stall: Callable[[DataflowState], None],
        workers: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self._workers = workers
        self._dataflows = dataflows
        self._stall = stall
        self._memory = ReplicaMemory(workers=workers)
        self._relieved_at = 0.0  # when a dataflow was last stalled, by the loop's clock

    def limit(self, limit: int | None) -> None:
        """Set how many bytes the process may take; None: most of the machine's."""
        self._memory = ReplicaMemory(limit, self._workers)

    @property
    def is_crowded(self) -> bool:
        """Whether what can be read from files should be."""
        return self._memory.is_crowded

    def refusal_of(self, dataflow: DataflowState) -> MemoryLimitExceeded:
        """Return why a dataflow is stalled; by default, because an allocation has failed."""
        self._relieved_at = asyncio.get_running_loop().time()
        if dataflow.budget.refusal is None:
            dataflow.budget.refuse(self._memory.limit or 0)
        assert dataflow.budget.refusal is not None
        return dataflow.budget.refusal

    async def run(self) -> None:
        """Look at the memory until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await goes_on(self._look, "no dataflow gives memory back")

    async def _look(self) -> None:
        if self._memory.is_exceeded:
            self._relieve()

    def _relieve(self) -> None:
        """Stall the dataflow that is hydrated, else the largest, unless one is being stalled."""
        if asyncio.get_running_loop().time() < self._relieved_at + RELIEVED_SECONDS:
            return
        live = [each for each in self._dataflows.values() if each.state != "stalled"]
        hydrating = [each for each in live if each.state == "hydrating"]
        refused = [each for each in live if each.budget.refusal is not None]
        for dataflow in refused:
            if not dataflow.busy:  # its worker had ended before it could notice
                self._stall(dataflow)
        if refused or not live:
            return
        chosen = hydrating[0] if hydrating else max(live, key=lambda each: each.memory)
        assert self._memory.limit is not None
        chosen.budget.refuse(self._memory.limit)
        if chosen.busy:
            chosen.cancel()  # its worker notices soon
        else:
            self._stall(chosen)
