"""The first rows that an engine is asked for are those of the whole result, however it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import ALL_ROWS, Cancellation, Extent, Input
from foreshore.compute.finish import finished_parts, split_finishing
from foreshore.compute.render import evaluate as bulk_evaluate
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Call,
    Column,
    Filter,
    Finishing,
    Get,
    Literal,
    Map,
    OrderKey,
    Project,
    Relation,
    TopK,
)
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT4, INT8, TEXT, ColumnType
from tests.compute.cases import (
    START,
    Contents,
    columns_by_id,
    difference,
    rows_of,
    schema_of,
    updates,
)
from tests.effort import examples
from tests.model import evaluate
from tests.relations import TABLES, histories, lowered_relations


def inputs_of(relation: Relation, contents: Contents) -> dict[GlobalId, Input]:
    """Return inputs in which each entry adds one row."""
    return {
        id: Input(
            schema_of(columns),
            (),
            (updates(columns, [(row, START, 1) for row in Counter(contents[id]).elements()]),),
        )
        for id, columns in columns_by_id(relation).items()
    }


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


@st.composite
def finishings(draw: st.DrawFn, relation: Relation) -> Finishing:
    columns = columns_of(relation)
    places = draw(st.lists(st.sampled_from(range(len(columns))), max_size=2))
    keys = tuple(
        OrderKey(Column(i, columns[i].type), draw(st.booleans()), draw(st.booleans()))
        for i in places
    )
    limit, offset = draw(st.none() | st.integers(0, 5)), draw(st.integers(0, 3))
    return Finishing(keys, limit, offset, tuple(range(len(columns))))


def keys_of(rows: pa.Table, finishing: Finishing) -> list[object]:
    """Return the values of the keys of rows in their order; NaN equals itself."""
    places = [key.expr.index for key in finishing.order_by if isinstance(key.expr, Column)]
    return [
        str([row[place] for place in places])
        for row in zip(*map(pa.ChunkedArray.to_pylist, rows.columns), strict=True)
    ]


@settings(max_examples=examples(150))
@given(st.data(), lowered_relations(size=4), histories(1), st.booleans())
def test_first_rows_are_those_of_the_whole_result(
    engine: DuckDbEngine,
    data: st.DataObject,
    relation: Relation,
    history: list[Contents],
    single: bool,
) -> None:
    rows, errors = evaluate(relation, history[0])
    assume(not errors and columns_of(relation) and all(n > 0 for n in rows.values()))
    inputs = inputs_of(relation, history[0])
    finishing = data.draw(finishings(relation))
    extent, left = split_finishing(finishing)
    assert (extent == ALL_ROWS) == (not finishing.order_by and finishing.limit is None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_evaluate, "MANY_ROWS", 0 if single else 10_000)

        def finished(extent: Extent, finishing: Finishing) -> pa.Table:
            parts = engine.evaluate_parts(relation, inputs, START, Cancellation(), extent=extent)
            return pa.Table.from_batches(finished_parts(parts, finishing))

        asked, whole = finished(extent, left), finished(ALL_ROWS, finishing)
    assert asked.num_rows == whole.num_rows
    assert keys_of(asked, finishing) == keys_of(whole, finishing)


ROWS = [(1, "a"), (1, "a"), (2, None), (None, "b"), (None, None), (3, "z"), (2, "a")]


@pytest.mark.parametrize("offset", [None, 0, 2, 9])
@pytest.mark.parametrize("limit", [0, 1, 3, 20])
@pytest.mark.parametrize("descending", [False, True])
def test_limit_within_a_query_takes_the_first_entries(
    engine: DuckDbEngine,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    offset: int | None,
    descending: bool,
) -> None:
    monkeypatch.setattr(bulk_evaluate, "MANY_ROWS", 0)
    table = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(TEXT)))
    first = None if offset is None else Literal(offset, INT8)
    plan = TopK(table, (), (OrderKey(Column(0, INT4), descending),), Literal(limit, INT8), first)
    contents = {table.id: Counter(ROWS)}
    rows, _ = evaluate(plan, contents)
    found = engine.evaluate(plan, inputs_of(plan, contents), START)
    assert rows_of(found, columns_of(plan)) == rows


@settings(max_examples=examples(60))
@given(st.data(), histories(2))
def test_rows_that_were_taken_away_stay_out_of_the_first(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, history: list[Contents]
) -> None:
    """The collection is the last of a history, in two files whose entries cancel each other."""
    id = data.draw(st.sampled_from(sorted(history[0])))
    columns = next(each.columns for each in TABLES if each.id == id)
    nothing = (None,) * len(columns)
    before = [(row, START, 1) for row in [*Counter(history[0][id]).elements(), nothing]]
    changes = {**difference(history[0][id], history[1][id])}
    after = [(row, START, count) for row, count in changes.items()] + [(nothing, START, -1)]
    place = tmp_path_factory.mktemp("files")
    for name, entries in (("before", before), ("after", after)):
        pq.write_table(updates(columns, entries), place / name)
    files = tuple(str(place / name) for name in ("before", "after"))
    inputs = {id: Input(schema_of(columns), files, ())}
    outputs = data.draw(st.lists(st.integers(0, len(columns) - 1), min_size=1))
    relation: Relation = Project(Get(id, columns), tuple(outputs))
    if data.draw(st.booleans()):
        computed = Call("is_null", (Column(0, columns[outputs[0]].type),), BOOL)
        relation = Map(relation, (computed,))
        if data.draw(st.booleans()):
            relation = Filter(relation, (Column(len(outputs), BOOL),))
        relation = Project(relation, tuple(range(data.draw(st.integers(0, 1)), len(outputs) + 1)))
    rows, _ = evaluate(relation, history[1])
    engine = DuckDbEngine(threads=1, directories=[str(place)])
    parts = list(engine.evaluate_parts(relation, inputs, START, Cancellation()))
    assert rows_of(pa.concat_tables(parts), columns_of(relation)) == rows
    most = data.draw(st.integers(0, 4))
    some = engine.evaluate_parts(relation, inputs, START, Cancellation(), extent=Extent((), most))
    limited = TopK(relation, (), (), Literal(most, INT8), Literal(1, INT8))
    expected, _ = evaluate(limited, history[1])
    assert rows_of(engine.evaluate(limited, inputs, START), columns_of(limited)) == expected
    found = rows_of(pa.concat_tables(some), columns_of(relation))
    assert found <= rows
    assert found.total() >= min(most, rows.total())
    engine.close()
