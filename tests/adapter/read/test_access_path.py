"""Access paths: which one a query gets, and what replaces it at an execution."""

import pytest

from foreshore.adapter.plans.access_path import (
    AccessPath,
    Bulk,
    Constant,
    IndexOn,
    IndexRead,
    InProcess,
    KeyLookup,
    PeekPlan,
    plan_peek,
)
from foreshore.constraint import Unique
from foreshore.expr.ir import (
    Call,
    Column,
    Filter,
    Get,
    Join,
    Literal,
    Map,
    Parameter,
    Reduce,
    Relation,
    count_all,
)
from foreshore.ids import FIRST_BUILTIN, GlobalId
from foreshore.sql.optimize.key_steps import TableKeys
from foreshore.sql.plan.reads import all_rows_of
from foreshore.types import BOOL, INT4, TEXT, ColumnType

TABLE, INDEX, SYSTEM = GlobalId("u1"), GlobalId("u2"), GlobalId(f"s{FIRST_BUILTIN}")
ROW = (ColumnType(INT4, False), ColumnType(TEXT))
T = Get(TABLE, ROW)
ID = Column(0, INT4, nullable=False)
KEY = Unique("t_pkey", (0,), primary=True)
BY_ID = Filter(T, (Call("eq", (ID, Literal(7, INT4)), BOOL),))
COUNT = Reduce(T, (), (count_all(),))
ONE_ROW = Join((), ())


def plan(relation: Relation, *, indexed: bool = False, by_keys: bool = True) -> PeekPlan:
    """Return the plan of all rows of `relation`, over a table with a key, perhaps an index."""
    indexes = [IndexOn(INDEX, (ID,))] if indexed else []
    return plan_peek(
        all_rows_of(relation), lambda id: indexes, lambda id: TableKeys.of([KEY]), by_keys=by_keys
    )


@pytest.mark.parametrize(
    ("relation", "indexed", "path"),
    [
        (Map(ONE_ROW, (Literal(1, INT4),)), False, Constant),
        (BY_ID, False, KeyLookup),
        (BY_ID, True, KeyLookup),
        (T, True, IndexRead),
        (T, False, Bulk),
        (COUNT, True, Bulk),
        (Get(SYSTEM, ROW), False, InProcess),
    ],
)
def test_path_of_query(relation: Relation, indexed: bool, path: type[AccessPath]) -> None:
    assert isinstance(plan(relation, indexed=indexed).path, path)


def test_key_lookup_is_replaced_by_index_or_bulk() -> None:
    keys = ((Literal(7, INT4),),)
    assert plan(BY_ID).without_key().path == Bulk(BY_ID)
    assert plan(BY_ID, indexed=True).without_key().path == IndexRead(INDEX, TABLE, keys, T, BY_ID)
    assert plan(T).without_key().path == Bulk(T)


def test_index_is_read_whole_without_keys() -> None:
    assert plan(BY_ID, indexed=True, by_keys=False).path == IndexRead(
        INDEX, TABLE, None, BY_ID, BY_ID
    )


def test_own_writes_are_read_in_process_from_the_whole_query() -> None:
    assert plan(BY_ID, indexed=True).in_process().path == InProcess(BY_ID)


def test_value_that_may_be_long_needs_no_engine_once_it_is_known_to_be_short() -> None:
    def repeated(count: Literal | Parameter) -> Relation:
        return Map(ONE_ROW, (Call("repeat(text,int4)", (Literal("x", TEXT), count), TEXT),))

    unknown = plan(repeated(Parameter(1, INT4)))
    assert isinstance(unknown.path, InProcess)
    short, long = (repeated(Literal(count, INT4)) for count in (3, 100_000_000))
    assert unknown.bound_path(short) == Constant(short)
    assert unknown.bound_path(long) == InProcess(long)
