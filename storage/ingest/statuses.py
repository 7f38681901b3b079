"""What is known of sources and their outputs since the start of the server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec.structs import replace

from foreshore.ids import GlobalId
from foreshore.processes.transport import Tables
from foreshore.storage.external.states import Status
from foreshore.storage.ingest.messages import OutputCounts, Reported, SlotState


@dataclass(slots=True)
class OutputStatus(Status):
    """What is known of one output since the start of the server; see `connector.OutputReport`."""

    received: int = 0  # updates that came, also those that were not committed and came again
    received_bytes: int = 0
    counts: OutputCounts = OutputCounts()  # noqa: RUF009 - immutable; of the present run
    earlier_messages: int = 0  # of the runs before
    refused: str | None = None  # why the change for which it has ceased is not applied

    @property
    def reason(self) -> str | None:
        """Return why it has ceased, and perhaps why that cannot be mended."""
        if self.counts.ceased is None or self.refused is None:
            return self.counts.ceased
        return f"{self.counts.ceased}; its change is not applied: {self.refused}"

    def take(self, counts: OutputCounts) -> None:
        """Note what a process knows of it; of a snapshot that it has not read, what was known."""
        if counts.snapshot_staged is None:
            was = self.counts
            counts = replace(
                counts, snapshot_known=was.snapshot_known, snapshot_staged=was.snapshot_staged
            )
        self.counts = counts

    @property
    def messages(self) -> int:
        """Return how many messages were received for it."""
        return self.earlier_messages + self.counts.messages


@dataclass(slots=True)
class SourceStatus(Status):
    """The state of a source, and what was committed of it."""

    batches: int = 0
    committed_at: int = 0  # the time of the last commit in milliseconds; 0: none yet
    outputs: dict[GlobalId, OutputStatus] = field(default_factory=dict)
    position: Mapping[str, int] = field(default_factory=dict)  # what is durable
    known: dict[str, int] = field(default_factory=dict)  # how far the external system is
    slot: SlotState | None = None
    again: str | None = None  # why all rows are, or were last, read again

    def took(self, reported: Reported) -> str | None:
        """Note what a process knows of the source; returns a new warning about its slot."""
        told = None if self.slot is None else self.slot.warning
        self.known, self.slot, self.again = reported.known, reported.slot, reported.again
        return self.slot.warning if self.slot is not None and told is None else None

    @property
    def offset_known(self) -> int | None:
        """Return how far the external system is, added up over its parts; None: it is not known."""
        return sum(self.known.values()) if self.known else None

    @property
    def offset_committed(self) -> int | None:
        """Return how far that is durable here."""
        return sum(self.position.get(part, 0) for part in self.known) if self.known else None

    @property
    def is_filled(self) -> bool:
        """Whether the first snapshot is durable, or there is nothing to be read yet."""
        if self.position or self.state == "finished":
            return True
        if self.state != "running" or self.offset_known:
            return False
        counts = [output.counts for output in self.outputs.values()]
        has_begun = any(each.snapshot_known or each.snapshot_staged for each in counts)
        return not has_begun and not any(output.received for output in self.outputs.values())

    def carry_on(self, before: "SourceStatus", ids: Mapping[GlobalId, GlobalId]) -> None:
        """Begin with the amounts of a run before; `ids` are those of its outputs and of ours."""
        self.updates, self.bytes = before.updates, before.bytes
        self.batches, self.committed_at = before.batches, before.committed_at
        self.known, self.slot, self.again = before.known, before.slot, before.again
        for was, id in ids.items():
            if (output := before.outputs.get(was)) is None:
                continue
            self.outputs[id] = OutputStatus(
                "running",
                since=self.since,
                updates=output.updates,
                bytes=output.bytes,
                received=output.received,
                received_bytes=output.received_bytes,
                counts=replace(output.counts, messages=0, ceased=None, waits=None),
                earlier_messages=output.messages,
            )

    def output(self, id: GlobalId) -> OutputStatus:
        """Return what is known of an output."""
        return self.outputs.setdefault(id, OutputStatus("running", since=self.since))

    def count_received(self, outputs: Sequence[GlobalId], tables: Tables) -> None:
        """Add what has come."""
        for id, table in zip(outputs, tables, strict=True):
            output = self.output(id)
            output.received += table.num_rows
            output.received_bytes += table.nbytes

    def count(self, written: Mapping[GlobalId, Sequence[pa.Table]]) -> None:
        """Add what was committed."""
        for id, parts in written.items():
            output = self.output(id)
            rows, size = sum(part.num_rows for part in parts), sum(part.nbytes for part in parts)
            output.updates += rows
            output.bytes += size
            self.updates += rows
            self.bytes += size
