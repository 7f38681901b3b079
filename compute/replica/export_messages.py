"""The messages for a dataflow's output: to subscriptions, and to the shards of its sinks.

The output as of `as_of` goes to a shard as the difference from what the shard has. If the shard is
already past `as_of`, the difference is a *correction* that is written once the dataflow has reached
the shard's upper.
"""

import logging
from collections.abc import Mapping, Set

import pyarrow as pa

from foreshore.compute.arrange.arrangement import Arrangement, consolidate
from foreshore.compute.engine import ERRORS, empty_output, output_schema, rows_schema
from foreshore.compute.inputs import Contents, conform, moved
from foreshore.compute.output import Output
from foreshore.compute.protocol import (
    DataflowDescription,
    IndexExport,
    SinkExport,
    SinkUpdates,
    SubscribeExport,
    SubscribeResponse,
)
from foreshore.compute.replica.correction import difference
from foreshore.expr.columns import columns_of
from foreshore.ids import GlobalId
from foreshore.processes.messages import Message
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

Sent = list[tuple[Message, tuple[pa.Table, ...]]]


class ExportMessages:
    """Makes the messages of one dataflow; `persisted` are the contents of its sinks' shards.

    `number` is that of the command which created it.
    """

    def __init__(
        self,
        description: DataflowDescription,
        persisted: Mapping[GlobalId, Contents],
        number: int = 0,
    ) -> None:
        self._number = number
        self._exports = description.exports
        self._as_of = description.as_of
        self._columns = columns_of(description.relation)
        self.persisted: Mapping[GlobalId, Contents] = persisted
        self.corrections: dict[GlobalId, tuple[Timestamp, pa.Table]] = {}

    @property
    def shards(self) -> Mapping[GlobalId, Timestamp]:
        """Return the upper of each shard that has to be corrected, or known to be correct."""
        return {id: contents.snapshot.upper for id, contents in self.persisted.items()}

    def corrects_before(self, upper: Timestamp) -> bool:
        """Whether a correction is to be written before `upper`."""
        return any(upper > at for at, _ in self.corrections.values())

    def forget(self) -> None:
        """Free the contents of shards and the corrections."""
        self.persisted, self.corrections = {}, {}

    def initial(self, output: Output) -> Sent:
        """Return the messages for the output as of `as_of`."""
        sent: Sent = []
        as_of = self._as_of
        for export in self._exports:
            match export:
                case SubscribeExport(id=id):
                    message: Message = SubscribeResponse(id, 0, as_of + 1)
                    sent.append((message, (output.rows, output.errors)))
                case SinkExport(shard=shard):
                    persisted = self.persisted.get(shard)
                    if persisted is None:
                        # the shard's rows are correct; it has no errors
                        nothing = output.rows.slice(0, 0)
                        message = SinkUpdates(shard, as_of + 1, as_of + 1, self._number, True)
                        sent.append((message, (nothing, output.errors)))
                        continue
                    correction = difference(output.rows, persisted, self._columns, as_of)
                    upper = persisted.snapshot.upper
                    if upper > as_of and correction.num_rows:
                        logger.warning(
                            "a materialised view is corrected",
                            extra={"shard": shard, "updates": correction.num_rows},
                        )
                        self.corrections[shard] = upper, moved(correction, upper)
                        correction = correction.slice(0, 0)
                    lower = min(upper, as_of + 1)
                    message = SinkUpdates(shard, lower, as_of + 1, self._number, True)
                    sent.append((message, (correction, output.errors)))
                case IndexExport():
                    pass
        return sent

    def resumed(self, errors: Arrangement, frontier: Timestamp) -> Sent:
        """Return the messages for a state before `frontier`, whose rows are in the shards."""
        found = conform(errors.updates(frontier - 1), output_schema(ERRORS))
        nothing = empty_output(self._columns)
        sent: Sent = []
        for export in self._exports:
            if isinstance(export, SinkExport):
                lower = min(self.shards.get(export.shard, frontier), frontier)
                message = SinkUpdates(export.shard, lower, frontier, self._number, True)
                sent.append((message, (nothing, found)))
        return sent

    def changes(
        self, output: Output, lower: Timestamp, upper: Timestamp, exports: Set[GlobalId]
    ) -> Sent:
        """Return the messages for the output of the window [lower, upper), to `exports` only."""
        sent: Sent = []
        for export in self._exports:
            match export:
                case SubscribeExport(id=id) if id in exports:
                    message: Message = SubscribeResponse(id, lower, upper)
                    if not output.is_empty:
                        sent.append((message, (output.rows, output.errors)))
                case SinkExport(shard=shard) if shard in exports:
                    rows = output.rows
                    at, correction = self.corrections.get(shard, (upper, None))
                    if correction is not None and at < upper:
                        rows = pa.concat_tables([rows, conform(correction, rows.schema)])
                        rows = consolidate(rows, rows_schema(self._columns), 0)
                        del self.corrections[shard]
                    if rows.num_rows or output.errors.num_rows:
                        message = SinkUpdates(shard, lower, upper, self._number)
                        sent.append((message, (rows, output.errors)))
                case _:
                    pass
        return sent
