"""The errors in the data of views and indexes, as they are now: which, and of how many rows.

A collection whose data has an error cannot be read, and neither can one that is derived from it. A
`Cause` is a collection with errors of its own. The writer of a materialized view has counted them;
those of an index are in the last report of a replica that maintains it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from foreshore.compute.controller.maintained import Dataflow, Maintained
from foreshore.compute.controller.outputs import SinkWriter
from foreshore.compute.controller.read_errors import refreshed
from foreshore.compute.protocol import ErrorCount
from foreshore.errors import CollectionCorrupted
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class Cause:
    """A collection with errors: the most frequent ones, and the number of `rows` with any.

    `rows` is None if only one error is known, as after a start without a replica. Rows with errors
    that are `skipped` are left out of the collection and do not make reads of it fail.
    """

    id: GlobalId
    errors: tuple[ErrorCount, ...]
    rows: int | None
    skipped: bool = False

    @property
    def message(self) -> str:
        """Return the first error with its SQLSTATE, and how many rows have one."""
        first = self.errors[0].text[6:]
        if self.rows is None or self.rows == 1:
            return first
        kinds = "" if self.rows == self.errors[0].rows else " and other errors"
        return f"{first}{kinds} ({self.rows} rows)"


def causes(maintained: Maintained, id: GlobalId, time: Timestamp) -> Iterator[Cause]:
    """Yield the collections with errors that a collection is or is derived from, itself first.

    Of those that it is derived from, skipped errors are left out: they mean nothing to it. Below a
    view with a schedule the errors are those of its last refresh at `time`.
    """
    seen: set[GlobalId] = set()
    stack = [id]
    while stack:
        each = stack.pop()
        dataflow = maintained.dataflow_of(each)
        if dataflow is None or each in seen:
            continue
        seen.add(each)
        writer = dataflow.writers.get(each)
        found = _of_index(each, dataflow) if writer is None else _of_view(each, writer)
        if found is not None and (each == id or not found.skipped):
            yield found
        if dataflow.description.refresh is None:
            stack.extend(dataflow.description.imports)
            continue
        for text, cause in _at_refresh(maintained, dataflow, time):
            if cause not in seen:
                seen.add(cause)
                yield Cause(cause, (ErrorCount(text, 1),), None)


def _at_refresh(
    maintained: Maintained, dataflow: Dataflow, time: Timestamp
) -> Iterator[tuple[str, GlobalId]]:
    """Yield the errors of the inputs of a view with a schedule at its last refresh."""
    for writer in dataflow.writers.values():
        known = writer.errors.upper
        at = refreshed(dataflow, time if known is None else min(time, known - 1))
        try:
            yield from maintained.read_errors.at(dataflow.description.imports, at, read_at=time)
        except CollectionCorrupted:
            return  # reads say so


def _of_view(id: GlobalId, writer: SinkWriter) -> Cause | None:
    log = writer.errors
    if log.upper is None:
        try:
            stored = log.first(_LAST, _LAST + 1)
        except CollectionCorrupted:
            return None  # reads say so
        return None if stored is None else Cause(id, (ErrorCount(stored[1], 1),), None)
    return Cause(id, tuple(log.most_frequent()), log.count, log.policy.skips) if log.count else None


def _of_index(id: GlobalId, dataflow: Dataflow) -> Cause | None:
    reports = (replica.report(dataflow.description.id) for replica in dataflow.replicas)
    found = next((each for each in reports if each is not None), None)
    if found is None or not found.errors:
        return None
    return Cause(id, found.errors, found.error_rows)


_LAST: Timestamp = (1 << 62) - 1  # a time after all steps
