"""What replicas say, brought to who waits for it.

All that belongs to an environment comes here: frontiers, what they add to shards and say to
subscribers, answers to peeks, and how their dataflows are.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import assert_never

from foreshore.compute.controller.cluster import Replica
from foreshore.compute.controller.maintained import Dataflow, Maintained
from foreshore.compute.controller.peeks import Peeks
from foreshore.compute.controller.uppers import Uppers
from foreshore.compute.protocol import (
    Frontiers,
    PeekResponse,
    Response,
    SinkUpdates,
    Status,
    SubscribeResponse,
)
from foreshore.compute.transport import Tables
from foreshore.errors import DataCorrupted
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

OFTEN = 3  # failures of a step in a row, of which who reads hears


class Responses:
    """Takes the responses of all replicas.

    `dataflows` are those that there are, `exporters` the same by their exports; `examine` is called
    for one of which a replica newly says that it has met damage.
    """

    def __init__(
        self,
        dataflows: Mapping[GlobalId, Dataflow],
        exporters: Mapping[GlobalId, Dataflow],
        maintained: Maintained,
        uppers: Uppers,
        peeks: Peeks,
        examine: Callable[[Dataflow], object],
    ) -> None:
        self._dataflows = dataflows
        self._exporters = exporters
        self._maintained = maintained
        self._uppers = uppers
        self._peeks = peeks
        self._examine = examine

    def deliver(self, replica: Replica, message: Response, tables: Tables) -> None:
        """Take one response."""
        match message:
            case PeekResponse():
                self._peeks.answered(replica, message, tables)
            case Frontiers(uppers=uppers):
                self._frontiers(replica, uppers)
            case SinkUpdates(id=id, lower=lower, upper=upper):
                dataflow = self._exporters.get(id)
                if dataflow is not None and id in dataflow.writers:
                    if message.initial:
                        replica.begun.add(id)
                    elif id not in replica.begun:
                        return  # of the dataflow that this one has taken the place of
                    writer = dataflow.writers[id]
                    writer.errors.add(lower, upper, tables[1], initial=message.initial)
                    writer.put(lower, upper, tables[0])
            case SubscribeResponse(id=id, lower=lower, upper=upper):
                dataflow = self._exporters.get(id)
                if dataflow is not None and (stream := dataflow.stream(id)) is not None:
                    stream.put(lower, upper, tables[0], tables[1])
            case Status():
                replica.status = message
                replica.heard_at = asyncio.get_running_loop().time()
                self._suspect(replica, message)
                self._note_failing(replica, message)
            case _:
                assert_never(message)

    def _frontiers(self, replica: Replica, uppers: Mapping[GlobalId, Timestamp]) -> None:
        for id, upper in uppers.items():
            dataflow = self._exporters.get(id)
            if dataflow is None or (id in dataflow.writers and id not in replica.begun):
                continue
            if id not in replica.uppers:
                replica.release(dataflow.description.id)
            replica.uppers[id] = upper
            if id in dataflow.writers:
                writer = dataflow.writers[id]
                writer.errors.add(upper, upper, None, initial=False)
                writer.progress(upper)
            elif (stream := dataflow.stream(id)) is not None:
                stream.progress(upper)
            else:
                self._uppers.advance(id, upper)

    def _suspect(self, replica: Replica, status: Status) -> None:
        """Have the shards looked at that a replica newly says to be damaged."""
        corrupted = DataCorrupted.sqlstate
        suspected = {each.id for each in status.dataflows if each.sqlstate == corrupted}
        for id in suspected - replica.suspected:
            if (dataflow := self._dataflows.get(id)) is not None:
                self._examine(dataflow)
        replica.suspected = suspected

    def _note_failing(self, replica: Replica, status: Status) -> None:
        """Let those who read hear of what a replica newly fails to do again and again."""
        before = replica.failing.keys()
        replica.failing = {each.id: each for each in status.dataflows if each.failures >= OFTEN}
        if not replica.failing.keys() <= before:
            self.tell_who_reads()

    def tell_who_reads(self) -> None:
        """Let those who read hear of what all replicas fail to do, who wait for what is of it."""
        for id in self._uppers.waited_for():
            if (error := self._maintained.failing([id])) is not None:
                self._uppers.fail(id, error, even_patient=False)
        for dataflow in self._dataflows.values():
            for id, writer in dataflow.writers.items():
                if (error := self._maintained.failing([id])) is not None:
                    writer.errors.fail(error)
