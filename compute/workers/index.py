"""Indexes whose rows the workers of a replica have, each a share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from foreshore.compute.arrange.arrangement import Key, TooManyRows
from foreshore.compute.engine import rows_schema
from foreshore.compute.output import Output
from foreshore.compute.protocol import IndexExport
from foreshore.compute.span import Span
from foreshore.compute.workers.messages import InRange, LookUp, Scan, Size, Updates
from foreshore.datum import to_array
from foreshore.expr.columns import type_of
from foreshore.processes.transport import Tables
from foreshore.types import ColumnType
from foreshore.update import Timestamp, update_schema

Ask: TypeAlias = Callable[[Any, Mapping[int, Tables] | None], list[pa.Table]]
OwnersOf: TypeAlias = Callable[[Sequence[Key]], Mapping[int, Sequence[Key]]]


class GatheredIndex:
    """An index of a dataflow of several workers, who insert what they put out themselves.

    A look-up asks the workers that may have rows under its keys, of which `owners` returns each
    with its keys; any other read asks all. It waits, so it is not for the event loop: with a bound
    on what is examined it raises TooManyRows. `ask` sends a request to some workers, or (None) to
    all, each with its tables.
    """

    def __init__(
        self,
        export: IndexExport,
        columns: tuple[ColumnType, ...],
        ask: Ask,
        owners: OwnersOf,
        as_of: Timestamp,
        since: Timestamp,
    ) -> None:
        self.export = export
        self.upper = as_of
        self.since = since
        self.size: Size = (0, 0, 0)
        self._schema = rows_schema(columns)
        self._ask = ask
        self._owners = owners

    # --- the dataflow's thread

    def insert_output(self, output: Output, upper: Timestamp) -> None:
        """Record that the workers have inserted all before `upper`."""
        self.upper = upper

    def advance(self, upper: Timestamp) -> None:
        """Record that there are no updates up to `upper`."""
        self.upper = upper

    def compact(self, since: Timestamp) -> None:
        """Forget the times before `since`: the workers do so in the next step."""
        self.since = max(self.since, since)

    @property
    def maintenance_due(self) -> bool:
        """Return False: the workers merge by themselves."""
        return False

    def maintain(self) -> bool:
        """Do nothing."""
        return False

    # --- readers

    def look_up(
        self, keys: Sequence[Key], time: Timestamp, most: int | None = None
    ) -> pa.RecordBatch:
        """Return the rows at `time` whose key is in `keys`."""
        _check_off_loop(most)
        request = LookUp(0, 0, self.export.id, time, self.upper)
        shares = self._owners(keys)
        return self._rows(request, {w: (self._table(mine),) for w, mine in shares.items()})

    def _table(self, keys: Sequence[Key]) -> pa.Table:
        types = [type_of(scalar) for scalar in self.export.key]
        columns = [to_array([key[i] for key in keys], type) for i, type in enumerate(types)]
        return pa.Table.from_arrays(columns, [f"k{i}" for i in range(len(columns))])

    def scan(self, time: Timestamp, most: int | None = None) -> pa.RecordBatch:
        """Return all rows at `time`."""
        _check_off_loop(most)
        return self._rows(Scan(0, 0, self.export.id, time, self.upper))

    def in_range(
        self, span: Span, time: Timestamp, few: int, most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows at `time` in a span, and perhaps more rows, as one part."""
        _check_off_loop(most)
        yield self._rows(InRange(0, 0, self.export.id, time, self.upper, span))

    def updates(self, as_of: Timestamp) -> pa.Table:
        """Return all updates, those before `as_of` moved to it: rows' columns, times, diffs."""
        found = self._ask(Updates(0, 0, self.export.id, as_of, self.upper), None)
        schema = update_schema(self._schema)
        return pa.concat_tables([table.cast(schema) for table in found])

    def _rows(self, request: Any, shares: Mapping[int, Tables] | None = None) -> pa.RecordBatch:
        answers = self._ask(request, shares)
        if not answers:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        found = pa.concat_tables(answers).combine_chunks()
        batches = found.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=self._schema)


def _check_off_loop(most: int | None) -> None:
    """Raise TooManyRows if the caller must not wait."""
    if most is not None:
        raise TooManyRows
