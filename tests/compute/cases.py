"""Cases for engines: a plan, the contents of its tables at several times, and window cuts.

`check_maintained` compares a dataflow with the model: it is hydrated at the first time and stepped
through the others. Its output up to each time must equal the plan evaluated on the tables' contents
at that time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pyarrow as pa

from foreshore.compute.engine import Engine, Input
from foreshore.compute.output import Output
from foreshore.compute.protocol import DataflowDescription
from foreshore.datum import from_array, to_array
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Get, Let, LocalGet, Relation
from foreshore.expr.traversal import sources_of, walk_relations
from foreshore.ids import GlobalId
from foreshore.types import TEXT, ColumnType, RelationDesc
from foreshore.update import DIFF, TIME, update_schema
from tests.model import Row, Rows, add, as_datum, evaluate
from tests.relations import TABLES, VALUES

START = 100
Contents = Mapping[GlobalId, Rows]


@dataclass(frozen=True)
class Case:
    """A plan, the tables' contents from `START` on, one time apart, and where windows begin."""

    relation: Relation
    history: Sequence[Contents]
    cuts: frozenset[int] = frozenset()  # positions in `history` at which a window ends

    @property
    def windows(self) -> list[tuple[int, int]]:
        """Return the windows after hydration, as positions in `history`."""
        bounds = [1, *sorted(cut for cut in self.cuts if 1 < cut < len(self.history))]
        bounds.append(len(self.history))
        return [(a, b) for a, b in pairwise(bounds) if a < b]


def columns_by_id(relation: Relation) -> dict[GlobalId, tuple[ColumnType, ...]]:
    """Return the columns of the collections that `relation` reads."""
    return {n.id: n.columns for n in walk_relations(relation) if isinstance(n, Get)}


def schema_of(columns: Sequence[ColumnType]) -> pa.Schema:
    """Return a schema with names unrelated to positions."""
    names = tuple(f'Col "{i}"' for i in range(len(columns)))
    return RelationDesc(names, tuple(ColumnType(c.type) for c in columns)).arrow_schema()


def updates(columns: Sequence[ColumnType], entries: Sequence[tuple[Row, int, int]]) -> pa.Table:
    """Return the table of updates (row, time, diff)."""
    arrays = [
        to_array([row[i] for row, _, _ in entries], column.type) for i, column in enumerate(columns)
    ]
    arrays += [pa.array([e[k] for e in entries], pa.int64()) for k in (1, 2)]
    return pa.Table.from_arrays(arrays, schema=update_schema(schema_of(columns)))


def difference(before: Rows, after: Rows) -> Rows:
    """Return the updates that turn `before` into `after`."""
    result: Rows = Counter()
    add(result, after)
    add(result, {row: -count for row, count in before.items()})
    return result


def deltas(case: Case, first: int, beyond: int) -> dict[GlobalId, pa.Table]:
    """Return the updates of all tables at the positions from `first` on."""
    tables = {}
    for id, columns in columns_by_id(case.relation).items():
        entries = [
            (row, START + i, count)
            for i in range(first, beyond)
            for row, count in difference(case.history[i - 1][id], case.history[i][id]).items()
        ]
        tables[id] = updates(columns, entries)
    return tables


def initial(case: Case) -> dict[GlobalId, Input]:
    """Return the inputs at `START`, with later updates that must be ignored."""
    inputs = {}
    for id, columns in columns_by_id(case.relation).items():
        entries = [(row, START, count) for row, count in case.history[0][id].items()]
        entries += [(row, START + 1, 7) for row, _, _ in entries]
        inputs[id] = Input(schema_of(columns), (), (updates(columns, entries),))
    return inputs


def rows_of(table: pa.Table, columns: Sequence[ColumnType], upto: int | None = None) -> Rows:
    """Return the sum of updates, or of rows with multiplicities."""
    data = [
        [*map(as_datum, from_array(table.column(i).combine_chunks(), c.type))]
        for i, c in enumerate(columns)
    ]
    diffs = table[DIFF].to_pylist()
    times = table[TIME].to_pylist() if TIME in table.column_names else [0] * len(diffs)
    result: Rows = Counter()
    for i, (time, diff) in enumerate(zip(times, diffs, strict=True)):
        if upto is None or time <= upto:
            add(result, {tuple(column[i] for column in data): diff})
    return result


def run(engine: Engine, case: Case) -> list[Output]:
    """Return the outputs of hydration and of each window."""
    columns = columns_by_id(case.relation)
    description = DataflowDescription(
        GlobalId("t1"), case.relation, tuple(sorted(sources_of(case.relation))), (), START
    )
    dataflow = engine.create(description, {id: schema_of(c) for id, c in columns.items()})
    try:
        outputs = [dataflow.hydrate(initial(case))]
        for first, beyond in case.windows:
            window = deltas(case, first, beyond)
            outputs.append(dataflow.step(START + first, START + beyond, window))
        return outputs
    finally:
        dataflow.close()


def reads_all(relation: Relation) -> bool:
    """Whether the value of each Let is read in its body."""
    return all(
        any(isinstance(n, LocalGet) and n.number == node.number for n in walk_relations(node.body))
        for node in walk_relations(relation)
        if isinstance(node, Let)
    )


def check_maintained(engine: Engine, case: Case, *, counts_errors: bool = True) -> None:
    """Assert that the dataflow is exact at every time.

    Unless the engine `counts_errors`, only which errors there are must be right.
    """
    outputs = run(engine, case)
    rows = pa.concat_tables([output.rows for output in outputs])
    errors = pa.concat_tables([output.errors for output in outputs])
    for i, contents in enumerate(case.history):
        wanted, failures = evaluate(case.relation, contents, time=START + i)
        found = rows_of(errors, (ColumnType(TEXT),), START + i)
        counted = Counter({(text,): count for text, count in failures.items()})
        assert found.keys() == counted.keys(), f"errors at {i}"
        assert found == counted or not counts_errors, f"errors at {i}"
        assert rows_of(rows, columns_of(case.relation), START + i) == wanted, f"rows at {i}"


def random_history(random: Random, times: int = 5, rows: int = 3) -> list[Contents]:
    """Return the tables' contents at each of `times` times."""
    return [{table.id: _random_rows(random, table, rows) for table in TABLES} for _ in range(times)]


def _random_rows(random: Random, table: Get, most: int) -> Rows:
    rows: Rows = Counter()
    keys = set()
    for _ in range(random.randint(0, most)):
        row = tuple(
            random.choice((*VALUES[c.type], None) if c.nullable else VALUES[c.type])
            for c in table.columns
        )
        key = tuple(row[i] for key in table.keys for i in key)
        if not table.keys or key not in keys:
            rows[row] += 1
            keys.add(key)
    return rows
