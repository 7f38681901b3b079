"""Requests of a replica's own process to its workers, and their replies.

Each request has a number, which its reply repeats. Requests about one dataflow, named by a number,
are carried out in order; reads of indexes at any time in between. All workers get the same requests
about a dataflow, except for their shares of the inputs, so that they make the same steps.
"""

from typing import TypeAlias

import msgspec

from foreshore.compute.engine import ArrangementSize
from foreshore.compute.protocol import DataflowDescription, Failure, OperatorWork
from foreshore.compute.span import Span
from foreshore.ids import GlobalId
from foreshore.processes.messages import Message

Size: TypeAlias = tuple[int, int, int]  # updates, runs and bytes of an index


class Share(msgspec.Struct, frozen=True):
    """A worker's share of an input: a part of the files, and the message's next `tables` tables.

    `schema` is that of the rows (an Arrow IPC schema message).
    """

    id: GlobalId
    schema: bytes
    files: tuple[str, ...]
    tables: int


class GroupsShare(msgspec.Struct, frozen=True):
    """Some groups with which a reduction begins: the message's next `tables` tables."""

    operator: int
    tables: int


class IndexWanted(msgspec.Struct, frozen=True):
    """An index that the workers keep, of the description's export `id`, readable from `since`."""

    id: GlobalId
    since: int


class Hydrate(Message, frozen=True):
    """Create a dataflow and compute its output as of the description's time.

    Tables of inputs come first, then those of groups.

    `alone`: this worker has all of it, because it cannot be shared.
    """

    request: int
    dataflow: int
    attempt: int
    description: DataflowDescription
    inputs: tuple[Share, ...]
    indexes: tuple[IndexWanted, ...]
    alone: bool
    memory_limit: int | None
    groups: tuple[GroupsShare, ...] = ()


class Step(Message, frozen=True):
    """Advance a dataflow from `lower` to `upper`.

    The next tables are this worker's shares of the updates of the inputs `changed`. `since` has
    from when on indexes remain readable.
    """

    request: int
    dataflow: int
    attempt: int
    lower: int
    upper: int
    changed: tuple[GlobalId, ...]
    since: dict[GlobalId, int]
    memory_limit: int | None


class Fetch(Message, frozen=True):
    """Return the last output of a dataflow: updates of the rows, and of the errors."""

    request: int
    dataflow: int


class LookUp(Message, frozen=True):
    """Return the rows of an index at `time` whose key is in the table; before `upper` all is known.

    The reply has one table of rows, as those of the other reads have.
    """

    request: int
    dataflow: int
    index: GlobalId
    time: int
    upper: int


class Scan(Message, frozen=True):
    """Return all rows of an index at `time`."""

    request: int
    dataflow: int
    index: GlobalId
    time: int
    upper: int


class InRange(Message, frozen=True):
    """Return the rows of an index at `time` in a span, and perhaps more."""

    request: int
    dataflow: int
    index: GlobalId
    time: int
    upper: int
    span: Span


class Updates(Message, frozen=True):
    """Return all updates of an index, those before `time` moved to it."""

    request: int
    dataflow: int
    index: GlobalId
    time: int
    upper: int


class Cancel(Message, frozen=True):
    """Let what is under way for a dataflow fail soon. There is no reply."""

    dataflow: int


class Close(Message, frozen=True):
    """Free a dataflow. There is no reply."""

    dataflow: int


class Report(Message, frozen=True):
    """Return the sizes of all arrangements and the work of all operators."""

    request: int


class DataflowReport(msgspec.Struct, frozen=True):
    """The state of a dataflow in one worker, and the work done for it."""

    dataflow: int
    sizes: tuple[ArrangementSize, ...]
    work: tuple[OperatorWork, ...]


class Reply(Message, frozen=True):
    """The reply to a request; its tables, if any, follow.

    `by_peer`: it failed only because another worker did. `out_of_memory`: for want of memory.
    After a step there are the numbers of its updates, the time of the earliest update scheduled,
    and the sizes of the indexes.
    """

    request: int
    failure: Failure | None = None
    by_peer: bool = False
    out_of_memory: bool = False
    cancelled: bool = False
    rows: int = 0
    errors: int = 0
    next_due: int | None = None
    indexes: dict[GlobalId, Size] = msgspec.field(default_factory=dict)
    reports: tuple[DataflowReport, ...] = ()
    shared: tuple[ArrangementSize, ...] = ()


Read: TypeAlias = LookUp | Scan | InRange | Updates
Request: TypeAlias = (
    Hydrate | Step | Fetch | LookUp | Scan | InRange | Updates | Cancel | Close | Report
)
