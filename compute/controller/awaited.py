"""Reads that wait for views whose replicas make a step for each tick: the step is made at once.

A replica of Spark gathers the changes of a tick, a second or more, into one step. A read that waits
for such a view, perhaps through others over it, does not wait for the tick.
"""

from collections.abc import Mapping

from foreshore.compute.controller.maintained import Dataflow
from foreshore.compute.controller.uppers import Uppers
from foreshore.compute.protocol import Awaited
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


def tell_awaited(
    exporters: Mapping[GlobalId, Dataflow], uppers: Uppers, id: GlobalId, beyond: Timestamp
) -> None:
    """Tell replicas with ticks that somebody waits until the upper of `id` is beyond a time."""
    told: set[GlobalId] = set()
    todo = [id]
    while todo:
        each = todo.pop()
        dataflow = exporters.get(each)
        if dataflow is None or dataflow.description.id in told or uppers[each] > beyond:
            continue
        told.add(dataflow.description.id)
        todo += dataflow.description.imports
        for cluster in dataflow.clusters:
            if cluster.instance.tick_seconds:
                cluster.send(Awaited(dataflow.description.id, beyond))
