"""The outputs of dataflows: changes in a window, and indexes of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from foreshore.compute.span import Span
from foreshore.types import Datum
from foreshore.update import Timestamp


class Output(Protocol):
    """The changes in a window: updates of the rows, and of the errors (one text column)."""

    @property
    def count(self) -> int:
        """Return the number of updates."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        ...

    @property
    def rows(self) -> pa.Table:
        """Return the updates of the rows."""
        ...

    @property
    def errors(self) -> pa.Table:
        """Return the updates of the errors."""
        ...


@dataclass(frozen=True, slots=True)
class TableOutput:
    """The changes in a window as tables."""

    rows: pa.Table
    errors: pa.Table

    @property
    def count(self) -> int:
        """Return the number of updates."""
        return int(self.rows.num_rows + self.errors.num_rows)

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.rows.num_rows and not self.errors.num_rows


class IndexRows(Protocol):
    """The rows of an index, readable from `since` on and before `upper`.

    One thread inserts and maintains; any number of threads read.
    """

    @property
    def since(self) -> Timestamp:
        """Return the time from which on it is readable."""
        ...

    @property
    def upper(self) -> Timestamp:
        """Return the time before which all updates are inserted."""
        ...

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the numbers of updates, runs and bytes."""
        ...

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        ...

    def insert_output(self, output: Output, upper: Timestamp) -> None:
        """Insert the output of the dataflow's next windows, until `upper`."""
        ...

    def advance(self, upper: Timestamp) -> None:
        """Record that there are no updates up to `upper`."""
        ...

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`."""
        ...

    def maintain(self) -> bool:
        """Merge some runs; return whether there is more to do."""
        ...

    def look_up(
        self, keys: Sequence[tuple[Datum, ...]], time: Timestamp, most: int | None = None
    ) -> pa.RecordBatch:
        """Return the rows at `time` whose key is in `keys`, each as often as its multiplicity.

        Raises TooManyRows if more than about `most` updates are examined.
        """
        ...

    def scan(self, time: Timestamp, most: int | None = None) -> pa.RecordBatch:
        """Return all rows at `time`, as `look_up` does."""
        ...

    def in_range(
        self, span: Span, time: Timestamp, few: int, most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows at `time` in a span, and perhaps more rows, part by part.

        If the span is ordered, so are the parts, and the first one has about `few` rows, or there
        is one part. Raises TooManyRows as `look_up` does.
        """
        ...

    def updates(self, as_of: Timestamp) -> pa.Table:
        """Return all updates, those before `as_of` moved to it: rows' columns, times, diffs."""
        ...
