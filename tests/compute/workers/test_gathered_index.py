"""An index of several workers reads as one of a single process does, at each readable time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from foreshore.compute.arrange.arrangement import TooManyRows
from foreshore.compute.engine import Input
from foreshore.compute.protocol import DataflowDescription, IndexExport
from foreshore.compute.span import Span
from foreshore.compute.workers.messages import LookUp
from foreshore.compute.workers.pool import Pool
from foreshore.expr.ir import Aggregate, Column, Get, Literal, Reduce, Relation, count_all
from foreshore.ids import GlobalId
from foreshore.types import INT4, INT8, TEXT, ColumnType
from tests.compute.cases import schema_of, updates
from tests.compute.workers.in_threads import workers

COLUMNS = (ColumnType(INT4), ColumnType(TEXT))
T = Get(GlobalId("u1"), COLUMNS)
KEY = Column(0, INT4, True)
SUMS = Reduce(T, (KEY,), (count_all(), Aggregate("count", (Column(1, TEXT, True),), INT8)))
INDEX = GlobalId("u9")
DISTINCT = Reduce(T, (KEY, Column(1, TEXT, True)), ())


def described(relation: Relation) -> DataflowDescription:
    export = IndexExport(INDEX, (KEY,))
    return DataflowDescription(GlobalId("u8"), relation, (T.id,), (export,), 100)


def rows_of(batch: pa.RecordBatch) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in batch.columns), strict=True))


@pytest.mark.parametrize("count", [2, 3])
def test_index_reads_at_each_time(count: int) -> None:
    first = [((i % 7, f"s{i}"), 100, 1) for i in range(50)] + [((None, "x"), 100, 2)]
    later = [((3, "s3"), 101, -1), ((9, "new"), 102, 1), ((None, "x"), 102, -1)]
    with workers(count) as engine:
        description = described(SUMS)
        dataflow = engine.create(description, {T.id: schema_of(COLUMNS)})
        index = dataflow.index(description.exports[0], 100)  # type: ignore[arg-type]
        assert index is not None
        output = dataflow.hydrate({T.id: Input(schema_of(COLUMNS), (), (updates(COLUMNS, first),))})
        index.insert_output(output, 101)
        output = dataflow.step(101, 103, {T.id: updates(COLUMNS, later)})
        index.insert_output(output, 103)
        index.advance(110)
        assert rows_of(index.look_up([(3,), (9,)], 100)) == {(3, 7, 7): 1}
        assert rows_of(index.look_up([(3,), (9,)], 101)) == {(3, 6, 6): 1}
        assert rows_of(index.look_up([(3,), (9,)], 109)) == {(3, 6, 6): 1, (9, 1, 1): 1}
        assert rows_of(index.look_up([(None,)], 109)) == {}
        assert rows_of(index.scan(100))[None, 2, 2] == 1
        assert rows_of(index.scan(109))[None, 1, 1] == 1
        assert sum(rows_of(index.scan(109)).values()) == 9
        span = Span(low=(Literal(2, INT4),), high=(Literal(4, INT4),))
        (part,) = index.in_range(span, 109, 1)
        found = rows_of(part)
        assert {row for row in found if row[0] in (2, 3, 4)} == {(2, 7, 7), (3, 6, 6), (4, 7, 7)}
        assert index.updates(109).num_rows >= 9
        assert index.size[0] >= 9
        with pytest.raises(TooManyRows):
            index.scan(109, 10)
        dataflow.close()


def test_compaction_reaches_all_workers() -> None:
    with workers(2) as engine:
        description = described(SUMS)
        dataflow = engine.create(description, {T.id: schema_of(COLUMNS)})
        index = dataflow.index(description.exports[0], 100)  # type: ignore[arg-type]
        assert index is not None
        first = [((i, "x"), 100, 1) for i in range(4)]
        output = dataflow.hydrate({T.id: Input(schema_of(COLUMNS), (), (updates(COLUMNS, first),))})
        index.insert_output(output, 101)
        for time in range(101, 400):
            index.compact(time - 1)
            change = [((time % 4, "y"), time, 1)]
            output = dataflow.step(time, time + 1, {T.id: updates(COLUMNS, change)})
            index.insert_output(output, time + 1)
        assert sum(row[1] for row in rows_of(index.scan(399)).elements()) == 4 + 299  # type: ignore[misc]
        assert index.since == 398
        assert index.updates(399).num_rows < 100
        dataflow.close()


@pytest.mark.parametrize("second", [False, True])
def test_look_up_by_the_first_key_asks_the_owner(
    second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index by a further key has rows at all workers."""
    asked: list[tuple[int, ...]] = []
    ask_each = Pool.ask_each

    def ask(self: Pool, request: Any, to: Sequence[int], tables: Any = ()) -> Any:
        if isinstance(request, LookUp):
            asked.append(tuple(to))
        return ask_each(self, request, to, tables)

    monkeypatch.setattr(Pool, "ask_each", ask)
    key = (Column(1, TEXT, True), KEY)
    exports = [IndexExport(INDEX, key), IndexExport(GlobalId("u10"), key[1:])]
    contents = [(i % 5, f"s{i}") for i in range(40)]
    rows = [(row, 100, 1) for row in [*contents, (None, None)]]
    with workers(3) as engine:
        description = DataflowDescription(GlobalId("u8"), DISTINCT, (T.id,), tuple(exports), 100)
        dataflow = engine.create(description, {T.id: schema_of(COLUMNS)})
        indexes = [dataflow.index(export, 100) for export in exports]
        output = dataflow.hydrate({T.id: Input(schema_of(COLUMNS), (), (updates(COLUMNS, rows),))})
        for each in indexes:
            assert each is not None
            each.insert_output(output, 101)
        index = indexes[second]
        assert index is not None
        for k, s in contents:
            found = rows_of(index.look_up([(k,) if second else (s, k)], 100))
            assert found == {
                row: 1 for row in contents if row == (k, s) or (second and row[0] == k)
            }
        assert rows_of(index.look_up([(1 << 40,) if second else ("s1", 1 << 40)], 100)) == {}
        several = [(k,) if second else (s, k) for k, s in contents[:3]]
        assert sum(rows_of(index.look_up(several, 100)).values()) == (24 if second else 3)
    if second:
        assert set(asked) == {(0, 1, 2)}
    else:
        assert set(asked[:40]) == {(0,), (1,), (2,)}
