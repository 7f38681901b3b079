"""A test mode: each dataflow is maintained twice, by two engines that must agree on every change.

With `FORESHORE_SECOND_OPINION=1` embedded replicas run so: the arrangement engine gives the answers
and DuckDB, with nothing of its code in common, the second opinion. A plan that is not
deterministic, or an operator that is wrong, stops its dataflow with an error that names the rows.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.engine import (
    ERRORS,
    ArrangementSize,
    Dataflow,
    Engine,
    Input,
    output_schema,
    rows_schema,
)
from foreshore.compute.inputs import conform
from foreshore.compute.memory_limit import MemoryBudget
from foreshore.compute.merged_times import NONE, MergedTimes
from foreshore.compute.output import IndexRows, Output
from foreshore.compute.over_engine import OverEngine
from foreshore.compute.protocol import DataflowDescription, IndexExport, OperatorWork
from foreshore.errors import InternalError
from foreshore.expr.columns import columns_of
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import DIFF, TIME, Timestamp

SHOWN = 5  # rows in a message


class SecondOpinion(OverEngine[Engine]):
    """An engine, and an `other` one that maintains the same dataflows."""

    def __init__(self, engine: Engine, other: Engine) -> None:
        super().__init__(engine)
        self._other = other

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        """Return a dataflow that is not hydrated yet."""
        dataflow = self._engine.create(description, schemas)
        return TwiceMaintained(description, dataflow, self._other.create(description, schemas))

    def close(self) -> None:
        """Free both engines."""
        self._other.close()
        super().close()


class TwiceMaintained:
    """A dataflow of one engine, and the same of another one, which sees the same windows."""

    def __init__(self, description: DataflowDescription, own: Dataflow, other: Dataflow) -> None:
        self.batch_sizing = own.batch_sizing
        self._id = description.id
        self._columns = columns_of(description.relation)
        self._own = own
        self._other = other
        self._opinion: tuple[int, Output] | None = None  # of the window that ends there
        self._merged = NONE
        self._disagreement: InternalError | None = None

    def hydrate(self, inputs: Mapping[GlobalId, Input]) -> Output:
        """Compute the output as of the description's `as_of`."""
        opinion = self._other.hydrate(inputs)
        return self._agreed(self._own.hydrate(inputs), opinion, are_timed=True)

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Return the changes in [lower, upper), each at its exact time."""
        if self._disagreement is not None:
            raise self._disagreement
        if self._opinion is None or self._opinion[0] != upper:
            self._opinion = upper, self._other.step(lower, upper, deltas)
        output = self._own.step(lower, upper, deltas)
        (_, opinion), self._opinion = self._opinion, None
        return self._agreed(output, opinion, are_timed=not self._merged)

    def _agreed(self, output: Output, opinion: Output, *, are_timed: bool) -> Output:
        """Return the output if both agree; raises InternalError."""
        for what, columns, ours, theirs in (
            ("rows", self._columns, output.rows, opinion.rows),
            ("errors", ERRORS, output.errors, opinion.errors),
        ):
            found = _difference(columns, ours, theirs, are_timed=are_timed)
            if found.num_rows:
                self._disagreement = InternalError(
                    f'two engines disagree on the {what} of dataflow "{self._id}"',
                    detail=f"{found.num_rows} updates differ: {found.slice(0, SHOWN).to_pylist()}",
                )
                raise self._disagreement
        return output

    # --- the other one follows

    def merge_times(self, merged: MergedTimes) -> None:
        """Let the own dataflow merge times; then only the sums of a window are compared."""
        self._merged = merged
        self._own.merge_times(merged)

    def advanced(self, upper: int) -> None:
        """Note that no input changed until `upper`."""
        self._own.advanced(upper)
        self._other.advanced(upper)

    def allow_compaction(self, since: int) -> None:
        """Allow times before `since` to be forgotten."""
        self._own.allow_compaction(since)
        self._other.allow_compaction(since)

    def cancel(self) -> None:
        """Make a call that is under way raise soon."""
        self._own.cancel()
        self._other.cancel()

    def maintain(self) -> bool:
        """Do some maintenance; return whether there is more to do."""
        return self._own.maintain() | self._other.maintain()

    @property
    def maintenance_due(self) -> bool:
        """Whether `maintain` has something to do."""
        return self._own.maintenance_due or self._other.maintenance_due

    def close(self) -> None:
        """Free both."""
        self._own.close()
        self._other.close()

    # --- the own one alone

    def small_window(self, changed: Sequence[GlobalId]) -> int:
        """Return 0: the other engine is slow."""
        return 0

    def limit_memory(self, budget: MemoryBudget) -> None:
        """Check a budget for the own dataflow."""
        self._own.limit_memory(budget)

    def due(self, upper: int) -> int:
        """Return the number of updates scheduled before `upper`."""
        return self._own.due(upper)

    def index(self, export: IndexExport, since: Timestamp) -> IndexRows | None:
        """Return the own dataflow's index."""
        return self._own.index(export, since)

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of the own arrangements."""
        return self._own.sizes()

    def work(self) -> Iterable[OperatorWork]:
        """Return what the own operators have done."""
        return self._own.work()


def _difference(
    columns: Sequence[ColumnType], ours: pa.Table, theirs: pa.Table, *, are_timed: bool
) -> pa.Table:
    """Return the updates of the one without those of the other; of their sums if not timed."""
    schema = output_schema(tuple(columns))
    ours, theirs = conform(ours, schema), conform(theirs, schema)
    place = theirs.num_columns - 1
    theirs = theirs.set_column(place, schema.field(DIFF), pc.negate(theirs.column(DIFF)))
    both = pa.concat_tables([ours, theirs])
    if not are_timed:
        times = pa.array(np.zeros(both.num_rows, np.int64))
        both = both.set_column(place - 1, schema.field(TIME), times)
    return consolidate(both.combine_chunks(), rows_schema(tuple(columns)), 0)
